"""Builds and environments: made once for what they read, apart from each other, and never green when they fail."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import pytest

from perfci.bench import build as building
from perfci.config import HardwareRule
from perfci.model import RunStatus, Status
from tests.bench.jobs import BENCHMARK, Subject, a_subject, rows

C_BENCHMARK = """
import ctypes
from pathlib import Path
import native  # found in the checkout

def test_answer(benchmark):
    library = ctypes.CDLL(str(Path(__file__).parent.parent / "native" / "answer.so"))
    assert benchmark.pedantic(library.answer, rounds=5, iterations=10) == 42
"""
COMPILE = "cc -shared -fPIC -O2 -o native/answer.so native/answer.c"
NAME = "benchmarks/bench_c.py::test_answer"


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    return a_subject(tmp_path)


def test_a_commit_that_does_not_build_is_told_and_the_next_one_runs(subject: Subject) -> None:
    works = subject.repository.commit(
        {
            "native/__init__.py": "",
            "native/answer.c": "int answer(void) { return 42; }",
            "benchmarks/bench_c.py": C_BENCHMARK,
        }
    )
    broken = subject.repository.commit({"native/answer.c": "int answer(void) { return forty_two; }"})
    mended = subject.repository.commit({"native/answer.c": "int answer(void) { return 6 * 7; }"})
    fields = {"paths": ("native", "benchmarks"), "build": COMPILE}
    for sha in (works, mended):
        run = subject.run(sha, **fields)[0]
        assert (run.status, rows(run)[NAME].status) == (RunStatus.OK, Status.OK), run
        assert not rows(run)[NAME].verified
    runs = subject.run(broken, runs=3, expect=((NAME, "suite"),), **fields)
    assert len(runs) == 1, "nothing ran; three times the same would be no evidence"
    assert runs[0].status is RunStatus.BUILD_FAILED
    assert rows(runs[0])[NAME].status is Status.BUILD_FAILED
    assert "ended with exit code 1" in rows(runs[0])[NAME].reason
    assert "forty_two" in runs[0].log_tail
    assert any("forty_two" in line for line in subject.told), "a node without a database tells why, too"
    assert runs[0].hardware.name
    assert runs[0].node.name
    assert runs[0].environment.python == sys.version.split()[0]
    assert subject.left() == []


def test_a_build_is_made_once_for_what_it_reads(subject: Subject) -> None:
    """The build counts itself, in a file outside of everything."""
    counter = subject.root / "counter"
    command = f"echo built >> {counter} && mkdir -p out && ln -sf ../source.txt out/link && date > out/made"

    def built(sha: str, **fields: str) -> tuple[bool, int]:
        outcome = subject.build(sha, paths=("lib",), **({"build": command} | fields))
        assert outcome.ok, outcome
        return outcome.cached, len(counter.read_text().splitlines())

    first = subject.repository.commit({"lib/source.txt": "1", "docs/a": "1"})
    assert built(first) == (False, 1)
    assert built(first) == (True, 1)
    elsewhere = subject.repository.commit({"docs/a": "2"})
    assert built(elsewhere) == (True, 1), "the commit changed nothing that the build reads"
    changed = subject.repository.commit({"lib/source.txt": "2"})
    assert built(changed) == (False, 2)
    assert built(first) == (True, 2)
    assert built(first, build=f"{command} # again") == (False, 3)
    run = subject.run(first, paths=("lib",), build=command, run="ls -l out lib && false")[0]
    assert len(counter.read_text().splitlines()) == 3
    for name in ("link -> ../source.txt", "made", "source.txt"):
        assert name in run.log_tail
    assert subject.left() == []


def test_a_run_does_not_see_what_another_one_left(subject: Subject) -> None:
    sha = subject.repository.commit({"lib/a": "1"})
    fields = {
        "paths": ("lib",),
        "build": "echo built > lib/a",
        "run": "cat lib/a; ls lib; echo mess > lib/a; touch lib/b; false",
    }
    for _ in range(2):
        assert subject.run(sha, **fields)[0].log_tail == "built\na"


def test_a_failure_is_remembered_for_its_session_and_tried_again_in_the_next(subject: Subject) -> None:
    sha = subject.repository.commit({"lib/a": "1"})
    counter = subject.root / "counter"
    command = f"echo x >> {counter}; echo no room; exit 3"
    for session, times in (("one", 1), ("one", 1), ("two", 2)):
        outcome = subject.build(sha, build=command, session=session)
        assert (outcome.ok, outcome.log_tail) == (False, "no room")
        assert "exit code 3" in outcome.reason
        assert len(counter.read_text().splitlines()) == times


def test_a_build_that_takes_too_long_is_ended(subject: Subject) -> None:
    sha = subject.repository.commit({"lib/a": "1"})
    outcome = subject.build(sha, build="echo linking; sleep 600", timeout_s=1.0)
    assert not outcome.ok
    assert "killed after 1 s" in outcome.reason
    assert outcome.log_tail == "linking"


def test_without_a_compiler_the_log_says_so(subject: Subject) -> None:
    sha = subject.repository.commit({"native/answer.c": "int answer(void) { return 42; }"})
    here = subject.run(sha, run="true")[0].hardware.name
    subject.hardware[here] = HardwareRule(here, launch="/usr/bin/env PATH=/nowhere {cmd}")
    run = subject.run(sha, build=COMPILE, expect=((NAME, "suite"),))[0]
    assert run.status is RunStatus.BUILD_FAILED
    assert "exit code 127" in run.reason
    assert "cc: not found" in run.log_tail


@pytest.mark.slow
def test_what_a_build_installs_is_seen_by_its_own_commit_alone(subject: Subject) -> None:
    project = (
        "[build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n"
        "[project]\nname = 'perfci-test-subject'\nversion = '{}'\n"
        "[tool.setuptools]\npackages = ['perfci_test_subject']\n"
    )
    benchmark = (
        "import perfci_test_subject, pytest, sys\n"
        "@pytest.mark.parametrize('version', [perfci_test_subject.VERSION])\n"
        "def test_it(benchmark, version): benchmark.pedantic(len, args=('',), rounds=3, iterations=100)\n"
    )
    shas = [
        subject.repository.commit(
            {
                "pyproject.toml": project.format(version),
                "perfci_test_subject/__init__.py": f"VERSION = '{version}'",
                "benchmarks/bench_it.py": benchmark,
            }
        )
        for version in ("1.0", "2.0")
    ]
    # As with a compiled package: what lies in the checkout cannot be used, what was installed can.
    unusable = "echo 'raise SystemExit(1)' > perfci_test_subject/__init__.py"
    fields = {"build": f"pip install --quiet --no-build-isolation --no-deps . && {unusable}"}
    for sha in shas:
        assert subject.build(sha, **fields).ok, subject.told
    for sha, version in zip(shas, ("1.0", "2.0"), strict=True):
        run = subject.run(sha, **fields)[0]
        assert run.status is RunStatus.OK, run.log_tail
        assert list(rows(run)) == [f"benchmarks/bench_it.py::test_it[{version}]"]
    assert importlib.util.find_spec("perfci_test_subject") is None, "the runner's own environment is as it was"


def test_old_builds_make_room_for_new_ones(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "KEPT_BUILDS", 2)
    shas = [subject.repository.commit({"lib/a": str(n)}) for n in range(3)]
    for sha in shas:
        subject.build(sha, build="true")
    assert [subject.build(sha, build="true").cached for sha in (shas[2], shas[1], shas[0])] == [True, True, False]


# ------------------------------------------------------------------------------------------ environments


@pytest.mark.slow
def test_an_environment_is_made_from_a_lock_file_once(subject: Subject) -> None:
    """Also: what the lock includes counts, and perfci's plugin works where perfci is not installed."""
    pins = "".join(f"{p}=={importlib.metadata.version(p)}\n" for p in ("pytest", "pytest-benchmark"))
    sha = subject.repository.commit(
        {"benchmarks/bench_sort.py": BENCHMARK, "locks/all.txt": "-r pins.txt\n", "locks/pins.txt": pins}
    )
    fields = {"paths": ("benchmarks",), "environment": "locks/all.txt"}
    run = subject.run(sha, **fields)[0]
    assert run.status is RunStatus.OK, run
    assert {m.status for m in run.measurements} == {Status.OK}
    assert run.environment.torch == "", "the runner's torch is not seen"
    made = [p for p in (subject.settings.cache / "environments").iterdir() if p.is_dir()]
    assert any("installing" in line for line in subject.told)
    subject.told.clear()
    elsewhere = subject.repository.commit({"unrelated": "1"})
    run = subject.run(elsewhere, **(fields | {"run": "which pytest python; false"}))[0]
    assert run.log_tail.splitlines() == [str(made[0] / "bin" / "pytest"), str(made[0] / "bin" / "python")]
    assert not any("installing" in line for line in subject.told)
    without = subject.repository.commit({"locks/pins.txt": f"iniconfig=={importlib.metadata.version('iniconfig')}\n"})
    run = subject.run(without, expect=(("w", "suite"),), **fields)[0]
    assert rows(run)["w"].status is Status.BUILD_FAILED
    assert rows(run)["w"].reason == "results = 'pytest-benchmark' needs pytest, and locks/all.txt lacks it"


@pytest.mark.parametrize(
    ("lock", "reason"),
    [
        ("-e .\n", "lock.txt line 1 installs '.' from the checkout"),
        ("# x\n./vendored\n", "lock.txt line 2 installs './vendored' from the checkout"),
        ("own @ file:///somewhere\n", "from the checkout"),
        ("-r gone.txt\n", "the commit has no file gone.txt"),
        (None, "the commit has no file lock.txt"),
    ],
)
def test_a_lock_that_cannot_be_shared_or_found_is_a_failed_build(
    subject: Subject, lock: str | None, reason: str
) -> None:
    sha = subject.repository.commit({"a": "1"} if lock is None else {"lock.txt": lock})
    run = subject.run(sha, environment="lock.txt", expect=(("w", "suite"),))[0]
    assert run.status is RunStatus.BUILD_FAILED
    assert reason in run.reason
    assert rows(run)["w"].reason == run.reason


@pytest.mark.parametrize("way", ["-r {path}", "--constraint={path}", "-r more/../../../outside.txt"])
def test_a_lock_cannot_put_a_file_outside_of_its_environment(subject: Subject, tmp_path: Path, way: str) -> None:
    """The repository has a file by that name, with what it would like to be there."""
    outside = tmp_path / "outside" / "plugin.py"
    files = {"lock.txt": f"{way.format(path=outside)}\n", str(outside).lstrip("/"): "print('mine')\n"}
    run = subject.run(subject.repository.commit(files), environment="lock.txt", expect=(("w", "suite"),))[0]
    assert "which is not in the repository" in rows(run)["w"].reason
    assert not outside.parent.exists()


def test_a_lock_of_another_tool_is_a_failed_build(subject: Subject) -> None:
    sha = subject.repository.commit({"uv.lock": "version = 1"})
    assert "export it as requirements" in subject.build(sha, environment="uv.lock").reason


@pytest.mark.slow
def test_what_pip_refuses_is_told_with_the_logs_end_and_made_anew(subject: Subject) -> None:
    sha = subject.repository.commit({"lock.txt": "--no-index\nno-such-package-here==1\n"})
    for _ in range(2):
        outcome = subject.build(sha, environment="lock.txt")
        assert not outcome.ok
        assert "lock.txt could not be installed" in outcome.reason
        assert "no-such-package-here" in outcome.log_tail
        half_made = next(p for p in (subject.settings.cache / "environments").iterdir() if p.is_dir())
        (half_made / "bin" / "python").unlink()  # as a killed run may leave it
