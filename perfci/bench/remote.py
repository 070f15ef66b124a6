"""A repository where it lies: what it has, and how it is fetched. Nothing here waits for ever.

Git runs below the guardian: what it starts (ssh, a helper for https) ends with it, and all of that when its time
is over or perfci is gone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from perfci.bench import access, git, guardian
from perfci.bench.git import Answer, ask, without_credentials
from perfci.errors import SourceError

PATIENCE_S = 300.0
# A first fetch of gigabytes may go on as long as something arrives, up to so many times the patience.
_LONGEST = 12
_GRACE_S = 15.0
_UPLOAD_PACK = "git -c 'safe.directory=*' upload-pack"


@dataclass(frozen=True, slots=True)
class Advertised:
    """refs: branches, tags and HEAD with their shas. default: the branch that HEAD is; empty: none."""

    refs: dict[str, str]
    default: str


@dataclass(frozen=True, slots=True)
class Remote:
    """repository: a URL or an absolute path. key: see `access`. patience_s: how long nothing may arrive."""

    repository: str
    key: str = field(default="", repr=False)
    patience_s: float = PATIENCE_S

    @property
    def name(self) -> str:
        return without_credentials(self.repository)

    def advertised(self) -> Advertised:
        """What the repository itself tells. Raises SourceError where it is missing, unreachable, empty or shallow."""
        if local(self.repository):
            _check_local(Path(self.repository))
        answer = self._call("ls-remote", "--quiet", "--symref", *self._transport())
        if answer.code != 0:
            raise SourceError(
                f"{self.name} cannot be read as a git repository or bundle: {answer.problem}",
                next_step=access.advice(answer.problem, self.key),
            )
        lines = [line.partition("\t") for line in answer.text.splitlines()]
        refs = {ref: sha for sha, _, ref in lines if not sha.startswith("ref: ")}
        if not refs:
            raise SourceError(f"{self.name} has no commit", next_step="commit something first")
        default = next((sha for sha, _, ref in lines if ref == "HEAD" and sha.startswith("ref: refs/heads/")), "")
        return Advertised(refs, default.removeprefix("ref: refs/heads/"))

    def fetch(self, specs: Sequence[str], *, folder: Path, lock: int, prune: bool = False) -> Answer:
        """Into the repository `folder`; the caller holds its lock. Raises SourceError when it takes too long.

        prune: what the repository does not name any more loses its name.
        """
        return self._call(
            *("fetch", "--progress", "--force", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"),
            *(*(("--prune",) if prune else ()), *self._transport(), *specs),
            folder=folder,
            lock=lock,
        )

    def _transport(self) -> tuple[str, ...]:
        if local(self.repository) and Path(self.repository).is_dir():
            return ("--upload-pack", _UPLOAD_PACK, self.repository)
        return (self.repository,)

    def _call(self, *arguments: str, folder: Path | None = None, lock: int | None = None) -> Answer:
        if shutil.which("git") is None:
            raise git.absent()
        allowed = access.of(self.key, self.repository)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", guardian.__file__, *git.command(*arguments, settings=allowed.settings)],
                cwd=folder,
                env=git.environment(dict(allowed.variables)),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=said,
                start_new_session=True,  # no terminal that ssh could ask on
                pass_fds=() if lock is None else (lock,),
            )
            try:
                if not _ended(child, said, self.patience_s):
                    raise SourceError(
                        f"{self.name}: nothing arrived for {self.patience_s:g} s",
                        next_step="look at the network, then try again",
                    )
            finally:
                _stop(child)
            return Answer(child.returncode, _content(out), git.problem(_content(said)))


def local(repository: str) -> bool:
    return "://" not in repository and Path(repository).is_absolute()


def absolute(repository: str) -> str:
    """A URL as it stands, a path as an absolute one. Raises SourceError for what is neither."""
    repository = repository.removeprefix("file://")
    if not repository or repository.startswith("-"):
        raise SourceError(f"{repository!r} is no repository", next_step="name a path or a URL")
    if "://" in repository or (":" in repository and not Path(repository).exists()):
        return repository
    return str(Path(repository).expanduser().resolve())


def against(origin: str, url: str) -> str:
    """A relative URL of a submodule, resolved."""
    scheme, mark, place = origin.rpartition("://")
    if not mark:
        scheme, mark, place = origin.rpartition(":")  # git@host:owner/name, or a path
    parts = place.rstrip("/").split("/")
    for part in url.split("/"):
        if part == "..":
            del parts[-1:]
        elif part != ".":
            parts.append(part)
    return f"{scheme}{mark}{'/'.join(parts)}"


def _check_local(folder: Path) -> None:
    if not folder.exists():
        raise SourceError(f"repository {folder} does not exist", next_step="mend `repo` in perfci.toml")
    if folder.is_file():
        return  # a bundle, or git says why not
    answer = ask("rev-parse", "--show-cdup", "--is-shallow-repository", folder=folder)
    if answer.code != 0:
        raise SourceError(
            f"{folder} is no git repository", next_step="mend `repo` in perfci.toml, or run git init there"
        )
    up, _, shallow = answer.out.decode("utf-8", "replace").rstrip("\n").rpartition("\n")
    if up:
        raise SourceError(
            f"{folder} is a folder inside the repository {(folder / up).resolve()}",
            next_step="set `repo` to the repository and `paths` to the folder",
        )
    if shallow == "true":
        raise SourceError(
            f"{folder} is a shallow clone, in which commits have no position",
            next_step="fetch its whole history with `git fetch --unshallow`",
        )


def _ended(child: subprocess.Popen[bytes], said: IO[bytes], patience_s: float) -> bool:
    """Wait until it has; False once it has told no progress for `patience_s`, or went on for too long."""
    start = heard = time.monotonic()
    size = 0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=min(1.0, patience_s))
            return True
        now, told = time.monotonic(), os.fstat(said.fileno()).st_size
        if told != size:
            size, heard = told, now
        if now - heard >= patience_s or now - start >= _LONGEST * patience_s:
            return False


def _stop(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.close()  # the guardian kills everything below it when this pipe ends
    try:
        child.wait(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
