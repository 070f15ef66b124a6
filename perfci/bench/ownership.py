"""Locks and folders that several perfci processes share.

A lock is the kernel's (flock): it ends with the last process that holds the file, however that process
ends. A claimed folder carries its owner's identity, so that what a killed run left behind is told from
what another run is using right now.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import socket
import stat
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perfci.errors import SourceError

_OWNER = "owner.json"
_GONE = ".gone-"
# Another machine's process cannot be asked whether it lives; no run takes longer than this.
_FOREIGN_S = 7 * 86400.0


@contextmanager
def exclusive(path: Path, *, patience_s: float = 900.0) -> Iterator[int]:
    """Hold the lock file `path`; yields its descriptor, for a child that must keep the lock as long as it lives.

    Raises SourceError when another process has held it for `patience_s`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        until = time.monotonic() + patience_s
        while not _try_lock(handle):
            if time.monotonic() > until:
                raise SourceError(
                    f"another process has held {path} for {patience_s:.0f} s", next_step="end it and start again"
                )
            time.sleep(0.05)
        yield handle
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def claim(parent: Path, stem: str) -> Path:
    """A new folder below `parent` that belongs to this process: `stem`, or `stem-2` … while others use that one.

    Equal stems give equal paths to runs that do not overlap: a build may have written its path into what it made.
    """
    parent.mkdir(parents=True, exist_ok=True)
    with exclusive(parent / ".lock"):
        slot = 1
        while True:
            folder = parent / (stem if slot == 1 else f"{stem}-{slot}")
            if folder.exists() and not _alive(folder):
                _discard(folder)
            if not folder.exists():
                break
            slot += 1
        folder.mkdir()
        (folder / _OWNER).write_text(json.dumps(_identity(os.getpid())), "utf-8")
    _sweep(parent)
    return folder


def release(folder: Path) -> None:
    """Remove a claimed folder. Its name is free at once; removing its files may take longer."""
    with exclusive(folder.parent / ".lock"):
        if folder.exists():
            _discard(folder)
    _sweep(folder.parent)


def prune(parent: Path, *, reopen: Callable[[Path], None] = lambda folder: None) -> int:
    """Remove the folders whose owner is gone; how many there were. reopen: makes one removable that another user wrote
    in."""
    if not parent.is_dir():
        return 0
    with exclusive(parent / ".lock"):
        left = [f for f in sorted(parent.iterdir()) if f.is_dir() and not f.name.startswith(".") and not _alive(f)]
        for folder in left:
            reopen(folder)
            _discard(folder)
    _sweep(parent)
    return len(left)


def remove_tree(path: Path) -> None:
    """Like rm -rf; also where a build made its folders read-only, and where a dying process still writes."""
    for _ in range(20):
        if sys.version_info >= (3, 12):
            shutil.rmtree(path, onexc=_unlock_and_retry)
        else:
            shutil.rmtree(path, onerror=lambda function, name, problem: _unlock_and_retry(function, name, problem[1]))
        if not path.exists():
            return
        time.sleep(0.05)
    shutil.rmtree(path)


def _unlock_and_retry(function: Callable[..., Any], name: str, error: BaseException) -> None:
    if isinstance(error, FileNotFoundError) or getattr(error, "errno", None) == errno.ENOTEMPTY:
        return
    if not isinstance(error, PermissionError):
        raise error
    for path in (Path(name).parent, Path(name)):
        if path.is_dir() and not path.is_symlink():
            path.chmod(path.stat().st_mode | stat.S_IRWXU)
    if Path(name).is_dir() and not Path(name).is_symlink():
        shutil.rmtree(name)
    else:
        function(name)


def _discard(folder: Path) -> None:
    folder.rename(folder.parent / f"{_GONE}{uuid.uuid4().hex}")


def _sweep(parent: Path) -> None:
    for folder in parent.glob(f"{_GONE}*"):
        remove_tree(folder)


def _identity(pid: int) -> dict[str, object]:
    return {"host": socket.gethostname(), "boot": _boot(), "pid": pid, "started": _started(pid)}


def _alive(folder: Path) -> bool:
    """Whether the owner of a claimed folder still runs. No owner file: its making was cut short."""
    try:
        text = (folder / _OWNER).read_text("utf-8")
        owner = json.loads(text)
        age = time.time() - (folder / _OWNER).stat().st_mtime
    except (OSError, ValueError):
        return False
    if not isinstance(owner, dict):
        return False
    if owner.get("host") != socket.gethostname():
        return age < _FOREIGN_S
    pid = owner.get("pid")
    return owner.get("boot") == _boot() and isinstance(pid, int) and owner == _identity(pid) and bool(_started(pid))


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _started(pid: int) -> str:
    """The process's start in clock ticks since boot (field 22 of /proc/PID/stat); empty when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    return "" if fields[0] in ("Z", "X") else fields[19]
