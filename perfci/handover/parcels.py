"""Results on a node that are not handed over yet: a folder a job, below the outgoing folder.

    outgoing/<session>-<index>-<hash>/job.json              what they belong to, with its token
                                      *.perfci.json         results
                                      refused/              what the server does not take, each with its reason

Whoever measures or delivers a job holds its folder's lock, which is the kernel's.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfci import artifact
from perfci.errors import ServiceError

_JOB = "job.json"
_NAME_BYTES = 240
# Another job of this node may be taking along what this one had left.
_NEIGHBOUR_S = 150.0


@dataclass(frozen=True, slots=True)
class Parcel:
    folder: Path
    job: Mapping[str, Any]

    def results(self) -> tuple[Path, ...]:
        return tuple(sorted(p for p in self.folder.glob(f"*{artifact.SUFFIX}") if not p.name.startswith(".")))

    def of_index(self, index: int) -> tuple[Path, ...]:
        """Results of one process of the job."""
        start = artifact.name_start(str(self.job["session"]), index)
        return tuple(path for path in self.results() if path.name.startswith(start))

    def put(self, path: Path) -> Path:
        """Take in a result that lies elsewhere."""
        place = self.folder / path.name
        if path.parent.resolve() != self.folder.resolve():
            shutil.move(path, place)
        return place

    def refuse(self, path: Path, reason: str) -> Path:
        """Set a result aside with why nobody takes it."""
        aside = self.folder / "refused"
        aside.mkdir(exist_ok=True)
        start = os.fsdecode(os.fsencode(path.name)[:_NAME_BYTES])
        artifact.write_whole(f"{reason}\n".encode("utf-8", "replace"), aside / f"{start}.reason.txt")
        return path.replace(aside / path.name)

    def close(self) -> None:
        """Remove the folder, unless a result is left in it or was refused."""
        if not self.results() and not (self.folder / "refused").exists():
            shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def parcel(outgoing: Path, job: Mapping[str, Any]) -> Iterator[Parcel]:
    """The job's folder, made where there is none, and held. Raises ServiceError while another process is at the job."""
    folder = outgoing / _name(job)
    try:
        outgoing.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(exist_ok=True, mode=0o700)
        with _held(folder, patience_s=_NEIGHBOUR_S) as held:
            if not held:
                raise ServiceError(
                    f"another process of this node is at work on {folder.name}", next_step="wait until it has finished"
                )
            # The newest token of a job that was planned twice; for its owner alone, as the folder is.
            artifact.write_whole(json.dumps(dict(job)).encode(), folder / _JOB)
            made = Parcel(folder, dict(job))
            yield made
            made.close()
    except OSError as error:
        raise ServiceError(
            f"{error.filename or folder}: {error.strerror}", next_step="make room for it, then try again"
        ) from error


@contextmanager
def leftover(folder: Path) -> Iterator[Parcel | None]:
    """What an earlier job has left, held; None while somebody is at it, and for a folder that is no parcel."""
    with _held(folder) as held:
        try:
            job = json.loads((folder / _JOB).read_bytes()) if held else None
        except (OSError, ValueError):
            job = None
        found = Parcel(folder, job) if isinstance(job, dict) else None
        yield found
        if found is not None:
            found.close()


def leftovers(outgoing: Path) -> tuple[Path, ...]:
    """Folders with results, the oldest first."""
    with suppress(FileNotFoundError):
        found = [f for f in outgoing.iterdir() if f.is_dir() and any(f.glob(f"*{artifact.SUFFIX}"))]
        return tuple(sorted(found, key=lambda f: f.stat().st_mtime))
    return ()


def _name(job: Mapping[str, Any]) -> str:
    identity = [job[key] for key in ("suite", "sha", "hardware", "session", "first_index")]
    mark = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
    return f"{artifact.name_start(str(job['session']), int(job['first_index']))}{mark}"


@contextmanager
def _held(folder: Path, *, patience_s: float = 0.0) -> Iterator[bool]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + patience_s
        while not (held := _lock(descriptor)) and time.monotonic() < until:
            time.sleep(0.1)
        # Its last holder may have removed it.
        yield held and folder.exists() and os.path.samestat(os.fstat(descriptor), folder.stat())
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
