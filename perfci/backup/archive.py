"""The file of a backup: a plain ustar archive, gzipped or not, of which the last member tells what the others are.

    tables/measurement/00000.jsonl      rows: a JSON array a line
    artifacts/ab/SHA256.perfci.json     result files, if they were asked for; each is named by its sha256
    manifest.json                       schema, columns, rows, and size and sha256 of each member of tables/

It is read as hostile input, by a reader that knows nothing but regular files of these names: a member is never larger
than memory has room for, nothing is written where a name says, and what packs too well is refused.
"""

from __future__ import annotations

import glob
import gzip
import hashlib
import os
import re
import tarfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from perfci import artifact
from perfci.errors import StoreError

FORMAT, VERSION = "perfci-backup", 1
PLAIN, PACKED = (".tar",), (".tar.gz", ".tgz")
MANIFEST = "manifest.json"
ARTIFACT = re.compile(rf"artifacts/([0-9a-f]{{2}})/(\1[0-9a-f]{{62}}){re.escape(artifact.SUFFIX)}")
TABLE = re.compile(r"tables/([a-z_]{1,40})/[0-9]{5,9}\.jsonl")
MAX_MEMBER = 128 * 1024 * 1024
# JSON lines of results pack tenfold, of made-up ones 150-fold; a small file may have any ratio.
MAX_RATIO, ALWAYS_FINE = 500, 1024**3
# No writer of a backup waits an hour between two members.
STALE_S = 3600.0
_BLOCK = tarfile.BLOCKSIZE
Stream = BinaryIO | gzip.GzipFile


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    bytes: int
    sha256: str


class Writer:
    def __init__(self, stream: Stream, *, at: float) -> None:
        self._stream, self._at = stream, int(at)

    def add(self, name: str, data: bytes) -> Member:
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = len(data), self._at, 0o600
        self._stream.write(info.tobuf(tarfile.USTAR_FORMAT))
        self._stream.write(data)
        self._stream.write(bytes(-len(data) % _BLOCK))
        return Member(name, len(data), hashlib.sha256(data).hexdigest())

    def close(self) -> None:
        self._stream.write(bytes(2 * _BLOCK))


@contextmanager
def whole(path: Path) -> Iterator[Stream]:
    """A new file that is there, readable by its owner, once all is written; before, there is what was there before.

    Raises StoreError for a name of another kind, or where it cannot be written.
    """
    if not path.name.endswith(PLAIN + PACKED):
        raise StoreError(f"{path} is no name of a backup", next_step=f"end it in {', '.join(PLAIN + PACKED)}")
    _sweep(path)
    part = path.with_name(f".writing-{os.getpid()}-{path.name}")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            if path.name.endswith(PACKED):
                with gzip.GzipFile(filename="", fileobj=stream, mode="wb", compresslevel=6, mtime=0) as packed:
                    yield packed
            else:
                yield stream
            stream.flush()
            os.fsync(descriptor)
        part.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}", next_step="name a place with room for it") from error
    finally:
        with suppress(OSError):
            part.unlink()


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Raises StoreError."""
    try:
        stream = path.open("rb")
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}", next_step="name a backup that can be read") from error
    with stream:
        yield stream


def members(stream: BinaryIO, *, name: str) -> Iterator[tuple[str, bytes]]:
    """From the beginning, in order, the manifest last. Raises StoreError for what no `Writer` has written."""
    stream.seek(0)
    packed = stream.read(2) == b"\x1f\x8b"
    stream.seek(0)
    limit = max(ALWAYS_FINE, MAX_RATIO * os.fstat(stream.fileno()).st_size)
    read = 0
    source: Stream = gzip.GzipFile(fileobj=stream) if packed else stream
    seen: set[str] = set()
    try:
        while (info := _header(source)) is not None:
            _check(info, seen)
            read += info.size
            if read > limit:
                raise ValueError("it unpacks to more than it can have held")
            data = _exactly(source, info.size)
            if any(_exactly(source, -info.size % _BLOCK)):
                raise ValueError(f"something follows {info.name}")
            yield info.name, data
        if MANIFEST not in seen:
            raise ValueError("its end is missing")
        _drain(source, limit=limit)
    except (OSError, EOFError, ValueError, zlib.error, tarfile.HeaderError) as error:
        raise refused(name, str(error) or "its end is missing") from error


def refused(name: str, problem: str) -> StoreError:
    return StoreError(f"{name} is no whole backup: {problem}", next_step="nothing was changed; take another backup")


def _header(source: Stream) -> tarfile.TarInfo | None:
    block = _exactly(source, _BLOCK)
    if not any(block):
        return None
    return tarfile.TarInfo.frombuf(block, "ascii", "strict")


def _check(info: tarfile.TarInfo, seen: set[str]) -> None:
    """Raises ValueError."""
    if MANIFEST in seen:
        raise ValueError("something follows its manifest")
    if info.type != tarfile.REGTYPE or not (
        info.name == MANIFEST or TABLE.fullmatch(info.name) or ARTIFACT.fullmatch(info.name)
    ):
        raise ValueError(f"it has a member {info.name[:100]!r}")
    if not 0 <= info.size <= (artifact.MAX_BYTES if ARTIFACT.fullmatch(info.name) else MAX_MEMBER):
        raise ValueError(f"{info.name} has {info.size} bytes")
    if info.name in seen:
        raise ValueError(f"{info.name} is in it twice")
    seen.add(info.name)


def _drain(source: Stream, *, limit: int) -> None:
    """A tar ends in zeros; gzip's checksum comes after them. Raises ValueError."""
    read = 0
    while data := source.read(1024 * 1024):
        read += len(data)
        if any(data) or read > limit:
            raise ValueError("something follows its end")


def _sweep(path: Path) -> None:
    """What a killed backup of this name has left half-written."""
    for half in path.parent.glob(f".writing-*-{glob.escape(path.name)}"):
        with suppress(OSError):  # its writer has finished
            if time.time() - half.stat().st_mtime > STALE_S:
                half.unlink()


def _exactly(source: Stream, size: int) -> bytes:
    data = source.read(size)
    if len(data) != size:
        raise EOFError("its end is missing")
    return data
