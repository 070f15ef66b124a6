"""A mirror brought up to date, without losing what the repository itself has lost."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from perfci.bench.git import ask, demand
from perfci.bench.ownership import exclusive
from perfci.bench.remote import Advertised, Remote, local
from perfci.errors import SourceError

# Below it a commit has a name that no fetch removes, so that no `git gc` removes the commit.
KEPT = "refs/perfci/kept/"
# Of the mirror's settings: the repository's default branch, and the one before that.
DEFAULTS = ("perfci.defaultBranch", "perfci.formerBranch")
_UPDATED = "perfci-updated"


def update(folder: Path, remote: Remote) -> None:
    """Make the mirror `folder`, or fetch what is new. Raises SourceError, and leaves an existing mirror usable."""
    advertised = remote.advertised()
    with exclusive(folder.with_suffix(".lock")) as lock:
        _make(folder, sha_length=max(map(len, advertised.refs.values())), lock=lock)
        before = _tips(folder)
        _fetch(folder, remote, head=advertised.refs.get("HEAD"), lock=lock)
        _keep_unnamed(folder, before - _tips(folder), lock)
        _remember_default(folder, advertised, lock)
        (folder / _UPDATED).touch()


def updated_at(folder: Path) -> datetime | None:
    """None where it never was."""
    try:
        return datetime.fromtimestamp((folder / _UPDATED).stat().st_mtime, UTC)
    except OSError:
        return None


def _make(folder: Path, *, sha_length: int, lock: int) -> None:
    kind = "sha256" if sha_length == 64 else "sha1"
    # A killed git leaves its lock files; nobody else writes here while `lock` is held.
    for stale in (*folder.glob("*.lock"), *folder.glob("refs/**/*.lock")):
        stale.unlink(missing_ok=True)
    if not (folder / "HEAD").is_file():
        demand("init", "--quiet", "--bare", "--template=", f"--object-format={kind}", str(folder), lock=lock)


def _fetch(folder: Path, remote: Remote, *, head: str | None, lock: int) -> None:
    specs = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
    if local(remote.repository):
        specs.append("+refs/remotes/*:refs/remotes/*")
    if head:
        specs.append("+HEAD:refs/perfci/head")
    answer = remote.fetch(specs, folder=folder, lock=lock, prune=True)
    if answer.code != 0:
        raise SourceError(
            f"git fetch: {answer.problem or f'exit code {answer.code}'}",
            next_step=f"look at {remote.name}, then try again",
        )
    if (folder / "shallow").exists():
        raise SourceError(f"{remote.name} is a shallow clone", next_step="name a repository with its whole history")
    if head:
        demand("update-ref", "--no-deref", "HEAD", head, folder=folder, lock=lock)


def _tips(folder: Path) -> frozenset[str]:
    """Commits that a branch or tag names."""
    form = "%(if)%(*objecttype)%(then)%(*objecttype) %(*objectname)%(else)%(objecttype) %(objectname)%(end)"
    places = ("refs/heads", "refs/remotes", "refs/tags")
    lines = demand("for-each-ref", f"--format={form}", *places, folder=folder).text.splitlines()
    return frozenset(line.removeprefix("commit ") for line in lines if line.startswith("commit "))


def _keep_unnamed(folder: Path, gone: frozenset[str], lock: int) -> None:
    """What a force-push or a deleted branch left without a name gets one here."""
    if not gone:
        return
    named = ("--not", "--branches", "--tags", "--remotes")
    feed = "".join(f"{sha}\n" for sha in gone).encode("ascii")
    lost = gone.intersection(demand("rev-list", "--stdin", *named, folder=folder, feed=feed).text.split())
    orders = "".join(f"update {KEPT}{sha} {sha}\n" for sha in sorted(lost)).encode("ascii")
    demand("update-ref", "--stdin", folder=folder, lock=lock, feed=orders)


def _remember_default(folder: Path, advertised: Advertised, lock: int) -> None:
    now, former = DEFAULTS
    known = ask("config", "--get", now, folder=folder).text
    if advertised.default and advertised.default != known:
        demand("config", now, advertised.default, folder=folder, lock=lock)
        if known:
            demand("config", former, known, folder=folder, lock=lock)
