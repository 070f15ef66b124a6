"""Source bundles: what a node needs of a commit, in one file, so that it needs no access to the repository.

FOLDER/<sha256>.bundle    see `bundle_file`
FOLDER/index/<key>.json   which of them a commit and its paths gave
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from perfci.bench import bundle_file
from perfci.bench.bundle_file import inside
from perfci.bench.checkout import module
from perfci.bench.environment import included
from perfci.bench.git import demand
from perfci.bench.ownership import exclusive
from perfci.bench.source import Mirror
from perfci.errors import SourceError

SUFFIX = ".bundle"
# A job may wait this long for its node.
_FRESH_S = 3 * 86400.0


@dataclass(frozen=True, slots=True)
class Bundle:
    path: Path
    sha256: str
    bytes: int


@dataclass(slots=True)
class _Found:
    """objects: what goes in, each once, in the order of the trees. stores: where they lie."""

    objects: dict[str, None] = field(default_factory=dict)
    stores: list[Path] = field(default_factory=list)


def make(source: Mirror, sha: str, paths: Sequence[str], folder: Path) -> Bundle:
    """A commit with the files below `paths` (none: all of them), submodules included; made once, then found again.

    A lock file among the paths brings the files that it includes.
    Raises SourceError when a submodule cannot be had or there is no room.
    """
    wanted = _normal(paths)
    key = hashlib.sha256("\0".join((sha, *wanted)).encode("utf-8", "surrogateescape")).hexdigest()
    index = folder / "index" / f"{key}.json"
    with _writable(folder), exclusive(index.with_suffix(".lock")):
        if known := _known(index, folder):
            os.utime(known.path)
            return known
        with exclusive(source.lock) as lock:
            source.keep(sha, lock=lock)
        wanted = _normal([*wanted, *(name for path in wanted for name in included(source, sha, path))])
        found = _Found()
        _collect(source, sha, wanted, found)
        made = _write(source, bundle_file.Header(sha, "sha256" if len(sha) == 64 else "sha1", wanted), found, folder)
        _put(index, json.dumps({"commit": sha, "paths": wanted, "sha256": made.sha256, "bytes": made.bytes}))
    return made


def trim(folder: Path, *, now: float, age_s: float = 30 * 86400.0, keep: int = 200) -> tuple[Path, ...]:
    """Remove bundles that nobody has asked for in `age_s`, and the oldest of more than `keep`; those removed.

    One of the last three days stays: a job may still wait for its node. now: seconds since the epoch.
    """
    used = sorted(((path.stat().st_mtime, path) for path in folder.glob(f"*{SUFFIX}")), reverse=True)
    old = [path for n, (at, path) in enumerate(used) if now - at > (age_s if n < keep else _FRESH_S)]
    left = [
        p for p in (*folder.glob(".new-*"), *folder.glob("index/*")) if now - p.stat().st_mtime > max(age_s, _FRESH_S)
    ]
    for path in (*old, *left):
        path.unlink(missing_ok=True)
    return tuple(old)


def _normal(paths: Sequence[str]) -> tuple[str, ...]:
    """Each once and in order; empty for everything."""
    found = sorted({inside(path) for path in paths})
    return () if "" in found else tuple(found)


def _collect(source: Mirror, sha: str, paths: Sequence[str], found: _Found) -> None:
    needed = bundle_file.listing(source.folder, sha, paths)
    found.objects.update(dict.fromkeys(needed.objects))
    if source.folder / "objects" not in found.stores:
        found.stores.append(source.folder / "objects")
    for path, commit in needed.modules:
        if commit not in found.objects:
            _collect(module(source, sha, path, commit), commit, (), found)


def _write(source: Mirror, header: bundle_file.Header, found: _Found, folder: Path) -> Bundle:
    new = folder / f".new-{uuid.uuid4().hex}"
    try:
        with new.open("wb") as file:
            header.write(file)
            file.flush()
            # Deltas would save little among one commit's files; without them equal objects give equal bytes.
            demand(
                *(
                    "pack-objects",
                    "--stdout",
                    "-q",
                    "--threads=1",
                    "--window=0",
                    "--no-reuse-delta",
                    "--no-reuse-object",
                ),
                folder=source.folder,
                stores=found.stores[1:],
                feed="".join(f"{sha}\n" for sha in found.objects).encode("ascii"),
                to=file,
                next_step=f"make room for {folder}, then try again",
            )
            os.fsync(file.fileno())
        with new.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        made = Bundle(folder / f"{digest}{SUFFIX}", digest, new.stat().st_size)
        new.rename(made.path)
        return made
    finally:
        new.unlink(missing_ok=True)


def _known(index: Path, folder: Path) -> Bundle | None:
    try:
        body = json.loads(index.read_text("utf-8"))
        known = Bundle(folder / f"{body['sha256']}{SUFFIX}", body["sha256"], body["bytes"])
        return known if known.path.stat().st_size == known.bytes else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _put(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text, "utf-8")
    new.rename(path)


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SourceError(
            f"{error.filename or folder}: {error.strerror}", next_step=f"make room for {folder} or mend its rights"
        ) from error
