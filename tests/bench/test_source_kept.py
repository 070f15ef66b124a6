"""A mirror outlives what happens to its repository: rewritten, renamed, out of reach, silent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfci.bench import bundle, ownership
from perfci.bench.checkout import worktree
from perfci.bench.source import Mirror, mirror
from perfci.errors import SourceError
from tests.bench.repositories import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "subject")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


# ------------------------------------------------------------------------------------------ nothing is lost


def collect_garbage(found: Mirror) -> None:
    subprocess.run(["git", "-C", str(found.folder), "reflog", "expire", "--expire=now", "--all"], check=True)
    subprocess.run(["git", "-C", str(found.folder), "gc", "--quiet", "--prune=now"], check=True)


def test_no_gc_removes_what_was_measured_or_what_a_branch_once_named(
    repository: Repository, cache: Path, tmp_path: Path
) -> None:
    first = repository.commit({"a": "1"})
    measured = repository.commit({"a": "2"})
    repository.commit({"a": "3"})
    repository.git("reset", "--quiet", "--hard", measured)
    with worktree(mirror(str(repository.folder), cache), measured, (), cache / "tree"):
        pass
    bundled = repository.commit({"a": "4"})
    bundle.make(mirror(str(repository.folder), cache), bundled, (), tmp_path / "bundles")
    pushed = repository.commit({"a": "5"})
    repository.git("tag", "-a", "v1", "-m", "one")
    repository.git("branch", "topic")
    mirror(str(repository.folder), cache)
    repository.git("checkout", "--quiet", "--detach", first)
    repository.git("tag", "-d", "v1")
    repository.git("branch", "-D", "topic")
    repository.git("branch", "--force", "main", first)
    repository.git("checkout", "--quiet", "main")
    new = repository.commit({"a": "6"})
    found = mirror(str(repository.folder), cache)
    collect_garbage(found)
    assert [c.sha for c in found.branch("main")] == [first, new]
    for sha, text in {measured: "2", bundled: "4", pushed: "5"}.items():
        with worktree(found, sha, ("a",), cache / "tree") as tree:
            assert (tree / "a").read_text() == text
    mirror(str(repository.folder), cache)
    assert found.has(pushed), "the next fetch prunes no such name"


def test_no_gc_removes_a_commit_that_was_fetched_by_its_sha_or_a_submodules(
    repository: Repository, cache: Path, tmp_path: Path
) -> None:
    inner = Repository(tmp_path / "inner")
    inner.commit({"lib.h": "1"})
    inner.commit({"lib.h": "2"})
    repository.git("submodule", "--quiet", "add", str(inner.folder), "inner")
    first = repository.commit({"a": "1"})
    loose = repository.commit({"a": "2"})
    repository.git("reset", "--quiet", "--hard", first)
    found = mirror(str(repository.folder), cache)
    assert found.resolve(loose).sha == loose
    with worktree(found, first, (), cache / "tree"):
        pass
    inner.git("reset", "--quiet", "--hard", "HEAD~1")
    mirror(str(inner.folder), cache)
    for folder in (cache / "repositories").glob("*.git"):
        collect_garbage(Mirror("", folder))
    assert found.has(loose)
    inner.folder.rename(tmp_path / "away")
    with worktree(found, first, (), cache / "tree") as tree:
        assert (tree / "inner" / "lib.h").read_text() == "2"


def test_a_renamed_default_branch_is_told_by_its_new_name(repository: Repository, cache: Path) -> None:
    repository.commit({"a": "1"})
    repository.git("branch", "other")
    mirror(str(repository.folder), cache).branch("main")
    repository.git("branch", "-m", "main", "trunk")
    for _ in range(2):
        with pytest.raises(SourceError, match=r"no branch 'main' any more; its default branch is 'trunk' now; set `b"):
            mirror(str(repository.folder), cache).branch("main")
    with pytest.raises(SourceError, match=r"no branch 'master'; set `branch` to one of trunk, "):
        mirror(str(repository.folder), cache).branch("master")


# ------------------------------------------------------------------------------------------ out of reach


def test_a_repository_out_of_reach_leaves_the_mirror_that_is_there(
    repository: Repository, cache: Path, tmp_path: Path
) -> None:
    name, away = str(repository.folder), tmp_path / "away"
    with pytest.raises(SourceError, match="has no commit"):
        mirror(name, cache, stale_ok=True)
    sha = repository.commit({"a": "1"})
    assert mirror(name, cache, stale_ok=True).stale == ""
    repository.folder.rename(away)
    with pytest.raises(SourceError, match="does not exist"):
        mirror(name, cache)
    found = mirror(name, cache, stale_ok=True)
    assert "does not exist" in found.stale
    assert "UTC is used" in found.stale
    assert [c.sha for c in found.branch("main")] == [sha]
    with worktree(found, sha, (), cache / "tree") as tree:
        assert (tree / "a").read_text() == "1"
    away.rename(repository.folder)
    assert mirror(name, cache, stale_ok=True).stale == ""


def test_a_mirror_that_never_was_complete_is_none(repository: Repository, cache: Path) -> None:
    repository.commit({"a": "1"})
    found = mirror(str(repository.folder), cache)
    (found.folder / "perfci-updated").unlink()  # as a first fetch leaves it that was cut short
    repository.folder.rename(cache / "away")
    with pytest.raises(SourceError, match="does not exist"):
        mirror(str(repository.folder), cache, stale_ok=True)


# ------------------------------------------------------------------------------------------ silent

# In place of ssh: serves the first so many calls, then says nothing for ever, with a child that does so too.
SILENT = """#!/bin/sh
for last; do :; done
echo x >> "{folder}/calls"
if [ "$(wc -l < "{folder}/calls")" -le {served} ]; then exec sh -c "$last"; fi
sleep 3600 &
echo $! $$ > "{folder}/hanging.new"
mv "{folder}/hanging.new" "{folder}/hanging"
wait
"""


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def hangs(folder: Path, served: int) -> str:
    """A command for git in place of ssh."""
    folder.mkdir()
    (folder / "ssh").write_text(SILENT.format(folder=folder, served=served))
    (folder / "ssh").chmod(0o755)
    return str(folder / "ssh")


@pytest.mark.parametrize("scheme", ["http", "git"])
def test_a_server_that_accepts_and_says_nothing_is_given_up(cache: Path, scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}/a.git"
        with pytest.raises(SourceError, match=r"a\.git: nothing arrived for 0\.4 s; look at the network"):
            mirror(url, cache, patience_s=0.4)


def test_a_fetch_that_stops_is_given_up_with_all_that_it_started(
    repository: Repository, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha = repository.commit({"a": "1"})
    url = f"git@forge.example:{repository.folder}"
    monkeypatch.setenv("GIT_SSH_COMMAND", hangs(tmp_path / "ssh", served=3))
    found = mirror(url, cache)
    with pytest.raises(SourceError, match="nothing arrived"):
        mirror(url, cache, patience_s=0.4)
    assert all(gone(int(pid)) for pid in (tmp_path / "ssh" / "hanging").read_text().split())
    with ownership.exclusive(found.lock, patience_s=0):
        pass
    stale = mirror(url, cache, patience_s=0.4, stale_ok=True)
    assert "nothing arrived" in stale.stale
    assert stale.branch("main")[0].sha == sha


def test_a_killed_run_leaves_no_fetch_behind_that_holds_the_mirror(
    repository: Repository, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"a": "1"})
    url, hanging = f"git@forge.example:{repository.folder}", tmp_path / "ssh" / "hanging"
    monkeypatch.setenv("GIT_SSH_COMMAND", hangs(tmp_path / "ssh", served=1))
    program = (
        "import sys; from pathlib import Path; from perfci.bench.source import mirror\n"
        "mirror(sys.argv[1], Path(sys.argv[2]))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, url, str(cache)]) as run:
        while not hanging.exists():
            assert run.poll() is None
            time.sleep(0.02)
        os.kill(run.pid, signal.SIGKILL)
    for pid in hanging.read_text().split():
        while not gone(int(pid)):
            time.sleep(0.02)
    monkeypatch.delenv("GIT_SSH_COMMAND")
    (lock,) = (cache / "repositories").glob("*.lock")
    with ownership.exclusive(lock, patience_s=30):
        pass
