"""The edge worker of this node in the foreground: started, started again when it ends, and ended for good.

Airflow's worker ends itself when the server refuses it and does not end when it is told to while the server is away.
So it runs below a supervisor (perfci.supervisor): nothing of it outlives this command, and this command always ends.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from perfci.config import Settings
from perfci.errors import ServiceError
from perfci.runner import installed, keys, options, server
from perfci.runner.installed import Installed
from perfci.supervisor import Program, Tree

Echo = Callable[[str], None]
# Between a worker's end and its next start.
_WAITS_S = (2.0, 5.0, 15.0, 30.0)
# One that worked for so long did not fail at its start.
_STEADY_S = 120.0
# The worker tells the server that it is gone, and its jobs end; then all is killed.
_GRACE_S = 20.0
_CLEARING_LIMIT_S = 40.0
_MAX_LOG_BYTES = 20_000_000


def run(settings: Settings, config_path: Path, *, echo: Echo) -> None:
    """Blocks until SIGTERM, SIGINT or SIGHUP.

    Raises ServiceError where the folder is no node's, or its worker is at work already.
    """
    node = installed.required(settings)
    if not settings.service.airflow_url:
        raise ServiceError(f"{config_path}: service.airflow_url is empty", next_step="run `perfci runner setup` again")
    os.umask(0o022)  # the subject reads what the worker makes for it; what it must not read has rights of its own
    with _alone(settings, node) as lock, _told_to_end() as ending:
        program = _prepared(settings, node, config_path)
        echo(f"node {node.name}: works on queue {node.queue} for {settings.service.airflow_url}; Ctrl-C ends it")
        failures = 0
        while not ending():
            since = time.monotonic()
            _keep(program, node, lock=lock, ending=ending, echo=echo)
            if ending():
                break
            failures = 0 if time.monotonic() - since > _STEADY_S else failures + 1
            wait_s = _WAITS_S[min(failures, len(_WAITS_S)) - 1] if failures else _WAITS_S[0]
            echo(f"node {node.name}: {_why(settings, node)}; the worker starts again in {wait_s:.0f} s")
            until = time.monotonic() + wait_s
            while time.monotonic() < until and not ending():
                time.sleep(0.2)
    echo(f"node {node.name}: stopped")


def _keep(program: Program, node: Installed, *, lock: int, ending: Callable[[], bool], echo: Echo) -> None:
    """One life of the worker; what it says is passed on."""
    said = _Follower(program.log)
    mark = f"edge-worker:{program.folder}"
    with Tree(mark, log=program.log.with_name("supervisor.log"), keep=(lock,), grace_s=_GRACE_S) as tree:
        try:
            tree.start(program)
            while not ending():
                tree.check()
                said.pass_on(echo)
                time.sleep(0.3)
            echo(f"node {node.name}: stopping")
        except ServiceError as problem:
            said.pass_on(echo)
            echo(f"node {node.name}: {problem.message}")
    said.pass_on(echo)


def _why(settings: Settings, node: Installed) -> str:
    """In words that help, from the server itself."""
    asked = server.known(settings.service.airflow_url, node.name, installed.key_file(settings), now=datetime.now(UTC))
    if asked.refused:
        key = installed.public_key_file(settings, node)
        return f"{asked.problem} (on the control plane: perfci nodes add {node.name} {key.name})"
    if asked.problem:
        return asked.problem
    return "the server knows this node; if another worker has its name, it is refused as long as that one lives"


def _prepared(settings: Settings, node: Installed, config_path: Path) -> Program:
    home = installed.airflow_home(settings)
    log = home / "logs" / "worker.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        home.chmod(0o700)  # job tokens are in the logs of some Airflow versions
        keys.private(installed.key_file(settings))
        (home / "airflow.cfg").write_text(options.airflow_cfg(settings, node), "utf-8")
        # No worker of this folder lives: the lock is held.
        for stale in home.glob("*.pid"):
            stale.unlink()
        if log.is_file() and log.stat().st_size > _MAX_LOG_BYTES:
            log.replace(log.with_suffix(".log.old"))
    except OSError as error:
        raise ServiceError(
            f"{error.filename or home}: {error.strerror}", next_step="make room, and run it as the worker's user"
        ) from error
    words = ("edge", "worker", "-q", node.queue, "-c", str(node.slots), "--edge-hostname", node.name)
    command = (sys.executable, "-P", "-m", "airflow", *words)
    return Program(
        "edge worker",
        command,
        options.environment(settings, node, config_path=config_path, given=os.environ),
        home,
        log,
    )


def at_work(settings: Settings) -> int | None:
    """The process of the command that runs this folder's worker; None where there is none."""
    try:
        descriptor = os.open(_lock_file(settings), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if _locked(descriptor):
            return None
        holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
        return int(holder) if holder.isdigit() else None
    finally:
        os.close(descriptor)


def _lock_file(settings: Settings) -> Path:
    return settings.state / "worker.lock"


@contextmanager
def _alone(settings: Settings, node: Installed) -> Iterator[int]:
    """The folder's lock; what an earlier command has left behind holds it until it is gone."""
    path = _lock_file(settings)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ServiceError(f"{path}: {error.strerror}", next_step="run it as the worker's user") from error
    try:
        until = time.monotonic() + _CLEARING_LIMIT_S
        while not _locked(descriptor):
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            if _runs(holder) or time.monotonic() > until:
                raise ServiceError(
                    f"the worker of node {node.name} is at work here already (process {holder or 'unknown'})",
                    next_step="end it first, or set up another folder for another node",
                )
            time.sleep(0.1)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _runs(pid: str) -> bool:
    return pid.isdigit() and Path(f"/proc/{pid}").exists()


@contextmanager
def _told_to_end() -> Iterator[Callable[[], bool]]:
    """Whether a signal that ends a command has come."""
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        yield lambda: bool(came)
    finally:
        for number, action in before.items():
            signal.signal(number, action)


class _Follower:
    """What is appended to a log from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = path.stat().st_size if path.is_file() else 0

    def pass_on(self, echo: Echo) -> None:
        with suppress(OSError), self._path.open("rb") as stream:
            stream.seek(self._at)
            text = stream.read(1_000_000)
            whole = text[: text.rfind(b"\n") + 1]
            self._at += len(whole)
            for line in whole.decode("utf-8", "replace").splitlines():
                if line.strip():
                    echo(line)
