"""The only node of a queue dies for good in mid-night: the night ends, and names what it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.nights import Nights
from tests.team.place import HARDWARE, team

pytestmark = [pytest.mark.faults, pytest.mark.airflow, pytest.mark.timeout(1200)]


def test_a_node_that_dies_for_good_holds_up_no_night(tmp_path: Path) -> None:
    with team(tmp_path) as place:
        settings = place.control.folder / "perfci.toml"
        settings.write_text(settings.read_text().replace("[service]\n", "[service]\nabsent_minutes = 1.0\n"))
        nights, node = Nights(place), place.node("gpu-a")
        service = place.control.start()
        node.start()
        night = nights.begin(sleep_s=60)
        night.measuring(node)
        node.kill_all()
        assert place.control.wait_for_end(night.run, limit_s=900) == "failed"
        assert "is given up: no live node serves queue" in service.output()
        told = place.control.perfci("report", "--session", night.session)
        assert told.returncode == 2
        assert f"on {HARDWARE}" in told.stdout and "missing" in told.stdout, told.stdout
        with place.control.airflow() as airflow:
            assert airflow.unfinished("nightly") == ()
