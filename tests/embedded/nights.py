"""A folder with settings and a small foreign suite; `perfci nightly` in it as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from perfci import config
from perfci.config import Settings
from perfci.embedded import home as homes
from perfci.store import engine, reads
from perfci.supervisor import marked
from tests.bench.repositories import Repository

ROOT = Path(__file__).parents[2]
# A plain pytest-benchmark file; a process of it takes a second or two.
BENCHMARK = """
import time
def test_sleep(benchmark):
    time.sleep({sleep_s})
    benchmark.pedantic(sum, args=(range(1000),), rounds=5, iterations=20)
"""
LIMIT_S = 300.0


class Place:
    """`settings` is written into perfci.toml; repositories are made by name beside it."""

    def __init__(self, folder: Path, settings: str) -> None:
        self.folder = folder
        (folder / "perfci.toml").write_text(settings, "utf-8")

    @property
    def settings(self) -> Settings:
        return config.load(self.folder / "perfci.toml")

    def repository(self, name: str, *, sleep_s: float = 0) -> Repository:
        made = Repository(self.folder / name)
        made.commit({"bench/test_sleep.py": BENCHMARK.format(sleep_s=sleep_s)}, "Add a benchmark")
        return made

    def stored(self) -> dict[str, tuple[str, int]]:
        """Of every run in the database: session and index, by the sha256 of its result file."""
        database = engine.connect(self.settings.database_url, read_only=True)
        found = {
            run.artifact_sha256: (run.session, run.index)
            for suite in self.settings.suites
            for run in reads.runs(database, suite=suite)
        }
        database.dispose()
        return found

    def files(self, name: str) -> list[Path]:
        return sorted((self.settings.state / name).rglob("*.perfci.json"))

    def left_over(self) -> list[object]:
        """Processes and worktrees; none may be left when a command has ended."""
        worktrees = [p for p in self.settings.worktrees.glob("*") if p.is_dir()]
        return [*marked(homes.of(self.settings).mark), *worktrees]

    def perfci(self, *words: str) -> subprocess.CompletedProcess[str]:
        with self.started(*words) as command:
            command.process.wait(LIMIT_S)
        return subprocess.CompletedProcess(words, command.process.returncode, command.output(), "")

    @contextmanager
    def started(self, *words: str) -> Iterator[Command]:
        log = self.folder / f"{'-'.join(words)}-{time.monotonic_ns()}.log"
        environment = {k: v for k, v in os.environ.items() if k != "MAKELEVEL"} | {"PYTHONPATH": str(ROOT)}
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "perfci.cli", *words],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        command = Command(process, log)
        try:
            yield command
        finally:
            if process.poll() is None:
                command.kill()


class Command:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log

    def output(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def wait_for(self, what: str | Callable[[], object]) -> None:
        """Until the output holds the text or the condition is true."""
        end = time.monotonic() + LIMIT_S
        while not (what in self.output() if isinstance(what, str) else what()):
            assert self.process.poll() is None, f"ended before {what}:\n{self.output()}"
            assert time.monotonic() < end, f"no {what} in:\n{self.output()}"
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL for the command alone; waits until what was below it is gone."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        _, alive = psutil.wait_procs(below, timeout=20)
        assert not alive, alive


def listening(mark: str) -> set[str]:
    """Addresses on which processes with the mark listen."""
    found = set()
    for process in marked(mark):
        try:
            connections = process.net_connections("inet")
        except psutil.Error:
            continue
        found |= {connection.laddr.ip for connection in connections if connection.status == psutil.CONN_LISTEN}
    return found
