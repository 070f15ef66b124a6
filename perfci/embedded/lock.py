"""One command at a time: a file lock that tells who holds it.

The lock is the kernel's (flock), so that it cannot go stale. The supervisor of the holder's processes keeps
it open too: a new command that finds a dead holder waits until the last of its processes is gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from perfci.errors import ServiceError

# Longer than the supervisor takes to kill a tree.
_CLEARING_LIMIT_S = 40.0


@dataclass(frozen=True, slots=True)
class Holder:
    """created, make_created: seconds since the epoch as psutil gives them; they tell a process from a later one
    with the same number. make: the process `make` that started the command; 0 without one. url: of its Airflow."""

    command: str
    pid: int
    created: float
    since: str
    make: int = 0
    make_created: float = 0.0
    url: str = ""

    @property
    def present(self) -> bool:
        """Still at work; a command whose `make` was killed is on its way out."""
        return _runs(self.pid, self.created) and (not self.make or _runs(self.make, self.make_created))

    def __str__(self) -> str:
        return f"{self.command} (process {self.pid}, since {self.since})"


class Busy(ServiceError):
    """`holder` is at work."""

    def __init__(self, message: str, *, next_step: str, holder: Holder) -> None:
        super().__init__(message, next_step=next_step)
        self.holder = holder

    def __reduce__(self) -> tuple[object, ...]:
        return ServiceError(self.message, next_step=self.next_step).__reduce__()


class Lock:
    def __init__(self, descriptor: int, holder: Holder) -> None:
        self.descriptor, self.holder = descriptor, holder

    def tell(self, holder: Holder) -> None:
        self.holder = holder
        data = json.dumps(asdict(holder)).encode()
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, data, 0)

    def orphaned(self) -> bool:
        """The `make` that started this command was killed: nobody waits for it any more."""
        return not self.holder.present


@contextmanager
def hold(path: Path, *, command: str) -> Iterator[Lock]:
    """Raises Busy when another command that is at work holds it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ServiceError(f"{path}: {error.strerror}", next_step="make the state folder writable") from error
    try:
        _take(descriptor, path)
        lock = Lock(descriptor, this_process(command))
        try:
            lock.tell(lock.holder)
        except OSError as error:
            raise ServiceError(f"{path}: {error.strerror}", next_step="make room for the state folder") from error
        yield lock
    finally:
        os.close(descriptor)


def _take(descriptor: int, path: Path) -> None:
    until = time.monotonic() + _CLEARING_LIMIT_S
    unknown_until = time.monotonic() + 2.0  # a holder may be about to write its name
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            holder = _read(descriptor)
        if holder is None and time.monotonic() > unknown_until:
            raise ServiceError(f"another process holds {path}", next_step="wait until it has finished, or end it")
        if holder is not None and holder.present:
            raise Busy(
                f"{holder} is at work in {path.parent}",
                next_step="wait until it has finished, or end it",
                holder=holder,
            )
        if time.monotonic() > until:
            raise ServiceError(f"what {holder} has left behind still holds {path}", next_step="end its processes")
        time.sleep(0.05)


def _read(descriptor: int) -> Holder | None:
    try:
        return Holder(**json.loads(os.pread(descriptor, 4096, 0)))
    except (ValueError, TypeError):
        return None


def this_process(command: str) -> Holder:
    """This process by that name, with the `make` that started it."""
    me = psutil.Process()
    make = _make(me)
    return Holder(
        command=command,
        pid=me.pid,
        created=me.create_time(),
        since=datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        make=make.pid if make else 0,
        make_created=make.create_time() if make else 0.0,
    )


def _make(process: psutil.Process) -> psutil.Process | None:
    """Who kills `make` means what it started; make itself passes nothing on."""
    if not os.environ.get("MAKELEVEL"):
        return None
    try:
        parent = process.parent()
        return parent if parent is not None and parent.name() in ("make", "gmake") else None
    except psutil.Error:
        return None


def _runs(pid: int, created: float) -> bool:
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - created) < 1 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
