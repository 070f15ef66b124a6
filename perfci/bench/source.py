"""Repositories under perfci, each as a bare mirror in the cache.

The user's own repository is read and never written to. Commits that a force-push or a deleted branch left
without a name stay in the mirror, so that what was measured once can be measured again.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from perfci.bench import bundle_file, refresh
from perfci.bench.bundle_file import inside
from perfci.bench.git import Answer, ask, demand, without_credentials
from perfci.bench.ownership import exclusive
from perfci.bench.remote import PATIENCE_S, Remote, absolute, local
from perfci.config import Settings, Suite
from perfci.errors import SourceError
from perfci.model import Commit

_SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_FORMAT = "%H%x00%P%x00%cI%x00%s"


@dataclass(frozen=True, slots=True)
class Mirror:
    """repository: a URL, or the absolute path of a repository or bundle file. folder: the bare mirror of it.

    key: with which it is fetched. stale: why it is not up to date. partial: of a source bundle, which has one commit
    without its history, and only the files that a suite reads.
    """

    repository: str
    folder: Path
    key: str = field(default="", repr=False)
    stale: str = ""
    partial: bool = False

    @property
    def lock(self) -> Path:
        return self.folder.with_suffix(".lock")

    @property
    def name(self) -> str:
        """For messages: without credentials."""
        return without_credentials(self.repository)

    def resolve(self, rev: str, *, branch: str = "") -> Commit:
        """The commit that `rev` names in the repository; HEAD is the repository's own.

        Its position is that on `branch`, None when it is off it or there is no such branch.
        Raises SourceError for a revision that the repository does not have.
        """
        sha = self._sha(rev)
        commit = self._log(sha, "-n1", "--no-walk")[0]
        if self.partial:  # git was told that it has no parents, since they are not there
            return replace(commit, parents=self._parents(sha))
        tip = self._branch_tip(branch) if branch else None
        position = self._position(sha, tip) if tip else None
        return Commit(commit.sha, commit.parents, position, commit.committed_at, commit.subject)

    def branch(self, name: str, *, last: int | None = None) -> tuple[Commit, ...]:
        """First-parent commits of a branch, oldest first, with their positions; the newest `last` of them alone.

        Raises SourceError when there is no such branch.
        """
        tip = self._branch_tip(name)
        if tip is None:
            raise self._no_branch(name)
        length = self._length(tip)
        commits = self._log(tip, "--first-parent", *(() if last is None else (f"-n{last}",)))
        return tuple(
            Commit(c.sha, c.parents, length - i, c.committed_at, c.subject)
            for i, c in reversed(list(enumerate(commits)))
        )

    def has(self, sha: str) -> bool:
        return ask("cat-file", "-e", f"{sha}^{{commit}}", folder=self.folder).code == 0

    def tree(self, sha: str, paths: Sequence[str]) -> str | None:
        """A hash of the contents below `paths` (none: everything); None when one of them is not in the commit."""
        names = [f"{sha}:{inside(path)}" for path in paths] or [f"{sha}^{{tree}}"]
        answer = ask("rev-parse", "--verify", "--quiet", names[0], folder=self.folder)
        hashes = [answer.text]
        for name in names[1:]:
            hashes.append(ask("rev-parse", "--verify", "--quiet", name, folder=self.folder).text)
        return (
            hashlib.sha256("\0".join((*paths, *hashes)).encode("utf-8", "surrogateescape")).hexdigest()
            if all(hashes)
            else None
        )

    def blob(self, sha: str, path: str) -> bytes | None:
        """The contents of a file in a commit; None when there is no such file."""
        answer = ask("cat-file", "blob", f"{sha}:{inside(path)}", folder=self.folder)
        return answer.out if answer.code == 0 else None

    def keep(self, sha: str, *, lock: int) -> None:
        """Give a commit a name that no fetch removes, so that no `git gc` removes what was measured.

        The caller holds the mirror's lock.
        """
        demand("update-ref", f"{refresh.KEPT}{sha}", sha, folder=self.folder, lock=lock)

    def _no_branch(self, name: str) -> SourceError:
        if self.partial:
            return SourceError(f"{self.name} has one commit and no branches", next_step="name the commit")
        default, former = (ask("config", "--get", key, folder=self.folder).text for key in refresh.DEFAULTS)
        if default and name == former:
            return SourceError(
                f"{self.name} has no branch {name!r} any more; its default branch is {default!r} now",
                next_step=f'set `branch = "{default}"`',
            )
        return SourceError(
            f"{self.name} has no branch {name!r}", next_step=self._near(name, "set `branch` to one of", first=default)
        )

    def _sha(self, rev: str) -> str:
        if not rev.strip() or rev.startswith("-") or any(ord(c) < 32 for c in rev):
            raise SourceError(f"{rev!r} is no revision", next_step="name a commit, a tag or a branch")
        answer = self._parse(rev)
        if answer.code != 0 and _SHA.fullmatch(rev) and not self.partial:
            # Reachable from no branch or tag any more, yet a server may still hand it out by its name.
            with exclusive(self.lock) as lock:
                Remote(self.repository, self.key).fetch([f"{rev}:{refresh.KEPT}{rev}"], folder=self.folder, lock=lock)
            answer = self._parse(rev)
        if answer.code == 0:
            return answer.text
        if "ambiguous" in answer.problem:
            raise SourceError(f"{rev!r} names several objects of {self.name}", next_step="write more of its digits")
        raise SourceError(
            f"{self.name} has no revision {rev!r}", next_step=self._near(rev, "name one that it has, such as")
        )

    def _parse(self, rev: str) -> Answer:
        return ask("rev-parse", "--verify", "--end-of-options", f"{rev}^{{commit}}", folder=self.folder)

    def _parents(self, sha: str) -> tuple[str, ...]:
        head = (
            demand("cat-file", "commit", sha, folder=self.folder).out.partition(b"\n\n")[0].decode("utf-8", "replace")
        )
        return tuple(line.removeprefix("parent ") for line in head.splitlines() if line.startswith("parent "))

    def _branch_tip(self, name: str) -> str | None:
        # A checkout of one commit, as CI makes it, knows its branches by their remote names alone.
        for prefix in ("refs/heads/", "refs/remotes/origin/"):
            answer = ask("rev-parse", "--verify", "--quiet", f"{prefix}{name}^{{commit}}", folder=self.folder)
            if answer.code == 0:
                return answer.text
        return None

    def _length(self, sha: str) -> int:
        return int(demand("rev-list", "--first-parent", "--count", sha, folder=self.folder).text)

    def _position(self, sha: str, tip: str) -> int | None:
        """`sha` lies on the branch if and only if so many steps back from the tip lead to it."""
        position, length = self._length(sha), self._length(tip)
        if position > length:
            return None
        there = ask("rev-parse", "--verify", "--quiet", f"{tip}~{length - position}", folder=self.folder)
        return position if there.text == sha else None

    def _log(self, start: str, *options: str) -> list[Commit]:
        answer = demand(
            *("log", "--no-show-signature", "--encoding=UTF-8", f"--format={_FORMAT}", *options, start, "--"),
            folder=self.folder,
        )
        return [_commit(line) for line in answer.text.splitlines()]

    def _near(self, name: str, advice: str, *, first: str = "") -> str:
        answer = ask("for-each-ref", "--format=%(refname)", "--sort=-committerdate", folder=self.folder)
        known = [re.sub(r"^refs/(heads|tags|remotes)/", "", ref) for ref in answer.text.split()]
        known = [ref for ref in known if not ref.startswith("refs/")]
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or known[:5]
        near = list(dict.fromkeys((first, *near))) if first else near
        return f"{advice} {', '.join(near)}" if near else "commit something first"


def mirror(
    repository: str,
    cache: Path,
    *,
    needs: str = "",
    key: str = "",
    stale_ok: bool = False,
    patience_s: float = PATIENCE_S,
) -> Mirror:
    """The up-to-date mirror of a repository: a URL, a path, a git bundle file or a source bundle of perfci's.

    needs: a full sha; when the mirror has it already, nothing is fetched. key: see `access.of`. stale_ok: where the
    repository cannot be reached, the mirror of an earlier night is taken, and says so. patience_s: how long nothing
    may arrive.
    Raises SourceError for a repository that is missing, unreachable, empty or a shallow clone.
    """
    remote = Remote(absolute(repository), key, patience_s)
    folders = cache / "repositories"
    if local(remote.repository) and (header := bundle_file.header(Path(remote.repository))):
        return Mirror(remote.repository, bundle_file.opened(Path(remote.repository), header, folders), partial=True)
    found = Mirror(remote.repository, folders / _folder_name(remote.repository), key=key)
    if needs and found.folder.is_dir() and found.has(needs):
        return found
    try:
        refresh.update(found.folder, remote)
    except SourceError as error:
        if not (stale_ok and (since := refresh.updated_at(found.folder))):
            raise
        return replace(found, stale=f"{error.message}; the mirror of {since:%Y-%m-%d %H:%M} UTC is used")
    return found


def deploy_key(settings: Settings, suite: Suite) -> str:
    """The suite's key for `mirror`: a file's absolute path, or `env:NAME`; empty: none."""
    if not suite.deploy_key or suite.deploy_key.startswith("env:"):
        return suite.deploy_key
    return str((settings.root / Path(suite.deploy_key).expanduser()).resolve())


def check_clean(repository: str, paths: Sequence[str]) -> None:
    """Raises SourceError when a local repository has changes below `paths` that no commit holds.

    perfci measures commits, not files. A URL, a bundle and a bare repository have no files to differ.
    """
    folder = Path(absolute(repository))
    if not folder.is_dir() or ask("rev-parse", "--is-inside-work-tree", folder=folder).text != "true":
        return
    wanted = [f":(top,literal){inside(path)}" for path in paths]
    answer = demand(
        "status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal", "--", *wanted, folder=folder
    )
    changed = [entry[3:] for entry in answer.out.decode("utf-8", "replace").split("\0") if len(entry) > 3]
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise SourceError(
            f"{folder} has uncommitted changes: {changed[0]}{more}",
            next_step="commit or stash them (perfci measures commits), or name a commit with --rev",
        )


def _folder_name(repository: str) -> str:
    plain = without_credentials(repository)
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", plain.rstrip("/").rpartition("/")[2].removesuffix(".git"))[:40]
    return f"{stem.lstrip('.-') or 'repository'}-{hashlib.sha256(plain.encode()).hexdigest()[:12]}.git"


def _commit(line: str) -> Commit:
    sha, parents, when, subject = line.split("\0", 3)
    try:
        at = datetime.fromisoformat(when)
    except ValueError:  # a date beyond the calendar
        at = None
    plain = "".join(c if c.isprintable() else " " for c in subject)[:500]
    return Commit(sha=sha, parents=tuple(parents.split()), committed_at=at, subject=plain)
