"""A team's night over networks, clocks and calendars that do not keep to the plan. For root: it makes networks."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.clocks import skewed_box
from tests.faults.nights import ALL, HARDWARE, MEASURE, SUITE, Nights
from tests.team.networks import joined
from tests.team.place import Team, team, until

pytestmark = [pytest.mark.faults, pytest.mark.airflow, pytest.mark.timeout(1200)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Team]:
    """The control plane and its nodes in networks of their own."""
    with joined() as cable, team(tmp_path, cable=cable) as made:
        yield made


def test_a_network_that_is_cut_for_a_minute_in_mid_run_costs_time_alone(place: Team) -> None:
    nights = Nights(place)
    service, node = place.control.start(), place.node("gpu-a")
    node.start()
    assert place.cable is not None
    night = nights.begin(sleep_s=8)
    night.measuring(node)
    place.cable.cut()
    measured = night.measured(node)  # it goes on without anybody to tell
    time.sleep(60)
    place.cable.mend()
    assert night.ended() == ALL
    assert place.control.tasks(night.run)[MEASURE].attempt == 1
    kept = [path.read_bytes() for path in place.control.settings.artifacts.rglob("*.perfci.json")]
    assert sorted(kept) == sorted(measured)
    assert service.process.poll() is None


@pytest.mark.parametrize("seconds", [-600, 600])
def test_a_node_whose_clock_is_ten_minutes_off_works_and_is_told(tmp_path: Path, seconds: int) -> None:
    with team(tmp_path) as place:
        nights = Nights(place)
        place.control.start()
        node = place.node("gpu-a")
        node.prefix = skewed_box(tmp_path, seconds=seconds)
        node.start()
        assert nights.begin().ended() == ALL
        [off] = {round((run.started_at.timestamp() - time.time()) / 600) for run in place.control.runs()}
        assert off == seconds / 600
        told = node.perfci("doctor")
        where = "ahead of" if seconds > 0 else "behind"
        assert re.search(rf"(59\d|60\d) s {where} the server's", told.stdout), told.stdout
        assert "set up NTP on this box" in told.stdout


def test_hardware_without_a_live_node_is_named_and_the_night_ends(tmp_path: Path) -> None:
    with team(tmp_path) as place:
        nights = Nights(place)
        place.control.start()
        night = nights.begin()
        place.control.wait_for_end(night.run)
        told = place.control.perfci("report", "--session", night.session)
        assert f"no live node serves queue '{HARDWARE}'" in told.stdout
        assert night.stored() == []


def test_a_night_longer_than_a_day_does_not_overlap_the_next(tmp_path: Path) -> None:
    """A day lasts a minute here, and the night three."""
    with team(tmp_path, settings=SUITE) as place:
        nights = Nights(place)
        settings = place.control.folder / "perfci.toml"
        settings.write_text(settings.read_text().replace("0 0 29 2 *", "* * * * *"))
        sha = nights.commit(sleep_s=80)
        node = place.node("gpu-a")
        place.control.start()
        node.start()
        seen: dict[str, set[str]] = {}

        def first_ended() -> bool:
            with place.control.airflow() as airflow:
                unfinished = airflow.unfinished("nightly")
            running = [run.id for run in unfinished if run.state == "running"]
            assert len(running) <= 1, unfinished
            seen.setdefault("running", set()).update(running)
            return len(nights.stored(sha)) == len(ALL) and bool(running)

        until(first_ended, "the long night is over, and another has begun", place.control.logs, limit_s=900)
        until(lambda: first_ended() and len(seen["running"]) >= 3, "two more nights", place.control.logs, limit_s=600)
        assert nights.stored(sha) == ALL  # what is known is not measured again by the nights that follow
