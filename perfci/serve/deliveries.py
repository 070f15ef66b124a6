"""Results of jobs on their way into the incoming folder.

What has arrived of a file lies in a part, below a folder of the job's own. A whole file is checked against the job
that it was sent for, put into the incoming folder in one step, and noted as what the job's process of that index gave:
an index has one result, whoever hands in another one. Killed anywhere, the next try goes on.

Nothing here waits for the network; every function blocks and belongs into a thread.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path

from perfci import artifact
from perfci.bench.process_report import line
from perfci.config import Settings
from perfci.errors import ArtifactError
from perfci.grants import Grant
from perfci.model import Origin, Run
from perfci.serve.refusals import Refusal

# Unfinished files of a job: each node that had it may have left one.
_PARTS = 4
# A node's clock may be off; a result of next week would be the newest one for a week.
_AHEAD = timedelta(days=1)
# Longer than any token lives.
KEPT_S = 7 * 86400.0
_KEEP = "keep the file, and look at the node's settings"


@dataclass(frozen=True, slots=True)
class Received:
    """What a job's process of this index has given. name: of its file in the incoming folder."""

    index: int
    sha256: str
    name: str


class Part:
    """What has arrived of one file; one upload at a time holds it."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor

    @property
    def length(self) -> int:
        return os.fstat(self._descriptor).st_size

    def rewind(self, offset: int) -> None:
        os.ftruncate(self._descriptor, offset)
        os.lseek(self._descriptor, offset, os.SEEK_SET)

    def append(self, data: bytes) -> None:
        """Raises OSError; on a full disk what was there is given up, so that it stands in nobody's way."""
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            self.remove()
            raise

    def contents(self) -> bytes:
        return os.pread(self._descriptor, artifact.MAX_BYTES + 1, 0)

    def move(self, place: Path) -> None:
        """The whole file to where it belongs, in one step and on the disk when it returns. Raises OSError."""
        os.fsync(self._descriptor)
        try:
            self.path.replace(place)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            artifact.write_whole(self.contents(), place)
        _flush(place.parent)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        os.close(self._descriptor)


def known(settings: Settings, grant: Grant, sha256: str) -> bool:
    """The job has handed it over, and it is still here."""
    return any(each.sha256 == sha256 and _stored(settings, each) for each in received(settings, grant))


def received(settings: Settings, grant: Grant) -> tuple[Received, ...]:
    """By index."""
    found = (_noted(path) for path in sorted(_folder(settings, grant).glob("index-*.json")))
    return tuple(each for each in found if each is not None and _stored(settings, each))


def arrived(settings: Settings, grant: Grant, sha256: str) -> int:
    """Bytes of an unfinished file."""
    try:
        return _part(_folder(settings, grant), sha256).stat().st_size
    except FileNotFoundError:
        return 0


def opened(settings: Settings, grant: Grant, sha256: str) -> Part:
    """The part of a file, made where there is none. Raises Refusal 409 while another upload holds it, and OSError."""
    folder = _folder(settings, grant)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = _part(folder, sha256)
    _make_room(folder, path, keep=_PARTS)
    while True:
        # Who may read it later is the umask's to say; its folder here is closed.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                return Part(path, descriptor)
        except BlockingIOError as error:
            os.close(descriptor)
            raise Refusal(409, "the same file is arriving from elsewhere", next_step="ask again in a second") from error
        os.close(descriptor)  # its holder had just finished and removed it


def finish(settings: Settings, grant: Grant, sha256: str, part: Part, *, now: datetime) -> str:
    """Take a whole file in: "stored"; "known", where it was here; "superseded", where its process has given another.

    Raises Refusal 422 for what is not this file, no result, or not the job's; and OSError.
    """
    data = part.contents()
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        part.remove()
        raise Refusal(422, f"what arrived has the sha256 {found}", next_step="send the whole file again")
    try:
        run = artifact.decode(data, name=f"{sha256[:16]}{artifact.SUFFIX}").run
    except ArtifactError as error:
        part.remove()
        raise Refusal(422, error.message, next_step="keep the file, and look at what wrote it") from error
    if problem := _foreign(run, grant, now=now):
        part.remove()
        raise Refusal(422, problem, next_step=_KEEP)
    mine = Received(run.index, sha256, f"{artifact.name_start(run.session, run.index)}{sha256}{artifact.SUFFIX}")
    try:
        with _alone(_folder(settings, grant)):
            return _take_in(settings, grant, mine, part)
    finally:
        part.remove()


def trim(settings: Settings, *, now: datetime) -> None:
    """Forget jobs whose tokens have long ended, with what of their files never came."""
    with suppress(FileNotFoundError):
        for folder in _uploads(settings).iterdir():
            if now.timestamp() - max(each.stat().st_mtime for each in (folder, *folder.glob("*"))) > KEPT_S:
                shutil.rmtree(folder, ignore_errors=True)


def _take_in(settings: Settings, grant: Grant, mine: Received, part: Part) -> str:
    note = _folder(settings, grant) / f"index-{mine.index:06d}.json"
    given = _noted(note)
    if given is not None and given.sha256 != mine.sha256 and _stored(settings, given):
        return "superseded"
    state = "known" if _stored(settings, mine) else "stored"
    # Noted first: a note without its file counts for nothing, a file without its note could come twice.
    artifact.write_whole(json.dumps(asdict(mine)).encode(), note)
    _flush(note.parent)
    if state == "stored":
        settings.incoming.mkdir(parents=True, exist_ok=True)
        part.move(settings.incoming / mine.name)
    return state


def _foreign(run: Run, grant: Grant, *, now: datetime) -> str:
    """What of the result is not the job's; empty when all is."""
    told = {
        "suite": (run.suite, grant.suite),
        "commit": (run.commit.sha, grant.sha),
        "position": (run.commit.position, grant.position),
        "hardware": (run.hardware.name, grant.hardware or run.hardware.name),
        "session": (run.session, line(grant.session)),
        "origin": (run.origin.value, Origin.MEASURED.value),
    }
    for name, (found, wanted) in told.items():
        if found != wanted:
            return f"the result's {name} is {found!r}, and the job's is {wanted!r}"
    if run.index not in grant.indexes:
        last = grant.indexes[-1] if grant.indexes else grant.first_index
        return f"the result is of process {run.index}, and the job has {grant.first_index} to {last}"
    if run.finished_at > now + _AHEAD:
        return f"the result is of {run.finished_at:%Y-%m-%d %H:%M} UTC, which is yet to come"
    return ""


def _uploads(settings: Settings) -> Path:
    return settings.state / "uploads"


def _folder(settings: Settings, grant: Grant) -> Path:
    identity = [grant.suite, grant.sha, grant.hardware, grant.session, grant.first_index]
    return _uploads(settings) / hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]


def _part(folder: Path, sha256: str) -> Path:
    return folder / f"{sha256}.part"


def _make_room(folder: Path, path: Path, *, keep: int) -> None:
    """The parts touched last stay."""
    with suppress(FileNotFoundError):  # finished meanwhile
        others = sorted((p for p in folder.glob("*.part") if p != path), key=lambda p: p.stat().st_mtime, reverse=True)
        for old in others[keep - 1 :]:
            old.unlink()


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _stored(settings: Settings, given: Received) -> bool:
    # In this order: ingest moves it from the first place to the second.
    kept = settings.artifacts / given.sha256[:2] / f"{given.sha256}{artifact.SUFFIX}"
    return (settings.incoming / given.name).is_file() or kept.is_file()


def _noted(path: Path) -> Received | None:
    try:
        return Received(**json.loads(path.read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _flush(folder: Path) -> None:
    """The names in it, too, are on the disk when this returns: the node removes its own copy then."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
