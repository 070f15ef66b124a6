"""A small disk that only the processes see that are started with its `prefix`; it is gone when they are."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CI = os.environ.get("CI", "").lower() in {"1", "true"}
_HOLD = 'mount -t tmpfs -o size="$1",mode=0777 tmpfs "$2" && echo mounted && exec sleep infinity'


class Disk:
    """`folder` as the processes name it."""

    def __init__(self, holder: int, folder: Path) -> None:
        self._holder, self.folder = holder, folder

    @property
    def prefix(self) -> tuple[str, ...]:
        return ("nsenter", "--mount", f"--target={self._holder}", "--")

    @property
    def seen_from_outside(self) -> Path:
        return Path(f"/proc/{self._holder}/root{self.folder}")

    def fill(self, *, leave: int) -> None:
        """Until so many bytes are free."""
        with (self.seen_from_outside / "filler").open("ab") as stream:
            while (free := shutil.disk_usage(self.seen_from_outside).free) > leave:
                stream.write(b"x" * min(free - leave, 2**20))
                stream.flush()

    def clear(self) -> None:
        (self.seen_from_outside / "filler").unlink()


@contextmanager
def small_disk(folder: Path, *, size: str) -> Iterator[Disk]:
    """size: as mount has it, e.g. "8m"."""
    if os.geteuid() != 0:
        assert not CI, "a small disk can be mounted by root alone; run CI as root"
        pytest.skip("only root can mount a small disk")
    folder.mkdir(parents=True, exist_ok=True)
    command = ["unshare", "--mount", "--propagation=private", "sh", "-c", _HOLD, "sh", size, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "mounted\n", "no file system may be mounted here"
            yield Disk(holder.pid, folder)
        finally:
            holder.kill()
