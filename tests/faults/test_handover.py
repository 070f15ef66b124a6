"""Nodes, lines and servers that break around the hand-over: every result arrives, and each of them once."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.clocks import skewed
from tests.faults.deployment import Deployment, kill, until
from tests.faults.nodes import Node, control_plane, indexes, planned
from tests.faults.postgresql import Postgresql
from tests.faults.proxies import line

ALL = [(0, "ok"), (1, "ok"), (2, "ok")]


@pytest.fixture
def control(server: Postgresql, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Deployment]:
    seconds = getattr(request, "param", 0.0)
    with control_plane(
        tmp_path / "control", server.database(f"handover_{time.monotonic_ns()}"), seconds=seconds
    ) as made:
        yield made


def left_without_server(control: Deployment, node: Node, job: dict[str, Any]) -> subprocess.Popen[bytes]:
    """A node that has measured everything and has nobody to hand it over to."""
    server = control.serve()
    process = node.start(job)
    until(node.waiting, "a first process is measured", node.logs)
    kill(server)
    until(lambda: len(node.waiting()) == 3 and "trying again" in node.logs(), "all is measured", node.logs)
    return process


def stored(control: Deployment) -> list[tuple[int, str]]:
    done = control.perfci("ingest")
    assert done.returncode == 0, done.stderr
    assert control.files("refused") == []
    return indexes(control.runs())


@pytest.mark.faults
@pytest.mark.parametrize("control", [1.0], indirect=True)
def test_a_node_killed_while_it_measures_is_replaced_by_another_and_nothing_counts_twice(
    control: Deployment, tmp_path: Path
) -> None:
    control.serve()
    job = planned(control)
    first, second = Node(tmp_path, "node-a"), Node(tmp_path, "node-b")
    process = first.start(job)
    until(first.waiting, "a first process is measured", first.logs)
    kill(process)
    assert second.start(job).wait(60) == 0, second.logs()
    assert stored(control) == ALL
    assert {run.node for run in control.runs()} == {"node-b"}
    # It comes back, and its task with it.
    assert first.start(job).wait(60) == 0, first.logs()
    assert first.waiting() == []
    assert stored(control) == ALL


@pytest.mark.faults
@pytest.mark.parametrize("control", [1.0], indirect=True)
def test_a_node_killed_between_measuring_and_handing_over_hands_over_when_it_is_back(
    control: Deployment, tmp_path: Path
) -> None:
    node, job = Node(tmp_path, "node-a"), planned(control)
    process = left_without_server(control, node, job)
    kill(process)
    measured = sorted(path.read_bytes() for path in node.waiting())
    control.serve()
    assert node.start(job).wait(60) == 0, node.logs()
    assert sorted(path.read_bytes() for path in control.files("incoming")) == measured  # none was measured again
    assert node.waiting() == []
    assert stored(control) == ALL


@pytest.mark.faults
@pytest.mark.parametrize("control", [1.0], indirect=True)
def test_a_node_that_froze_while_another_took_its_task_over_adds_nothing(control: Deployment, tmp_path: Path) -> None:
    frozen, other, job = Node(tmp_path, "node-a"), Node(tmp_path, "node-b"), planned(control)
    process = left_without_server(control, frozen, job)
    os.killpg(process.pid, signal.SIGSTOP)
    control.serve()
    assert other.start(job).wait(60) == 0, other.logs()
    os.killpg(process.pid, signal.SIGCONT)
    assert process.wait(90) == 0, frozen.logs()
    assert "superseded" in frozen.logs()
    assert stored(control) == ALL
    assert {run.node for run in control.runs()} == {"node-b"}


def test_results_are_taken_while_the_database_is_down_and_stored_when_it_is_back(
    control: Deployment, server: Postgresql, tmp_path: Path
) -> None:
    job = planned(control)
    control.serve()
    server.kill()
    node = Node(tmp_path, "node-a")
    assert node.start(job).wait(60) == 0, node.logs()
    down = control.perfci("ingest")
    assert (down.returncode, "cannot be reached" in down.stderr) == (2, True)
    assert len(control.files("incoming")) == 3
    server.start()
    assert stored(control) == ALL


@pytest.mark.faults
@pytest.mark.parametrize("seconds", [-600, 600])
def test_a_node_whose_clock_is_ten_minutes_off_is_measured_like_any_other(
    control: Deployment, tmp_path: Path, seconds: int
) -> None:
    control.serve()
    node = Node(tmp_path, "node-a")
    job = planned(control)
    assert node.start(job, **skewed(tmp_path, seconds=seconds)).wait(60) == 0, node.logs()
    assert stored(control) == ALL
    [found] = {round((run.started_at.timestamp() - time.time()) / 600) for run in control.runs()}
    assert found == seconds / 600  # the wrong moment is what the node says; nothing is ordered by it


@pytest.mark.faults
def test_a_slow_line_that_breaks_now_and_then_only_takes_longer(control: Deployment, tmp_path: Path) -> None:
    control.serve()
    with line(control.port) as slow:
        slow.rate, breaks = 20_000, 5
        node = Node(tmp_path, "node-a")
        process = node.start(planned(control, server=slow.url))
        while process.poll() is None:
            time.sleep(1.0)
            if breaks:
                breaks -= 1
                slow.break_off()
        assert process.returncode == 0, node.logs()
    assert node.waiting() == []
    assert stored(control) == ALL
