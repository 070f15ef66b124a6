"""The file in which a commit's sources go to a node: a line that says so, a line of JSON, and a git pack.

The pack has the commit, all trees, and the files below the wanted paths; the same for each submodule below them.
Git hashes every object as it unpacks, so that what is found under a sha is what the sha says. Its `--strict` would
ask for the files that were left out, so what must be there is looked for here.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from perfci.bench.git import demand
from perfci.bench.ownership import exclusive, remove_tree
from perfci.errors import SourceError

_MAGIC = b"# perfci source bundle 1\n"
_HEADER_BYTES = 1 << 20
_SHA = {"sha1": re.compile(r"[0-9a-f]{40}"), "sha256": re.compile(r"[0-9a-f]{64}")}
_FULL = (os.strerror(errno.ENOSPC), "Out of diskspace")  # the kernel's words and git's
_FETCH_AGAIN = "delete it, then fetch it again"
# Unpacked ones that a node keeps, beside those of the last day.
KEPT_UNPACKED, _IN_USE_S = 10, 86400.0


@dataclass(frozen=True, slots=True)
class Header:
    """commit: whose files. kind: of its hash. paths: below which files are there, empty for all. pack: its offset."""

    commit: str
    kind: str
    paths: tuple[str, ...]
    pack: int = 0

    def write(self, file: IO[bytes]) -> None:
        body = {"commit": self.commit, "object_format": self.kind, "paths": self.paths}
        file.write(_MAGIC + json.dumps(body, sort_keys=True).encode("ascii") + b"\n")


@dataclass(frozen=True, slots=True)
class Listing:
    """What a commit's checkout needs: objects by sha, and submodules as (path, commit)."""

    objects: tuple[str, ...]
    modules: tuple[tuple[str, str], ...]


def header(path: Path) -> Header | None:
    """None where the file is something else. Raises SourceError for one that only begins like a source bundle."""
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return None
            line = file.readline(_HEADER_BYTES)
            pack = file.tell()
    except OSError:  # none, a folder, not readable: git says so
        return None
    try:
        body = json.loads(line)
        found = Header(str(body["commit"]), str(body["object_format"]), tuple(map(_path, body["paths"])), pack)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SourceError(f"{path} is a damaged source bundle", next_step=_FETCH_AGAIN) from error
    if not line.endswith(b"\n") or found.kind not in _SHA or not _SHA[found.kind].fullmatch(found.commit):
        raise SourceError(f"{path} is a damaged source bundle", next_step=_FETCH_AGAIN)
    return found


def opened(path: Path, found: Header, folders: Path) -> Path:
    """The bundle unpacked below `folders` as a bare repository, now unless it is there.

    Raises SourceError for one that is damaged or lacks what it promises.
    """
    folder = folders / f"bundle-{found.commit[:12]}-{_identity(path, found)[:16]}.git"
    with exclusive(folder.with_suffix(".lock")) as lock:
        if not folder.is_dir():
            new = folder.with_suffix(".new")
            _remove(new)  # a killed run began it
            try:
                _unpack(path, found, new, lock)
                new.rename(folder)
            finally:
                _remove(new)
        os.utime(folder)
    _trim(folders)
    return folder


def listing(folder: Path, commit: str, paths: Sequence[str]) -> Listing:
    """Of a commit that the repository `folder` has, with the files below `paths`, or all of them."""
    wanted = [os.fsencode(inside(path)) for path in paths]
    everything = not wanted or b"" in wanted
    answer = demand("ls-tree", "-r", "-t", "-z", "--full-tree", commit, folder=folder)
    root = demand("rev-parse", "--verify", f"{commit}^{{tree}}", folder=folder).text
    objects, modules = {commit: None, root: None}, []
    for entry in answer.out.split(b"\0")[:-1]:
        about, _, path = entry.partition(b"\t")
        _, kind, sha = about.decode("ascii").split()
        if kind == "tree" or everything or _below(path, wanted) or (kind == "blob" and _rules(path, wanted)):
            if kind == "commit":
                modules.append((os.fsdecode(path), sha))
            else:
                objects[sha] = None
    return Listing(tuple(objects), tuple(modules))


def inside(path: str) -> str:
    """A path of the settings as git has it; empty for the whole repository."""
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def _below(path: bytes, wanted: Sequence[bytes]) -> bool:
    return any(path == place or path.startswith(place + b"/") for place in wanted)


def _rules(path: bytes, wanted: Sequence[bytes]) -> bool:
    """A .gitattributes above the wanted files: it says how they are written, e.g. how their lines end."""
    above, _, name = path.rpartition(b"/")
    return name == b".gitattributes" and any(not above or place.startswith(above + b"/") for place in wanted)


def _path(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _identity(path: Path, found: Header) -> str:
    """Of header and pack: a pack ends with the hash of its contents, which git compares as it unpacks."""
    with path.open("rb") as file:
        front, size = file.read(found.pack), path.stat().st_size
        file.seek(max(found.pack, size - 32))
        return hashlib.sha256(b"%d %b%b" % (size, front, file.read())).hexdigest()


def _unpack(path: Path, found: Header, folder: Path, lock: int) -> None:
    demand("init", "--quiet", "--bare", "--template=", f"--object-format={found.kind}", str(folder), lock=lock)
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(found.pack)
            demand("index-pack", "--stdin", folder=folder, feed=file, lock=lock)
        commits = _checked(folder, found)
        # As of a shallow clone: a build that asks for the history gets a short one, not an error.
        (folder / "shallow").write_text("".join(f"{commit}\n" for commit in commits), "ascii")
        for commit in commits:
            demand("update-ref", f"refs/perfci/kept/{commit}", commit, folder=folder, lock=lock)
        demand("update-ref", "--no-deref", "HEAD", found.commit, folder=folder, lock=lock)
    except SourceError as error:
        if any(full in error.message for full in _FULL):
            raise SourceError(error.message, next_step=f"make room for {folder.parent}") from error
        raise SourceError(f"{path} is a damaged source bundle: {error.message}", next_step=_FETCH_AGAIN) from error


def _checked(folder: Path, found: Header) -> list[str]:
    """The commits in it. Raises SourceError where an object that their checkout needs is not there."""
    commits, waiting = [], [(found.commit, found.paths)]
    while waiting:
        commit, paths = waiting.pop()
        if commit in commits:
            continue
        needed = listing(folder, commit, paths)
        feed = "".join(f"{sha}\n" for sha in needed.objects).encode("ascii")
        answer = demand("cat-file", "--batch-check=%(objectname)", folder=folder, feed=feed)
        lacking = next((line for line in answer.text.splitlines() if line.endswith("missing")), "")
        if lacking:
            raise SourceError(f"{lacking} from commit {commit[:12]}", next_step=_FETCH_AGAIN)
        commits.append(commit)
        waiting += [(sha, ()) for _, sha in needed.modules]
    return commits


def _trim(folders: Path) -> None:
    """Away with unpacked bundles that nothing has used for long."""
    used = sorted(((_used_at(folder), folder) for folder in folders.glob("bundle-*.git")), reverse=True)
    for _, folder in used[KEPT_UNPACKED:]:
        if _used_at(folder) > time.time() - _IN_USE_S or _checked_out(folder):
            continue
        with contextlib.suppress(SourceError), exclusive(folder.with_suffix(".lock"), patience_s=0):
            if _used_at(folder) <= time.time() - _IN_USE_S and folder.is_dir():  # still, with the lock
                _remove(folder.with_suffix(".new"))
                folder.rename(folder.with_suffix(".new"))  # nobody takes a half-removed one for whole
    for left in folders.glob("bundle-*.new"):
        with contextlib.suppress(SourceError), exclusive(left.with_suffix(".lock"), patience_s=0):
            _remove(left)


def _remove(folder: Path) -> None:
    if folder.exists():
        remove_tree(folder)


def _used_at(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:  # another process removed it
        return 0.0


def _checked_out(folder: Path) -> bool:
    """Whether one of its worktrees is there; a killed run leaves the name of one that is not."""
    for link in folder.glob("worktrees/*/gitdir"):
        with contextlib.suppress(OSError):
            if Path(os.fsdecode(link.read_bytes().strip())).exists():
                return True
    return False
