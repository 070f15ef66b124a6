"""A control plane's folder, and perfci's commands in it as processes that can be killed, stopped and started again.

Without Airflow: for faults of the hand-over, of ingest, of the database and of disks.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx

from perfci import config, grants
from perfci.config import Settings
from perfci.embedded.ports import free
from perfci.store import reads
from perfci.store.engine import connect
from perfci.store.rows import RunRow

ROOT = Path(__file__).parents[2]
LIMIT_S = 120.0


class Deployment:
    """`perfci.toml` in `folder`, a database at `url`; what it started ends with `close`."""

    def __init__(self, folder: Path, url: str, *, settings: str = "", hardware: Sequence[str] = ()) -> None:
        self.folder, self.url = folder, url
        self.port = free()
        tables = "".join(f'[hardware.{name}]\nmatch = "H200"\nqueue = "{name}"\n' for name in hardware)
        service = f'[service]\nserver_port = {self.port}\nserver = "{self.server}"\n'
        (folder / "perfci.toml").write_text(service + tables + settings, "utf-8")
        self._started: list[subprocess.Popen[bytes]] = []

    @property
    def server(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def config_path(self) -> str:
        return str(self.folder / "perfci.toml")

    @property
    def settings(self) -> Settings:
        return config.load(Path(self.config_path))

    @property
    def environment(self) -> dict[str, str]:
        own = {"PERFCI_CONFIG": self.config_path, "PERFCI_DATABASE_URL": self.url, "PYTHONPATH": str(ROOT)}
        return {**os.environ, **own}

    def __enter__(self) -> Deployment:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            if process.poll() is None:
                kill(process)

    def start(self, *words: str, prefix: Sequence[str] = (), **environment: str) -> subprocess.Popen[bytes]:
        """`python -m WORDS` with its output in a log beside perfci.toml."""
        log = self.folder / f"{words[0]}-{len(self._started)}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [*prefix, sys.executable, "-m", *words],
                cwd=self.folder,
                env=self.environment | environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def perfci(
        self, *words: str, prefix: Sequence[str] = (), limit_s: float | None = LIMIT_S
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*prefix, sys.executable, "-m", "perfci.cli", *words],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )

    def serve(self, *, prefix: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """`perfci serve`, ready to answer."""
        process = self.start("perfci.cli", "serve", prefix=prefix)

        def answers() -> bool:
            assert process.poll() is None, self.logs()
            with suppress(httpx.HTTPError):
                return httpx.get(f"{self.server}/health", trust_env=False).status_code < 500
            return False

        until(answers, "perfci serve answers", self.logs)
        return process

    def token(self, job: dict[str, object]) -> str:
        return grants.mint(grants.signing_key(self.settings), job, now=datetime.now(UTC))

    def runs(self) -> tuple[RunRow, ...]:
        """All that are stored, of all suites."""
        engine = connect(self.url, read_only=True)
        try:
            return tuple(run for suite in reads.suites(engine) for run in reads.runs(engine, suite=suite.name))
        finally:
            engine.dispose()

    def files(self, folder: str) -> list[Path]:
        return sorted((self.settings.state / folder).rglob("*.perfci.json"))

    def logs(self) -> str:
        return "\n".join(f"== {path.name}\n{path.read_text('utf-8', 'replace')}" for path in self.folder.glob("*.log"))


def until(true: Callable[[], object], what: str, told: Callable[[], object] = lambda: "") -> None:
    end = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < end, f"not within {LIMIT_S:g} s: {what}\n{told()}"
        time.sleep(0.05)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to it and to all below it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
