"""Checkouts of a commit: linked worktrees of its mirror, with the files below the suite's paths alone.

Sparse without cone mode: a cone would add the files at the top, and with them e.g. a pyproject.toml whose
pytest settings the suite never asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from perfci.bench.access import serves
from perfci.bench.bundle_file import inside, listing
from perfci.bench.git import ask, demand
from perfci.bench.ownership import exclusive, remove_tree
from perfci.bench.remote import absolute, against, local
from perfci.bench.source import Mirror, mirror
from perfci.errors import SourceError

_SPARSE = ("core.sparseCheckout=true", "core.sparseCheckoutCone=false")


@contextmanager
def worktree(source: Mirror, sha: str, paths: Sequence[str], folder: Path) -> Iterator[Path]:
    """The files of a commit below `paths` (none: all of them), submodules included, in the new folder `folder`.

    Raises SourceError when git cannot make it or a submodule cannot be fetched.
    """
    with ExitStack() as stack:
        stack.enter_context(_linked(source, sha, paths, folder))
        for path, commit in listing(source.folder, sha, paths).modules:
            place = folder / path
            if not place.parent.resolve().is_relative_to(folder.resolve()):
                raise SourceError(f"submodule {path} of {sha[:12]} lies behind a link", next_step="move it")
            stack.enter_context(worktree(module(source, sha, path, commit), commit, (), place))
        yield folder


@contextmanager
def _linked(source: Mirror, sha: str, paths: Sequence[str], folder: Path) -> Iterator[None]:
    with exclusive(source.lock) as lock:
        _forget_missing(source, lock)
        if not source.partial:
            source.keep(sha, lock=lock)
        demand(
            *("worktree", "add", "--quiet", "--detach", "--no-checkout", "--force", str(folder), sha),
            folder=source.folder,
            lock=lock,
        )
    try:
        if paths:
            # The file of this worktree alone: `git sparse-checkout` would change the mirror's settings for all.
            patterns = Path(demand("rev-parse", "--absolute-git-dir", folder=folder).text) / "info" / "sparse-checkout"
            patterns.parent.mkdir(exist_ok=True)
            patterns.write_bytes(b"".join(os.fsencode(f"{_pattern(path)}\n") for path in paths))
        demand("read-tree", "--reset", "-u", sha, folder=folder, settings=_SPARSE if paths else ())
        yield
    finally:
        if folder.exists():
            remove_tree(folder)
        with exclusive(source.lock) as lock:
            _forget_missing(source, lock)


def _forget_missing(source: Mirror, lock: int) -> None:
    """What a killed run registered and its folder is gone."""
    demand("worktree", "prune", "--expire=now", folder=source.folder, lock=lock)


def _pattern(path: str) -> str:
    """In the language of .gitignore; a plain path means itself and what is below it."""
    plain = inside(path)
    return "/" + re.sub(r"([\\*?\[\]!#\s])", r"\\\1", plain) if plain else "/*"


def module(source: Mirror, sha: str, path: str, commit: str) -> Mirror:
    """Where the submodule's commit is to be had. Raises SourceError when it is nowhere."""
    if source.partial:
        source.resolve(commit)
        return source
    url = _urls(source, sha).get(path)
    if url is None:
        raise SourceError(f"submodule {path} of {sha[:12]} has no url in .gitmodules", next_step="add it there")
    if url.startswith(("./", "../")):
        url = against(_origin(source), url)
    repository = absolute(url)
    if local(repository) and not local(source.repository):
        raise SourceError(f"submodule {path} of {sha[:12]} names the local path {url}", next_step="give it a URL")
    key = source.key if serves(source.key, source.repository, repository) else ""
    found = mirror(repository, source.folder.parent.parent, needs=commit, key=key)
    found.resolve(commit)  # raises when the submodule's repository lost it
    return found


def _urls(source: Mirror, sha: str) -> Mapping[str, str]:
    answer = ask(
        "config",
        "-z",
        f"--blob={sha}:.gitmodules",
        "--get-regexp",
        r"^submodule\..*\.(path|url)$",
        folder=source.folder,
    )
    values = dict(entry.split("\n", 1) for entry in answer.text.split("\0") if "\n" in entry)
    names = {key.removesuffix(".path"): value for key, value in values.items() if key.endswith(".path")}
    return {path: values[f"{name}.url"] for name, path in names.items() if f"{name}.url" in values}


def _origin(source: Mirror) -> str:
    """What a relative URL is relative to: where a local clone came from, else the repository itself."""
    if local(source.repository) and Path(source.repository).is_dir():
        came_from = ask("config", "--get", "remote.origin.url", folder=Path(source.repository)).text
        if came_from:
            return came_from
    return source.repository
