"""Checkouts of real commits, and the folders that they lie in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perfci.bench import ownership
from perfci.bench.checkout import worktree
from perfci.bench.source import mirror
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


# ------------------------------------------------------------------------------------------ checkouts


def test_a_checkout_holds_the_suites_paths_alone(repository: Repository, cache: Path) -> None:
    sha = repository.commit(
        {
            "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--strict'",
            "kernels/a.py": "1",
            "kernels/deep/b.py": "1",
            "other/kernels/c.py": "1",
            "kernels2/d.py": "1",
            "odd [name]*/e.py": "1",
            "odd x/e.py": "1",
        }
    )
    found = mirror(str(repository.folder), cache)
    for paths, expected in {
        ("kernels",): {"kernels/a.py", "kernels/deep/b.py"},
        ("kernels/deep/", "./kernels2/d.py"): {"kernels/deep/b.py", "kernels2/d.py"},
        ("odd [name]*",): {"odd [name]*/e.py"},
    }.items():
        with worktree(found, sha, paths, cache / "tree") as tree:
            assert files_below(tree) == expected
        assert not (cache / "tree").exists()
    for everything in ((), (".",)):
        with worktree(found, sha, everything, cache / "tree") as tree:
            assert "pyproject.toml" in files_below(tree)
            assert repository.git("-C", str(tree), "status", "--porcelain") == ""
    assert list((found.folder / "worktrees").glob("*")) == []


def test_submodules_are_part_of_a_checkout(repository: Repository, cache: Path, tmp_path: Path) -> None:
    inner = Repository(tmp_path / "inner")
    inner.commit({"deep.h": "0"})
    outer = Repository(tmp_path / "library")
    outer.commit({"lib.h": "1"})
    outer.git("submodule", "--quiet", "add", "../inner", "third_party/inner")
    pinned = outer.commit({})
    repository.commit({"kernels/a.cu": "1"})
    repository.git("submodule", "--quiet", "add", str(outer.folder), "kernels/library")
    sha = repository.commit({})
    outer.commit({"lib.h": "2"})
    found = mirror(str(repository.folder), cache)
    with worktree(found, sha, ["kernels"], cache / "tree") as tree:
        assert files_below(tree) == {
            "kernels/a.cu",
            "kernels/library/.gitmodules",
            "kernels/library/lib.h",
            "kernels/library/third_party/inner/deep.h",
        }
        assert (tree / "kernels/library/lib.h").read_text() == "1", "as pinned, not as newest"
        assert repository.git("-C", str(tree / "kernels/library"), "rev-parse", "HEAD") == pinned
    assert not (cache / "tree").exists()
    shutil.rmtree(outer.folder)
    with worktree(found, sha, ["kernels"], cache / "tree") as tree:
        assert (tree / "kernels/library/lib.h").is_file(), "the mirror has it"
    shutil.rmtree(cache / "repositories")
    with (
        pytest.raises(SourceError, match="library does not exist"),
        worktree(mirror(str(repository.folder), cache), sha, ["kernels"], cache / "tree"),
    ):
        pass
    assert not (cache / "tree").exists()


def test_two_processes_at_once_share_one_mirror(repository: Repository, cache: Path) -> None:
    shas = [repository.commit({"a": str(n)}) for n in range(4)]
    program = (
        "import sys; from pathlib import Path; from perfci.bench.source import mirror\n"
        "from perfci.bench.checkout import worktree\n"
        "repository, cache, sha, folder = sys.argv[1:]\n"
        "with worktree(mirror(repository, Path(cache)), sha, (), Path(folder)) as tree:\n"
        "    print((tree / 'a').read_text())\n"
    )

    def measured(n: int) -> str:
        arguments = [str(repository.folder), str(cache), shas[n], str(cache / f"tree{n}")]
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False, env=os.environ
        )
        return done.stdout.strip() or done.stderr

    with ThreadPoolExecutor() as pool:
        assert list(pool.map(measured, range(4))) == ["0", "1", "2", "3"]


# ------------------------------------------------------------------------------------------ folders with an owner


def test_what_a_killed_run_left_is_removed_and_a_live_one_is_left_alone(
    repository: Repository, cache: Path, tmp_path: Path
) -> None:
    sha = repository.commit({"a": "1"})
    program = (
        "import sys, time; from pathlib import Path; from perfci.bench import ownership\n"
        "from perfci.bench.source import mirror; from perfci.bench.checkout import worktree\n"
        "repository, cache, sha, parent = sys.argv[1:]\n"
        "folder = ownership.claim(Path(parent), 'suite')\n"
        "with worktree(mirror(repository, Path(cache)), sha, (), folder / 'source'):\n"
        "    print(folder.name, flush=True); time.sleep(600)\n"
    )
    parent = tmp_path / "worktrees"
    command = [sys.executable, "-c", program, str(repository.folder), str(cache), sha, str(parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "suite\n"
        assert ownership.prune(parent) == 0
        mine = ownership.claim(parent, "suite")
        assert mine.name == "suite-2"
        ownership.release(mine)
        other.kill()
    assert (parent / "suite" / "source" / "a").is_file()
    assert ownership.prune(parent) == 1
    assert [p.name for p in parent.iterdir()] == [".lock"]
    found = mirror(str(repository.folder), cache)
    with worktree(found, sha, (), parent / "suite" / "source"):  # git had the place registered
        pass
    assert list((found.folder / "worktrees").glob("*")) == []


def test_a_process_that_got_the_number_of_a_dead_owner_does_not_own_its_folder(tmp_path: Path) -> None:
    folder = ownership.claim(tmp_path, "suite")
    owner = json.loads((folder / "owner.json").read_text())
    (folder / "owner.json").write_text(json.dumps(owner | {"started": "1"}))
    assert ownership.claim(tmp_path, "suite").name == "suite"
    assert ownership.prune(tmp_path) == 0


def test_a_folder_of_another_machine_is_left_alone(tmp_path: Path) -> None:
    folder = ownership.claim(tmp_path, "suite")
    owner = json.loads((folder / "owner.json").read_text())
    (folder / "owner.json").write_text(json.dumps(owner | {"host": "elsewhere", "pid": 1}))
    assert ownership.prune(tmp_path) == 0
    (tmp_path / "half-made").mkdir()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "owner.json").write_text('{"pid"')
    assert ownership.prune(tmp_path) == 2
    assert folder.is_dir()


def test_folders_without_write_permission_are_removed_too(tmp_path: Path) -> None:
    (tmp_path / "tree" / "sealed").mkdir(parents=True)
    (tmp_path / "tree" / "sealed" / "file").write_text("")
    (tmp_path / "tree" / "sealed").chmod(0o500)
    ownership.remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()


def test_a_folder_into_which_a_dying_process_still_writes_is_removed(tmp_path: Path) -> None:
    program = (
        "import os, sys, time\n"
        "os.chdir(sys.argv[1]); print(flush=True)\n"
        "until = time.monotonic() + 0.3\n"
        "while time.monotonic() < until: os.makedirs('a/b', exist_ok=True); open('a/b/c', 'w').close()\n"
    )
    (tmp_path / "tree").mkdir()
    command = [sys.executable, "-c", program, str(tmp_path / "tree")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        ownership.remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
