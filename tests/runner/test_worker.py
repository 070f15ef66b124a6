"""`perfci runner start` with Airflow's real edge worker and API server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from perfci import config
from perfci.runner import installed, keys, roster
from perfci.runner.installed import Installed
from tests.conftest import ROOT
from tests.runner.airflow import Server, a_server

pytestmark = [pytest.mark.airflow, pytest.mark.slow]
NODE = Installed("gpu-a", "here", "here", 1, sys.executable)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with a_server(tmp_path_factory.mktemp("control")) as made:
        yield made


class Start:
    """The command, and what it says."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lines = folder, list[str]()
        secrets = {"PERFCI_DATABASE_URL": "postgresql+psycopg://u:password@db/x", "SOME_TOKEN": "t"}
        environment = {**os.environ, **secrets, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "perfci.cli", "--config", str(folder / "perfci.toml"), "runner", "start"]
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(self.process.stdout)
        self.process.stdout.close()

    def said(self, words: str) -> bool:
        return any(words in line for line in self.lines)

    def wait_for(self, what: Callable[[], object], *, limit_s: float = 120) -> None:
        until = time.monotonic() + limit_s
        while not what():
            assert self.process.poll() is None or self.process.poll() == 0, self.lines
            assert time.monotonic() < until, self.lines
            time.sleep(0.1)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(timeout=120)
        self._reader.join()
        return code

    def worker(self) -> psutil.Process | None:
        """Airflow's own process, once it is at work."""
        for process in psutil.process_iter():
            try:
                if process.environ().get("AIRFLOW_HOME") == str(self.folder / "airflow") and (
                    "edge worker" in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE
                ):
                    return process
            except psutil.Error:
                continue
        return None


@pytest.fixture
def start(tmp_path: Path, server: Server) -> Iterator[Callable[[], Start]]:
    text = f'[service]\nexecutor = "EdgeExecutor"\nairflow_url = "{server.url}"\n[hardware.here]\nqueue = "here"\n'
    (tmp_path / "perfci.toml").write_text(text)
    (tmp_path / installed.FILE).write_text(NODE.text())
    started: list[Start] = []

    def begin() -> Start:
        started.append(Start(tmp_path))
        return started[-1]

    yield begin
    for each in started:
        if each.process.poll() is None:
            each.end(signal.SIGKILL)
    (server.nodes / "gpu-a.json").unlink(missing_ok=True)


def add(server: Server, folder: Path) -> None:
    key = keys.private(installed.key_file(config.load(folder / "perfci.toml")))
    roster.add(server.nodes, "gpu-a", installed.public_text(keys.public_jwk(key)), replace=False, now=datetime.now(UTC))


def test_a_node_works_as_soon_as_its_key_is_known_and_ends_cleanly(server: Server, start: Callable[[], Start]) -> None:
    first = start()
    first.wait_for(lambda: first.said("perfci nodes add gpu-a gpu-a.key.json"))
    add(server, first.folder)
    first.wait_for(lambda: first.worker() and first.said("Starting worker"))
    second = start()
    assert second.process.wait(timeout=60) == 2
    second.end()
    assert second.said("is at work here already")
    first.wait_for((first.folder / "airflow" / "airflow-edge-worker.pid").exists)
    worker = first.worker()
    assert worker is not None
    seen = " ".join(f"{key}={value}" for key, value in worker.environ().items())
    assert "password" not in seen
    assert "SOME_TOKEN" not in seen
    assert worker.environ()["PERFCI_CONFIG"] == str(first.folder / "perfci.toml")
    assert first.end() == 0
    assert first.said("signal being offline")
    assert first.worker() is None


def test_nothing_is_left_of_a_killed_command_and_another_starts(server: Server, start: Callable[[], Start]) -> None:
    first = start()
    add(server, first.folder)
    first.wait_for((first.folder / "airflow" / "airflow-edge-worker.pid").exists)
    first.process.kill()
    first.process.wait()
    until = time.monotonic() + 30
    while first.worker() is not None:
        assert time.monotonic() < until
        time.sleep(0.1)
    second = start()
    second.wait_for(lambda: second.said("works on queue here"))
    assert second.end() == 0


def test_the_command_ends_while_the_server_is_away(server: Server, start: Callable[[], Start]) -> None:
    first = start()
    add(server, first.folder)
    server.stop()
    try:
        first.wait_for(lambda: first.said("Retrying") or first.said("Cannot connect"))
        assert first.end() == 0  # the worker itself would go on asking for ever
        assert first.worker() is None
    finally:
        server.start()
