"""Control plane and node in networks of their own: a night, and one whose cable is cut in the middle."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.team.networks import Cable, joined
from tests.team.place import team

pytestmark = [
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.airflow,
    pytest.mark.timeout(900),
]


@pytest.fixture
def cable() -> Iterator[Cable]:
    if os.geteuid():
        assert not os.environ.get("CI"), "network namespaces need root"
        pytest.skip("network namespaces need root")
    with joined() as cable:
        yield cable


def test_a_night_over_the_one_cable_and_nothing_but_outbound_http(tmp_path: Path, cable: Cable) -> None:
    with team(tmp_path, cable=cable) as place:
        place.repository()
        place.control.start()
        node = place.node("gpu-a")
        node.start()
        night = place.control.perfci("nightly")
        assert night.returncode == 0, night.stdout
        assert {(run.node, run.index) for run in place.control.runs()} == {("gpu-a", 0), ("gpu-a", 1)}
        listening = [c for p in node.processes() for c in p.net_connections("inet") if c.status == "LISTEN"]
        assert listening == []


def test_the_cable_is_cut_for_a_minute_while_the_node_measures(tmp_path: Path, cable: Cable) -> None:
    with team(tmp_path, cable=cable) as place:
        place.repository(sleep_s=20)
        place.control.start()
        place.node("gpu-a").start()
        run = place.control.trigger()
        place.control.wait_for_task(run, "cpubox.measure[0]", "running")
        cable.cut()
        time.sleep(60)
        cable.mend()
        assert place.control.wait_for_end(run) == "success", place.control.logs()
        assert [run.index for run in place.control.runs()] == [0, 1]
        # It was not taken for dead: the first attempt has done it.
        assert place.control.tasks(run)["cpubox.measure[0]"].attempt == 1
