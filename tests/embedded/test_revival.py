"""What ends by itself is started again, with growing waits, and not for ever; real processes, the test's clock."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfci import supervisor
from perfci.embedded.revival import Revival
from perfci.errors import ServiceError
from perfci.supervisor import Program, Tree

SLEEPING, DYING = "import time; time.sleep(600)", "print('no database'); raise SystemExit(1)"


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    mark = f"test:{tmp_path}"
    with Tree(mark, log=tmp_path / "supervisor.log") as tree:
        yield tree
    supervisor.sweep(mark)


@pytest.fixture
def shown() -> list[str]:
    return []


@pytest.fixture
def revival(tree: Tree, shown: list[str]) -> Revival:
    return Revival(tree, shown.append, began=0.0)


def program(folder: Path, text: str, name: str = "scheduler") -> Program:
    return Program(name, (sys.executable, "-c", text), dict(os.environ), folder, folder / f"{name}.log")


def until_shown(revival: Revival, shown: list[str], *, more_than: int, at: float) -> None:
    end = time.monotonic() + 20
    while len(shown) <= more_than:
        revival.tend(at=at)
        assert time.monotonic() < end, shown
        time.sleep(0.02)


def test_a_killed_component_is_started_again_after_a_second(
    tmp_path: Path, tree: Tree, revival: Revival, shown: list[str]
) -> None:
    os.kill(tree.start(program(tmp_path, SLEEPING)), signal.SIGKILL)
    until_shown(revival, shown, more_than=0, at=300.0)
    assert shown == ["scheduler ended with signal 9: without a word; starting it again in 1 s"]
    revival.tend(at=300.9)
    assert len(shown) == 1
    revival.tend(at=301.0)
    assert shown[1:] == ["scheduler: started again"]


def test_one_that_cannot_live_is_tried_for_minutes_and_then_told_with_its_last_line(
    tmp_path: Path, tree: Tree, revival: Revival, shown: list[str]
) -> None:
    tree.start(program(tmp_path, DYING))
    at = 0.0
    with pytest.raises(ServiceError, match=r"scheduler ended with code 1: no database; read .*scheduler\.log"):
        while True:
            until_shown(revival, shown, more_than=len(shown), at=at)
            at += 60.0
    waits = [float(line.rsplit(" ", 2)[1]) for line in shown if "starting it again" in line]
    assert waits == sorted(waits)
    assert 200 <= sum(waits) <= 900


def test_one_that_lived_for_a_while_is_forgiven(tmp_path: Path, tree: Tree, revival: Revival, shown: list[str]) -> None:
    tree.start(program(tmp_path, DYING))
    for hour in range(1, 15):
        until_shown(revival, shown, more_than=len(shown), at=hour * 3600.0)
        until_shown(revival, shown, more_than=len(shown), at=hour * 3600.0 + 1.0)
    assert len(shown) == 28
    assert all("again in 1 s" in line for line in shown[::2])


def test_one_component_is_not_blamed_for_another(
    tmp_path: Path, tree: Tree, revival: Revival, shown: list[str]
) -> None:
    pid = tree.start(program(tmp_path, SLEEPING, "api-server"))
    tree.start(program(tmp_path, DYING))
    until_shown(revival, shown, more_than=0, at=1.0)
    revival.tend(at=1.5)
    assert [line.split()[0] for line in shown] == ["scheduler"]
    os.kill(pid, 0)
