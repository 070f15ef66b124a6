"""Mirrors and checkouts of real repositories."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from perfci.bench.checkout import worktree
from perfci.bench.source import check_clean, mirror
from perfci.errors import SourceError
from tests.bench.repositories import Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "subject")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def files_below(folder: Path) -> set[str]:
    found = (p for p in folder.rglob("*") if p.is_file() or p.is_symlink())
    return {str(p.relative_to(folder)) for p in found if p.name != ".git"}


# ------------------------------------------------------------------------------------------ commits and positions


def test_positions_follow_first_parents_and_not_dates(repository: Repository, cache: Path) -> None:
    first = repository.commit({"a": "1"}, "First")
    repository.git("checkout", "--quiet", "-b", "side")
    side = repository.commit({"side": "1"}, "Side")
    repository.git("checkout", "--quiet", "main")
    second = repository.commit({"a": "2"}, "Second")
    repository.git("merge", "--quiet", "--no-ff", "-m", "Merge side", "side")
    merge = repository.git("rev-parse", "HEAD")
    found = mirror(str(repository.folder), cache)
    assert [(c.sha, c.position, c.subject) for c in found.branch("main")] == [
        (first, 1, "First"),
        (second, 2, "Second"),
        (merge, 3, "Merge side"),
    ]
    assert found.branch("main")[2].parents == (second, side)
    assert found.resolve(second, branch="main").position == 2
    assert found.resolve(side, branch="main").position is None, "a merged commit is no step of the branch"
    assert found.resolve("side").position is None
    assert [c.position for c in found.branch("main", last=2)] == [2, 3]


def test_revisions_are_read_as_the_repository_reads_them(repository: Repository, cache: Path) -> None:
    shas = [repository.commit({"a": str(n)}) for n in range(3)]
    repository.git("tag", "-a", "v1", "-m", "one", shas[0])
    repository.git("checkout", "--quiet", "--detach", shas[1])
    found = mirror(str(repository.folder), cache)
    for rev, sha in {"HEAD": 1, "HEAD~1": 0, "main": 2, "main~2": 0, "v1": 0, shas[2][:10]: 2, "@": 1}.items():
        assert found.resolve(rev).sha == shas[sha], rev


def test_an_unknown_revision_is_named_with_those_that_are_near(repository: Repository, cache: Path) -> None:
    repository.commit({"a": "1"})
    repository.git("branch", "fast-decode")
    found = mirror(str(repository.folder), cache)
    with pytest.raises(SourceError, match=r"has no revision 'fast-dekode'; .*fast-decode"):
        found.resolve("fast-dekode")
    with pytest.raises(SourceError, match=r"has no branch 'master'; .*main"):
        found.branch("master")
    for nonsense in ("", "--all", "a\nb"):
        with pytest.raises(SourceError, match="is no revision"):
            found.resolve(nonsense)


def test_the_commit_carries_its_time_and_a_subject_that_a_result_file_can_hold(
    repository: Repository, cache: Path
) -> None:
    repository.commit({"a": "1"}, "Tab\there and a bell \a " + "x" * 600)
    commit = mirror(str(repository.folder), cache).resolve("HEAD")
    assert commit.subject.startswith("Tab here and a bell   x")
    assert len(commit.subject) == 500
    assert commit.committed_at == datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=1)


def test_what_a_force_push_or_a_deleted_branch_left_behind_can_still_be_measured(
    repository: Repository, cache: Path
) -> None:
    first = repository.commit({"a": "1"})
    lost = repository.commit({"a": "2"})
    repository.git("branch", "topic")
    topic = lost
    mirror(str(repository.folder), cache)
    repository.git("branch", "-D", "topic")
    repository.git("reset", "--quiet", "--hard", first)
    new = repository.commit({"a": "3"})
    repository.git("branch", "topic/deeper")  # where a file was there is a folder now
    repository.git("reflog", "expire", "--expire=now", "--all")
    repository.git("gc", "--quiet", "--prune=now")
    found = mirror(str(repository.folder), cache)
    assert [c.sha for c in found.branch("main")] == [first, new]
    assert found.resolve(topic, branch="main").position is None
    with worktree(found, lost, ("a",), cache / "tree") as tree:
        assert (tree / "a").read_text() == "2"


def test_a_commit_that_no_branch_names_is_fetched_by_its_sha(repository: Repository, cache: Path) -> None:
    first = repository.commit({"a": "1"})
    loose = repository.commit({"a": "2"})
    repository.git("reset", "--quiet", "--hard", first)
    assert mirror(str(repository.folder), cache).resolve(loose).sha == loose


# ------------------------------------------------------------------------------------------ what may be named


def test_a_bundle_file_stands_for_its_repository(repository: Repository, cache: Path, tmp_path: Path) -> None:
    shas = [repository.commit({"kernels/a": str(n)}) for n in range(3)]
    for what in (("--all",), ("main",), ("HEAD", "main")):
        bundle = tmp_path / f"{len(what)}{what[0]}.bundle"
        repository.git("bundle", "create", "--quiet", str(bundle), *what)
        found = mirror(str(bundle), cache)
        assert [c.sha for c in found.branch("main")] == shas
        with worktree(found, shas[1], ("kernels",), tmp_path / "tree") as tree:
            assert (tree / "kernels" / "a").read_text() == "1"


def test_a_linked_worktree_a_bare_clone_and_a_url_are_repositories(
    repository: Repository, cache: Path, tmp_path: Path
) -> None:
    first = repository.commit({"a": "1"})
    repository.git("worktree", "add", "--quiet", "-b", "topic", str(tmp_path / "linked"))
    (tmp_path / "linked" / "b").write_text("2")
    repository.git("-C", str(tmp_path / "linked"), "add", "b")
    repository.git("-C", str(tmp_path / "linked"), "commit", "--quiet", "-m", "On topic")
    repository.git("clone", "--quiet", "--bare", str(repository.folder), str(tmp_path / "bare.git"))
    assert mirror(str(tmp_path / "linked"), cache).resolve("HEAD").subject == "On topic"
    assert mirror(str(tmp_path / "bare.git"), cache).branch("main")[0].sha == first
    assert mirror(f"file://{repository.folder}", cache).branch("main")[0].sha == first


def test_a_checkout_of_a_remote_branch_alone_has_the_branch(
    repository: Repository, cache: Path, tmp_path: Path
) -> None:
    sha = repository.commit({"a": "1"})
    repository.git("clone", "--quiet", str(repository.folder), str(tmp_path / "ci"))
    repository.git("-C", str(tmp_path / "ci"), "checkout", "--quiet", "--detach", sha)
    repository.git("-C", str(tmp_path / "ci"), "branch", "--quiet", "-D", "main")
    found = mirror(str(tmp_path / "ci"), cache)
    assert [(c.sha, c.position) for c in found.branch("main")] == [(sha, 1)]
    assert found.resolve("origin/main").sha == sha


def test_what_is_no_repository_is_told_in_one_line(repository: Repository, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no bundle")
    unborn = Repository(tmp_path / "unborn")
    repository.commit({"sub/a": "1"})
    repository.commit({"sub/a": "2"})
    repository.git("clone", "--quiet", "--depth=1", f"file://{repository.folder}", str(tmp_path / "shallow"))
    for name, problem in {
        str(tmp_path / "gone"): "does not exist",
        str(tmp_path / "empty"): "is no git repository",
        str(tmp_path / "notes.txt"): "cannot be read as a git repository or bundle",
        str(unborn.folder): "has no commit",
        str(tmp_path / "shallow"): "is a shallow clone.*--unshallow",
        str(repository.folder / "sub"): "is a folder inside the repository",
        "http://127.0.0.1:9/a/b.git": "cannot be read",
        "--upload-pack=touch x": "is no repository",
    }.items():
        with pytest.raises(SourceError, match=problem) as caught:
            mirror(name, cache)
        assert "\n" not in str(caught.value)


def test_a_password_in_a_url_is_not_told(cache: Path) -> None:
    with pytest.raises(SourceError) as caught:
        mirror("http://someone:hunter2@127.0.0.1:9/a/b.git", cache)
    assert "hunter2" not in str(caught.value)
    assert "127.0.0.1" in str(caught.value)


def test_a_repository_of_another_owner_is_read(
    repository: Repository, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha = repository.commit({"a": "1"})
    if os.geteuid() == 0:
        for path in (repository.folder, *repository.folder.rglob("*")):
            os.chown(path, 12345, 12345, follow_symlinks=False)
    else:
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own switch for this
    refused = subprocess.run(["git", "status"], cwd=repository.folder, capture_output=True, text=True, check=False)
    assert "dubious ownership" in refused.stderr, "git itself would not read it"
    assert mirror(str(repository.folder), cache).resolve("main").sha == sha
    check_clean(str(repository.folder), ["a"])


def test_the_users_repository_is_not_written_to(repository: Repository, cache: Path) -> None:
    sha = repository.commit({"kernels/a": "1"})

    def state() -> dict[str, float]:
        return {str(p): p.stat().st_mtime_ns for p in repository.folder.rglob("*")}

    before = state()
    check_clean(str(repository.folder), ["kernels"])
    with worktree(mirror(str(repository.folder), cache), sha, ["kernels"], cache / "tree"):
        pass
    assert state() == before


def test_git_works_inside_a_hook_of_another_repository(
    repository: Repository, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha = repository.commit({"a": "1"})
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    with worktree(mirror(str(repository.folder), cache), sha, (), cache / "tree") as tree:
        assert files_below(tree) == {"a"}


def test_locks_that_a_killed_git_left_in_the_mirror_do_not_stand_in_the_way(
    repository: Repository, cache: Path
) -> None:
    repository.commit({"a": "1"})
    found = mirror(str(repository.folder), cache)
    for name in ("packed-refs.lock", "HEAD.lock", "config.lock", "refs/heads/main.lock"):
        (found.folder / name).write_text("")
    sha = repository.commit({"a": "2"})
    assert mirror(str(repository.folder), cache).resolve("HEAD").sha == sha


def test_without_git_the_next_step_is_to_install_it(
    repository: Repository, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"a": "1"})
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SourceError, match="no program named git; install git"):
        mirror(str(repository.folder), cache)


# ------------------------------------------------------------------------------------------ clean or not


def test_uncommitted_changes_below_the_paths_are_refused(repository: Repository) -> None:
    repository.commit({"kernels/a.py": "1", "docs/b": "1"})
    check_clean(str(repository.folder), ["kernels"])
    (repository.folder / "docs" / "b").write_text("2")
    check_clean(str(repository.folder), ["kernels"])
    with pytest.raises(SourceError, match=r"uncommitted changes: docs/b; .*--rev"):
        check_clean(str(repository.folder), [])
    (repository.folder / "kernels" / "new.py").write_text("2")
    with pytest.raises(SourceError, match=r"uncommitted changes: kernels/new.py"):
        check_clean(str(repository.folder), ["kernels/"])


def test_what_has_no_files_is_clean(repository: Repository, tmp_path: Path) -> None:
    repository.commit({"a": "1"})
    repository.git("bundle", "create", "--quiet", str(tmp_path / "b.bundle"), "--all")
    check_clean(str(tmp_path / "b.bundle"), ["a"])
    check_clean("https://example.org/a.git", ["a"])
    repository.git("clone", "--quiet", "--bare", str(repository.folder), str(tmp_path / "bare.git"))
    check_clean(str(tmp_path / "bare.git"), ["a"])
