"""`perfci nightly` under a real scheduler: from nothing to stored results, again, and killed at every stage."""

from __future__ import annotations

import signal
import stat
from pathlib import Path

import pytest

from perfci.embedded import home as homes
from tests.embedded.nights import LIMIT_S, Place, listening

pytestmark = [pytest.mark.slow, pytest.mark.airflow, pytest.mark.timeout(900)]

SETTINGS = """
[suite.toy]
repo = "toy"
paths = ["bench"]
run = "pytest bench"
branch = "main"
runs = 2
"""


def test_a_night_stores_its_results_and_a_second_one_adds_evidence_not_duplicates(tmp_path: Path) -> None:
    place = Place(tmp_path, SETTINGS)
    place.repository("toy", sleep_s=2)
    mark = homes.of(place.settings).mark
    with place.started("nightly") as night:
        night.wait_for("process 1 of 2")
        assert listening(mark) == {"127.0.0.1"}
        night.process.wait(LIMIT_S)
    assert night.process.returncode == 0, night.output()
    assert [index for _, index in sorted(place.stored().values())] == [0, 1]
    assert place.left_over() == []

    again = place.perfci("nightly")
    assert again.returncode == 0, again.stdout
    assert [index for _, index in sorted(place.stored().values())] == [0, 1, 0, 1]
    assert len(set(place.stored().values())) == 4
    assert len(place.files("artifacts")) == 4
    assert place.files("incoming") == []
    assert place.left_over() == []
    assert "making Airflow's own database" not in again.stdout

    home = homes.of(place.settings)
    for path in (home.folder, home.folder / "airflow.cfg", home.password_file, home.database):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    secret = home.password()
    assert not [log for log in home.logs.rglob("*.log") if secret in log.read_text("utf-8", "replace")]


def test_a_night_that_is_killed_at_any_stage_can_be_run_again_without_loss_or_duplicate(tmp_path: Path) -> None:
    place = Place(tmp_path, SETTINGS)
    place.repository("toy", sleep_s=3)

    with place.started("nightly") as night:
        night.wait_for("making Airflow's own database")
        night.kill()
    with place.started("nightly") as night:
        night.wait_for("starting Airflow")
        night.wait_for((homes.of(place.settings).logs / "scheduler.log").exists)
        night.kill()
    with place.started("nightly") as night:
        night.wait_for("process 1 of 2")
        night.process.send_signal(signal.SIGINT)
        assert night.process.wait(60) == 130
        assert place.left_over() == []
    with place.started("nightly") as night:
        night.wait_for(lambda: len(place.files("incoming")) == 1)
        first = {path.name for path in place.files("incoming")}
        night.kill()
    assert place.stored() == {}
    with place.started("nightly") as night:
        night.wait_for(lambda: len(place.stored()) == 1)
        night.wait_for(lambda: len(place.files("incoming")) == 2)
        both = {path.name for path in place.files("incoming")}
        night.kill()
    assert not first & both
    assert len(place.stored()) == 1

    last = place.perfci("nightly")
    assert last.returncode == 0, last.stdout
    assert "was interrupted earlier and is marked failed" in last.stdout
    kept = {path.name.removesuffix(".perfci.json") for path in place.files("artifacts")}
    assert kept == set(place.stored())
    # One and two of the killed nights, two of the last one; each process of a session once.
    assert len(place.stored()) == len(set(place.stored().values())) == 5
    assert place.files("incoming") == []
    assert place.left_over() == []
