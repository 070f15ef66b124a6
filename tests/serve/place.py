"""A control plane with `perfci serve` as a process of its own, and a client that says what it pleases."""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from perfci import artifact, config, grants
from perfci.config import Settings
from perfci.embedded.ports import free
from perfci.model import Run
from tests.build import CPU, a_run, a_sha

ROOT = Path(config.__file__).parents[1]
COMMAND = (sys.executable, "-m", "perfci.cli", "serve")
SETTINGS = """
[suite.kernels]
repo = "repo"
run = "pytest bench"

[service]
server_port = {port}
server = "http://127.0.0.1:{port}"
"""
_sessions = itertools.count(1)


class Served:
    """The control plane's folder, its settings and its server."""

    def __init__(self, folder: Path, *, more: str = "") -> None:
        self.folder = folder / "control"
        self.folder.mkdir()
        self.port = free()
        self.url = f"http://127.0.0.1:{self.port}"
        self.config = self.folder / "perfci.toml"
        self.config.write_text(SETTINGS.format(port=self.port) + more, "utf-8")
        self.settings.state.mkdir()
        self.process: subprocess.Popen[str] | None = None

    @property
    def settings(self) -> Settings:
        return config.load(self.config)

    def start(self, command: Sequence[str] = COMMAND, **environment: str) -> None:
        """Returns when it listens."""
        self.process = self.command(command, **environment)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert self.url in line, line + self.process.communicate()[1]

    def command(self, command: Sequence[str] = COMMAND, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def stop(self, number: int = signal.SIGTERM) -> str:
        """What it said on its standard error."""
        if self.process is None:
            return ""
        self.process.send_signal(number)
        told = self.process.communicate(timeout=60)[1]
        self.process = None
        return told

    def token(self, job: Mapping[str, Any], *, now: datetime | None = None) -> str:
        return grants.mint(grants.signing_key(self.settings), job, now=now or datetime.now(UTC))

    def job(self, **changed: Any) -> dict[str, Any]:
        """With the server and its token, as a plan has it; of a session of its own."""
        wanted = a_job(**{"session": f"night-{os.getpid()}-{next(_sessions)}", **changed})
        return wanted | {"server": self.url, "token": self.token(wanted)}

    def client(self, token: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, headers=headers, trust_env=False, timeout=60.0)

    def connection(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60.0)

    def incoming(self, job: Mapping[str, Any]) -> list[Path]:
        return sorted(self.settings.incoming.glob(f"*{job['session']}-*"))

    def parts(self) -> list[Path]:
        return sorted((self.settings.state / "uploads").glob("*/*.part"))


def a_job(**changed: Any) -> dict[str, Any]:
    return {
        "suite": "kernels",
        "repository": "/nowhere",
        "sha": a_sha(1),
        "position": 1,
        "subject": "Change number 1",
        "hardware": CPU.name,
        "session": "night-1",
        "first_index": 0,
        "runs": 3,
        "expect": [],
        "origin": "measured",
    } | changed


def a_result(job: Mapping[str, Any], index: int = 0, **changed: Any) -> bytes:
    """A file that is the job's."""
    return artifact.encode(a_result_run(job, index, **changed))


def a_result_run(job: Mapping[str, Any], index: int = 0, **changed: Any) -> Run:
    return a_run(**{"session": job["session"], "index": index, **changed})


def sized(data: bytes, size: int) -> bytes:
    """The same result in a file of exactly so many bytes: JSON takes white space."""
    return data + b" " * (size - len(data))


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def put(client: httpx.Client, data: bytes, *, sha256: str = "", **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.put(f"/v1/artifacts/{sha256 or sha256_of(data)}", content=data, headers=named)


def request_head(job: Mapping[str, Any], data: bytes, **headers: str) -> bytes:
    """Of a PUT, as bytes on the wire."""
    told = {
        "Host": "127.0.0.1",
        "Authorization": f"Bearer {job['token']}",
        "Content-Length": str(len(data)),
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items() if value)
    return f"PUT /v1/artifacts/{sha256_of(data)} HTTP/1.1\r\n{lines}\r\n".encode()


def status_of(connection: socket.socket) -> int:
    """Of the next answer; 0 when the connection ends without one."""
    answer = b""
    while b"\r\n" not in answer:
        try:
            more = connection.recv(4096)
        except ConnectionResetError:
            return 0
        if not more:
            return 0
        answer += more
    return int(answer.split()[1])


def ended(connection: socket.socket) -> bool:
    """The server has closed it."""
    connection.settimeout(30.0)
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True
