"""Source bundles: what a node checks out of one is what it would check out of the repository."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from perfci import artifact
from perfci.bench import bundle, bundle_file, suite
from perfci.bench.checkout import worktree
from perfci.bench.source import Mirror, mirror
from perfci.errors import SourceError
from perfci.model import RunStatus
from tests.bench.jobs import BENCHMARK, a_subject
from tests.bench.repositories import Repository
from tests.faults.disks import small_disk

ROOT = Path(__file__).parents[2]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "subject")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The cache of another machine."""
    return tmp_path / "node"


def contents(folder: Path) -> dict[bytes, tuple[str, bytes]]:
    """Every file below `folder` with its kind and bytes, git's own left out."""
    found: dict[bytes, tuple[str, bytes]] = {}
    for path in folder.rglob("*"):
        name = os.fsencode(path.relative_to(folder))
        if path.name == ".git":
            continue
        if path.is_symlink():
            found[name] = ("link", os.fsencode(path.readlink()))
        elif path.is_file():
            found[name] = ("x" if os.access(path, os.X_OK) else "-", path.read_bytes())
    return found


def checked_out(source: Mirror, sha: str, paths: tuple[str, ...], folder: Path) -> dict[bytes, tuple[str, bytes]]:
    with worktree(source, sha, paths, folder) as tree:
        return contents(tree)


def names_of(found: dict[bytes, tuple[str, bytes]]) -> set[str]:
    return {os.fsdecode(path) for path in found}


# ------------------------------------------------------------------------------------------ equal to the repository

NAMES = st.sampled_from(
    [b"a", b"b", b"src", b"k [x]*", b" lead", b"trail ", b"#c", b"!d", b"caf\xe9", b"\xff", b"e\\f"]
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(b"/".join)
CONTENTS = st.sampled_from([b"", b"one\n", b"one\ntwo\n", b"\x00\xff", b"$Id$\n", b"a\r\nb\n"])
FILES = st.tuples(st.sampled_from([b"100644", b"100755"]), CONTENTS)
LINKS = st.tuples(st.just(b"120000"), st.sampled_from([b"a", b"../b", b"/etc/hostname", b"../../outside", b"src"]))
RULES = st.sampled_from([b"* text eol=crlf\n", b"*.* binary\na ident\n", b"src/** text eol=crlf\n"])


def without_conflicts(files: dict[bytes, tuple[bytes, bytes]]) -> dict[bytes, tuple[bytes, bytes]]:
    """No path that is a file and a folder."""
    return {path: file for path, file in files.items() if not any(p.startswith(path + b"/") for p in files)}


TREES = st.dictionaries(PATHS, st.one_of(FILES, LINKS), min_size=1, max_size=8).map(without_conflicts)
ATTRIBUTES = st.dictionaries(st.sampled_from([b"", b"src/", b"a/"]), RULES, max_size=2)


def quoted(path: bytes) -> bytes:
    return b'"' + path.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def imported(
    folder: Path,
    trees: list[dict[bytes, tuple[bytes, bytes]]],
    *,
    kind: str,
    link: tuple[bytes, str] | None,
    merge: bool,
) -> str:
    """A repository whose commits have these trees; the newest one has a submodule at `link`, and may be a merge."""
    git = ("git", "-C", str(folder))
    subprocess.run(
        ("git", "init", "--quiet", "--initial-branch=main", f"--object-format={kind}", str(folder)), check=True
    )
    stream = b""
    for number, tree in enumerate(trees):
        stream += b"commit refs/heads/main\nmark :%d\ncommitter A <a@b> %d +0000\ndata 1\n%d" % (
            number + 1, 1_700_000_000 + number, number % 10,
        )  # fmt: skip
        stream += b"\nfrom :%d" % number if number else b""
        stream += b"\nmerge :%d" % (number - 1) if merge and number > 1 else b""
        stream += b"\ndeleteall\n"
        for path, (mode, data) in tree.items():
            stream += b"M %b inline %b\ndata %d\n%b\n" % (mode, quoted(path), len(data), data)
        if link and number == len(trees) - 1:
            path, sha = link
            stream += b"M 160000 %b %b\n" % (sha.encode(), quoted(path))
        stream += b"\n"
    subprocess.run((*git, "fast-import", "--quiet"), input=stream, check=True)
    return subprocess.run((*git, "rev-parse", "main"), capture_output=True, text=True, check=True).stdout.strip()


@given(
    trees=st.lists(TREES, min_size=1, max_size=3),
    attributes=ATTRIBUTES,
    module=st.one_of(st.none(), TREES),
    kind=st.sampled_from(["sha1", "sha1", "sha256"]),
    merge=st.booleans(),
    data=st.data(),
)
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
def test_a_checkout_of_a_bundle_is_that_of_the_repository(
    trees: list[dict[bytes, tuple[bytes, bytes]]],
    attributes: dict[bytes, bytes],
    module: dict[bytes, tuple[bytes, bytes]] | None,
    kind: str,
    merge: bool,
    data: st.DataObject,
) -> None:
    newest = trees[-1]
    newest |= {
        place + b".gitattributes": (b"100644", rules) for place, rules in attributes.items() if place[:-1] not in newest
    }
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        link = None
        if module is not None:
            link = (
                b"src/mod" if b"src" not in newest else b"mod",
                imported(here / "inner", [module], kind=kind, link=None, merge=False),
            )
            newest[b".gitmodules"] = (
                b"100644", b'[submodule "m"]\n\tpath = %b\n\turl = %b\n' % (link[0], os.fsencode(here / "inner"))
            )  # fmt: skip
        sha = imported(here / "subject", trees, kind=kind, link=link, merge=merge)
        full = mirror(str(here / "subject"), here / "cache")
        places = sorted(
            {p for path in newest for p in (path, path.rpartition(b"/")[0]) if p} | ({link[0]} if link else set())
        )
        chosen = data.draw(st.lists(st.sampled_from(places), max_size=2, unique=True))
        paths = tuple(os.fsdecode(path) for path in chosen)
        made = bundle.make(full, sha, paths, here / "bundles")
        partial = mirror(str(made.path), here / "node", needs=sha)
        assert checked_out(partial, sha, paths, here / "two") == checked_out(full, sha, paths, here / "one")
        assert partial.resolve(sha, branch="main") == dataclasses.replace(full.resolve(sha), position=None)
        for path in paths:
            assert partial.tree(sha, (path,)) == full.tree(sha, (path,)) is not None
            assert partial.blob(sha, path) == full.blob(sha, path)
        assert partial.tree(sha, paths) == full.tree(sha, paths)
        assert partial.tree(sha, ("no such",)) is None


def test_how_lines_end_is_said_by_files_above_the_paths(repository: Repository, cache: Path, node: Path) -> None:
    files: dict[str, str | None] = {".gitattributes": "*.txt text eol=crlf\n", "secret": "x", "deep/down/a.txt": "1\n"}
    sha = repository.commit(files | {"deep/.gitattributes": "*.py text eol=crlf\n", "deep/down/b.py": "1\n"})
    made = bundle.make(mirror(str(repository.folder), cache), sha, ("deep/down",), cache / "bundles")
    found = checked_out(mirror(str(made.path), node), sha, ("deep/down",), node / "tree")
    assert found == {b"deep/down/a.txt": ("-", b"1\r\n"), b"deep/down/b.py": ("-", b"1\r\n")}


def test_a_bundle_has_no_contents_but_those_below_the_paths(repository: Repository, cache: Path, node: Path) -> None:
    repository.commit({"kernels/a": "old", "private/key": "confidential"})
    sha = repository.commit({"kernels/a": "new", "kernels2/b": "other"})
    made = bundle.make(mirror(str(repository.folder), cache), sha, ("kernels",), cache / "bundles")
    found = mirror(str(made.path), node)
    assert found.partial
    assert found.blob(sha, "kernels/a") == b"new"
    for path in ("private/key", "kernels2/b"):
        assert found.blob(sha, path) is None
    objects = repository.git("-C", str(found.folder), "cat-file", "--batch-all-objects", "--batch-check=%(objecttype)")
    assert sorted(objects.split()) == ["blob", "commit", *["tree"] * 4]
    with pytest.raises(SourceError, match="has one commit and no branches"):
        found.branch("main")


def test_git_has_a_short_history_in_a_checkout_of_a_bundle(repository: Repository, cache: Path, node: Path) -> None:
    parent = repository.commit({"kernels/a": "1"})
    sha = repository.commit({"kernels/a": "2"}, "Second")
    made = bundle.make(mirror(str(repository.folder), cache), sha, ("kernels", "gone"), cache / "bundles")
    found = mirror(str(made.path), node)
    assert found.resolve("HEAD").parents == (parent,)
    assert found.tree(sha, ("gone",)) is None
    with worktree(found, sha, ("kernels",), node / "tree") as tree:
        assert repository.git("-C", str(tree), "log", "--format=%H %s") == f"{sha} Second"
        assert repository.git("-C", str(tree), "rev-list", "--count", "HEAD") == "1"
        assert repository.git("-C", str(tree), "describe", "--always", "--dirty") == sha[:7]


def test_a_lock_file_brings_what_it_includes(repository: Repository, cache: Path, node: Path) -> None:
    sha = repository.commit(
        {
            "kernels/a": "1",
            "locks/gpu.txt": "-r ../base.txt\n--constraint=pins/all.txt\n-r gone.txt\n",
            "base.txt": "numpy\n",
            "locks/pins/all.txt": "numpy==2\n",
            "other.txt": "-r ../../outside.txt",
        }
    )
    made = bundle.make(mirror(str(repository.folder), cache), sha, ("kernels", "locks/gpu.txt"), cache / "bundles")
    found = mirror(str(made.path), node)
    assert found.blob(sha, "base.txt") == b"numpy\n"
    assert found.blob(sha, "locks/pins/all.txt") == b"numpy==2\n"
    assert found.blob(sha, "other.txt") is None
    assert names_of(checked_out(found, sha, ("kernels", "locks/gpu.txt"), node / "tree")) == {
        "kernels/a",
        "locks/gpu.txt",
    }


def test_submodules_lie_in_the_same_bundle(repository: Repository, cache: Path, node: Path, tmp_path: Path) -> None:
    inner = Repository(tmp_path / "inner")
    inner.commit({"deep.h": "0"})
    outer = Repository(tmp_path / "library")
    outer.commit({"lib.h": "1"})
    outer.git("submodule", "--quiet", "add", "../inner", "third_party/inner")
    outer.commit({})
    repository.commit({"kernels/a.cu": "1"})
    repository.git("submodule", "--quiet", "add", str(outer.folder), "kernels/library")
    repository.git("submodule", "--quiet", "add", str(outer.folder), "elsewhere")
    sha = repository.commit({})
    full = mirror(str(repository.folder), cache)
    made = bundle.make(full, sha, ("kernels",), cache / "bundles")
    expected = checked_out(full, sha, ("kernels",), cache / "tree")
    for gone in (repository, outer, inner):
        gone.folder.rename(gone.folder.with_suffix(".away"))
    found = checked_out(mirror(str(made.path), node, needs=sha), sha, ("kernels",), node / "tree")
    assert found == expected
    assert b"kernels/library/third_party/inner/deep.h" in found
    assert len(list((node / "repositories").glob("*.git"))) == 1


def test_a_suite_is_measured_from_a_bundle_alone(tmp_path: Path) -> None:
    subject = a_subject(tmp_path)
    subject.repository.commit({"benchmarks/bench_sort.py": "raise SystemExit"})
    sha = subject.repository.commit({"benchmarks/bench_sort.py": BENCHMARK, "conftest.py": "raise SystemExit"})
    made = bundle.make(
        mirror(str(subject.repository.folder), tmp_path / "control"), sha, ("benchmarks",), tmp_path / "b"
    )
    subject.repository.folder.rename(tmp_path / "away")
    job = dataclasses.replace(subject.job(sha, paths=("benchmarks",), position=2, expect=()), repository=str(made.path))
    (path,) = suite.run(job, subject.settings, out=subject.out, echo=subject.told.append)
    run = artifact.read(path).run
    assert (run.status, run.commit.sha, run.commit.position) == (RunStatus.OK, sha, 2), subject.told
    assert len(run.measurements) == 2


# ------------------------------------------------------------------------------------------ made once


def test_a_bundle_is_named_by_its_contents_and_made_once(repository: Repository, cache: Path, tmp_path: Path) -> None:
    shas = [repository.commit({"kernels/a": str(n), "b": "1"}) for n in range(2)]
    full = mirror(str(repository.folder), cache)
    made = bundle.make(full, shas[1], ("kernels", "b"), tmp_path / "bundles")
    assert made.path == tmp_path / "bundles" / f"{hashlib.sha256(made.path.read_bytes()).hexdigest()}.bundle"
    assert made.bytes == made.path.stat().st_size
    number = made.path.stat().st_ino
    assert bundle.make(full, shas[1], ("b", "./kernels/", "b"), tmp_path / "bundles") == made
    assert made.path.stat().st_ino == number, "found, not made anew"
    assert bundle.make(full, shas[0], ("kernels", "b"), tmp_path / "bundles").sha256 != made.sha256
    repository.git("gc", "--quiet", "--aggressive", "--prune=now")
    again = bundle.make(
        mirror(str(repository.folder), tmp_path / "other"), shas[1], ("kernels", "b"), tmp_path / "more"
    )
    assert again.sha256 == made.sha256, "the same from another mirror"
    made.path.unlink()
    assert bundle.make(full, shas[1], ("kernels", "b"), tmp_path / "bundles") == made
    assert made.path.is_file()


def test_makers_and_nodes_at_once_share_one_file(
    repository: Repository, cache: Path, node: Path, tmp_path: Path
) -> None:
    sha = repository.commit({"a": "1"})
    program = (
        "import sys; from pathlib import Path; from perfci.bench import bundle, source, checkout\n"
        "repository, sha, cache, bundles, node, tree = sys.argv[1:]\n"
        "made = bundle.make(source.mirror(repository, Path(cache)), sha, ('a',), Path(bundles))\n"
        "with checkout.worktree(source.mirror(str(made.path), Path(node)), sha, ('a',), Path(tree)) as there:\n"
        "    print(made.sha256, (there / 'a').read_text())\n"
    )

    def told(n: int) -> str:
        places = [str(cache), str(tmp_path / "bundles"), str(node), str(tmp_path / f"tree{n}")]
        command = [sys.executable, "-c", program, str(repository.folder), sha, *places]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout or done.stderr

    with ThreadPoolExecutor() as pool:
        answers = set(pool.map(told, range(4)))
    (path,) = (tmp_path / "bundles").glob("*.bundle")
    assert answers == {f"{path.stem} 1\n"}
    assert not list((tmp_path / "bundles").glob(".new-*"))


def test_old_bundles_are_trimmed_and_those_that_a_job_may_wait_for_are_not(
    repository: Repository, cache: Path, tmp_path: Path
) -> None:
    day, now = 86400.0, 2_000_000_000.0
    full, folder = mirror(str(repository.commit({"a": "0"}) and repository.folder), cache), tmp_path / "bundles"
    made = {}
    for age in (0, 2, 5, 6, 40):
        sha = repository.commit({"a": str(age)})
        full = mirror(str(repository.folder), cache)
        made[age] = bundle.make(full, sha, ("a",), folder).path
    for age, path in made.items():
        os.utime(path, (now - age * day, now - age * day))
    assert bundle.trim(folder, now=now) == (made[40],)
    assert bundle.trim(folder, now=now, keep=1) == (made[5], made[6]), "the one of two days ago may be waited for"
    assert sorted(folder.glob("*.bundle")) == sorted((made[0], made[2]))
    assert bundle.make(full, sha, ("a",), folder).path == made[40], "made again when it is asked for"


def test_a_node_keeps_what_it_uses_and_the_newest_of_what_it_unpacked(
    repository: Repository, cache: Path, node: Path
) -> None:
    folders = []
    for number in range(bundle_file.KEPT_UNPACKED + 3):
        sha = repository.commit({"a": str(number)})
        made = bundle.make(mirror(str(repository.folder), cache), sha, (), cache / "bundles")
        found = mirror(str(made.path), node)
        folders.append(found.folder)
        if number == 0:
            in_use = worktree(found, sha, (), node / "tree")
            in_use.__enter__()
    for age, folder in enumerate(reversed(folders), 1):
        os.utime(folder, (time.time() - age * 86400, time.time() - age * 86400))
    (node / "repositories" / "bundle-other.new").mkdir()
    found.folder.rename(found.folder.with_suffix(".new"))  # as a run leaves it that was killed in between
    mirror(str(made.path), node)
    gone = [folder for folder in folders if not folder.exists()]
    assert gone == folders[1:3], "the oldest has a worktree"
    assert not list((node / "repositories").glob("*.new")), "nor what another killed run left"
    in_use.__exit__(None, None, None)


def test_without_room_there_is_one_line_and_no_half_bundle(repository: Repository, cache: Path, tmp_path: Path) -> None:
    sha = repository.commit({"a": "1"})
    full = mirror(str(repository.folder), cache)
    (tmp_path / "bundles").write_text("in the way")
    with pytest.raises(SourceError, match=r"make room for .*bundles"):
        bundle.make(full, sha, (), tmp_path / "bundles")
    with pytest.raises(SourceError):
        bundle.make(full, "0" * 40, (), tmp_path / "more")
    assert not list((tmp_path / "more").glob("*.bundle"))


def test_a_full_disk_is_told_as_one_on_either_side(repository: Repository, cache: Path, tmp_path: Path) -> None:
    (repository.folder / "large").write_bytes(random.Random(1).randbytes(2_000_000))
    sha = repository.commit({"a": "1"})
    full = mirror(str(repository.folder), cache)
    made = bundle.make(full, sha, (), cache / "bundles")
    program = (
        "import sys; from pathlib import Path; from perfci.bench import bundle, source; from perfci.errors import *\n"
        "repository, cache, sha, made, disk = sys.argv[1:]\n"
        "for step in (lambda: bundle.make(source.mirror(repository, Path(cache)), sha, ('large',), Path(disk)),\n"
        "             lambda: source.mirror(made, Path(disk))):\n"
        "    try: step()\n"
        "    except SourceError as error: print(error)\n"
    )
    with small_disk(tmp_path / "disk", size="1m") as disk:
        arguments = [str(repository.folder), str(cache), sha, str(made.path), str(disk.folder)]
        command = [*disk.prefix, sys.executable, "-c", program, *arguments]
        said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()
        assert len(said) == 2, said
        for line in said:
            assert re.search(r"(No space left on device|Out of diskspace); make room for .*/disk", line), line
        left = {path.name for path in disk.seen_from_outside.rglob("*") if path.is_file() and path.suffix != ".lock"}
        assert left == set(), "nothing half-made stays"


# ------------------------------------------------------------------------------------------ damaged and hostile ones


def refusal(path: Path, node: Path) -> str:
    with pytest.raises(SourceError) as caught:
        mirror(str(path), node)
    assert "\n" not in str(caught.value)
    assert not list((node / "repositories").glob("*.git")), "nothing of it stays"
    assert not list((node / "repositories").glob("*.new"))
    return str(caught.value)


def test_a_damaged_bundle_is_refused_in_one_line(
    repository: Repository, cache: Path, node: Path, tmp_path: Path
) -> None:
    sha = repository.commit({"a": "".join(map(str, range(2000)))})
    made = bundle.make(mirror(str(repository.folder), cache), sha, ("a",), cache / "bundles")
    whole, file = made.path.read_bytes(), tmp_path / "x.bundle"
    start = whole.index(b"PACK")
    magic, line = whole[:start].splitlines(keepends=True)
    body = json.loads(line)
    flipped = bytearray(whole)
    flipped[start + 60] ^= 1
    for damage in (
        whole[:-1],
        whole[: start + 40],
        whole[:start],
        bytes(flipped),
        whole + b"more",
        magic,
        magic + b"[]\n" + whole[start:],
        magic + b"[" * 100_000 + b"\n",
        magic + json.dumps(body | {"commit": "../../x"}).encode() + b"\n" + whole[start:],
        magic + json.dumps(body | {"commit": "0" * 40}).encode() + b"\n" + whole[start:],
        magic + json.dumps(body | {"object_format": "sha256"}).encode() + b"\n" + whole[start:],
        magic + json.dumps(body | {"paths": 7}).encode() + b"\n" + whole[start:],
    ):
        file.write_bytes(damage)
        assert "is a damaged source bundle" in refusal(file, node)
    file.write_bytes(whole)
    assert mirror(str(file), node).resolve(sha).sha == sha
    with pytest.raises(SourceError, match="no revision"):
        mirror(str(file), node).resolve("1" * 40)


def test_a_bundle_that_lacks_what_it_promises_is_refused(
    repository: Repository, cache: Path, node: Path, tmp_path: Path
) -> None:
    sha = repository.commit({"a/b": "1", "c/d": "2"})
    whole = bundle.make(mirror(str(repository.folder), cache), sha, ("a",), cache / "bundles").path.read_bytes()
    file = tmp_path / "x.bundle"
    file.write_bytes(whole.replace(b'"paths": ["a"]', b'"paths": ["c"]'))
    assert "missing from commit" in refusal(file, node)


def test_a_tree_that_would_write_outside_is_refused(repository: Repository, cache: Path, node: Path) -> None:
    repository.commit({"a": "1"})
    blob = repository.git("hash-object", "-w", "a")
    for name in (b"..", b".git"):
        inner = raw_tree(repository, [(b"100644", b"config", blob)])
        tree = raw_tree(repository, [(b"40000", name, inner)])
        sha = repository.git("commit-tree", "-m", "Hostile", tree)
        repository.git("update-ref", "refs/heads/main", sha)
        made = bundle.make(mirror(str(repository.folder), cache), sha, (), cache / "bundles")
        with (
            pytest.raises(SourceError) as caught,
            worktree(mirror(str(made.path), node), sha, (), node / "deep" / "tree"),
        ):
            pass
        assert "invalid path" in str(caught.value)
        assert not (node / "deep" / "config").exists()


def raw_tree(repository: Repository, entries: list[tuple[bytes, bytes, str]]) -> str:
    """Without what git checks."""
    data = b"".join(b"%b %b\0%b" % (mode, name, bytes.fromhex(sha)) for mode, name, sha in entries)
    (repository.folder / "tree.raw").write_bytes(data)
    return repository.git("hash-object", "-t", "tree", "-w", "--literally", "tree.raw")
