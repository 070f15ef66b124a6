"""Secrets in files of their own: made once, readable by their owner alone."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from perfci.errors import ServiceError


def kept(path: Path, make: Callable[[], bytes]) -> bytes:
    """The secret in `path`, without white space around it; made by `make` where there is none.

    Of two processes that make one at once both get the same. Rights that are too wide are narrowed.
    Raises ServiceError for a file that is empty, another user's, or in a folder that cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            _make(path, make())
        _narrow(path.parent, 0o700)
        _narrow(path, 0o600)
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ServiceError(
            f"{error.filename or path}: {error.strerror}", next_step="make it this user's own, with room on its disk"
        ) from error
    if not secret:
        raise ServiceError(
            f"{path} is empty", next_step="remove it: a new one is made, and what the old one opened ends"
        )
    return secret


def _make(path: Path, secret: bytes) -> None:
    """Whole or not at all, and never over another one: a link fails where there is a file."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")  # 0600
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(secret + b"\n")
            stream.flush()
            os.fsync(handle)
        try:
            os.link(name, path)
        except FileExistsError:
            return  # another process was quicker: its secret is the one
    finally:
        Path(name).unlink()


def _narrow(path: Path, mode: int) -> None:
    if path.stat().st_mode & 0o777 & ~mode:
        path.chmod(mode)
