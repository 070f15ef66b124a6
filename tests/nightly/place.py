"""A folder with a perfci.toml and a small repository under perfci; the steps of a night as the DAG calls them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import Engine

from perfci import measure, nightly
from perfci.report import Night
from perfci.results import Result, newest
from perfci.store.engine import connect
from perfci.tonight import after
from tests.bench.repositories import Repository

# Plain pytest-benchmark; perfci is not imported. Rounds are few, so that a process takes a second.
BENCHMARK = """
import pytest

@pytest.mark.parametrize("n", [10, 1000])
def test_sum(benchmark, n):
    benchmark.pedantic(sum, args=(range(n),), rounds=7, iterations=20)
"""
OTHER = """
def test_join(benchmark):
    benchmark.pedantic("".join, args=(["ab"] * 500,), rounds=7, iterations=20)
"""
SETTINGS = """
[suite.toy]
repo = "repo"
paths = ["bench"]
run = "pytest bench"
branch = "main"
runs = 1
"""


class Place:
    def __init__(self, folder: Path, settings: str = SETTINGS) -> None:
        self.folder = folder
        self.repository = Repository(folder / "repo")
        self.config = folder / "perfci.toml"
        self.config.write_text(settings, "utf-8")

    @property
    def path(self) -> str:
        return str(self.config)

    @property
    def state(self) -> Path:
        return self.folder / ".perfci"

    @property
    def engine(self) -> Engine:
        return connect(f"sqlite:///{self.state / 'perfci.db'}")

    def night(self, **wanted: Any) -> Night:
        """All steps; returns what the terminal would show."""
        planned = nightly.plan(self.path, **wanted)
        self.measure(planned)
        return self.finish(planned)

    def measure(self, planned: dict[str, Any]) -> list[str]:
        for job in planned["jobs"]:
            measure.build(self.path, job, echo=quiet)
        return [path for job in planned["jobs"] for path in measure.measure(self.path, job, echo=quiet)]

    def finish(self, planned: dict[str, Any]) -> Night:
        nightly.ingest(self.path)
        nightly.detect(self.path, planned["session"])
        return after(nightly.config.load(self.config), planned)

    def results(self) -> tuple[Result, ...]:
        return newest(self.engine)

    def perfci(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """The command itself, in a process of its own in this folder."""
        return self._run("-m", "perfci.cli", *arguments, **environment)

    def python(self, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run("-c", code, *arguments)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """The command, not waited for."""
        return subprocess.Popen(
            [sys.executable, "-m", "perfci.cli", *arguments],
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _environment(self, **more: str) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(Path(nightly.__file__).parents[1])} | more

    def _run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self._environment(**environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


def quiet(line: str) -> None:
    """Progress is for people."""


def processes_in(folder: Path) -> list[int]:
    """Processes whose current folder lies below `folder`."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if Path(process.cwd()).is_relative_to(folder):
                found.append(process.pid)
    return found


def wait_for(come_true: Callable[[], bool], *, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not come_true():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)
