"""A commit measured in real processes: what a good one gives, and what every kind of bad one gives."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from perfci import artifact
from perfci.bench import suite
from perfci.errors import SuiteError
from perfci.model import Clock, Origin, RunStatus, Status
from tests.bench.jobs import BENCHMARK, Subject, a_subject, rows

SORT = "benchmarks/bench_sort.py::test_sort[10]"
LOST = ("lost", "megakernel")


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    return a_subject(tmp_path)


# ------------------------------------------------------------------------------------------ a plain suite


def test_an_unrelated_repository_is_measured_and_its_numbers_are_unverified(subject: Subject) -> None:
    """What surrounds the suite does not leak into it: not the settings of a pyproject.toml above, not its `perfci`."""
    (subject.root / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--no-such-option'")
    (subject.root / "conftest.py").write_text("raise SystemExit('a conftest.py of somebody else')")
    subject.repository.commit({"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--no-such-option'"})
    sha = subject.repository.commit(
        {
            "benchmarks/bench_sort.py": BENCHMARK + "\ndef test_plain():\n    pass\n",
            "perfci/__init__.py": "raise SystemExit('the subject measures itself')",
            "benchmarks/speed.py": "raise SystemExit('nobody imports this')",
        },
        "Sort",
    )
    first, second = subject.run(
        sha,
        runs=2,
        first_index=4,
        paths=("benchmarks", "perfci"),
        run="pytest benchmarks/bench_sort.py",
        expect=((SORT, "suite"),),
    )
    for run, index in ((first, 4), (second, 5)):
        assert (run.status, run.reason, run.log_tail) == (RunStatus.OK, "", "")
        assert (run.suite, run.session, run.index, run.origin) == ("subject", "s1", index, Origin.MEASURED)
        assert (run.commit.sha, run.commit.position, run.commit.subject) == (sha, 2, "Sort")
        assert list(rows(run)) == [SORT, SORT.replace("10", "1000")], "an ordinary test is no benchmark"
        for measurement in run.measurements:
            assert (measurement.status, measurement.verified, measurement.implementation) == (Status.OK, False, "suite")
            assert measurement.timing is not None
            assert (len(measurement.timing.samples), measurement.timing.clock) == (20, Clock.FOREIGN)
        assert run.hardware.name
        assert run.node.name
        assert run.environment.python == sys.version.split()[0]
        assert run.harness.startswith("perfci/")
        assert run.started_at < run.finished_at
    assert first.finished_at <= second.started_at, "one after the other"
    assert rows(first)[SORT].timing != rows(second)[SORT].timing
    assert any("process 2 of 2" in line for line in subject.told)
    assert subject.left() == []


def test_a_bundle_file_is_measured_like_its_repository(subject: Subject) -> None:
    sha = subject.repository.commit({"benchmarks/bench_sort.py": BENCHMARK})
    subject.repository.git("bundle", "create", "--quiet", str(subject.root / "s.bundle"), "--all")
    job = subject.job(sha, paths=("benchmarks",), position=17)
    shutil.rmtree(subject.repository.folder)
    job = suite.Job(
        **{field: getattr(job, field) for field in job.__slots__} | {"repository": str(subject.root / "s.bundle")}
    )
    (path,) = suite.run(job, subject.settings, out=subject.out, echo=subject.told.append)
    run = artifact.read(path).run
    assert (run.status, run.commit.position) == (RunStatus.OK, 17), run.reason


def test_a_wrong_result_and_a_skipped_one_are_told_beside_the_good_ones(subject: Subject) -> None:
    sha = subject.repository.commit(
        {
            "benchmarks/bench_all.py": """
import pytest
def once(benchmark, function): return benchmark.pedantic(function, rounds=3, iterations=100)
def test_good(benchmark): once(benchmark, list)
def test_raises(benchmark): once(benchmark, lambda: 1 / 0)
def test_wrong(benchmark): assert once(benchmark, list) == [1]
def test_skipped(benchmark): pytest.skip("no tensor cores here")
def test_once(benchmark): benchmark.pedantic(sorted, args=(list(range(1000)),), rounds=1)
"""
        }
    )
    run = subject.run(sha, expect=(LOST,))[0]
    assert run.status is RunStatus.OK
    found = {name.rpartition("::")[2]: m for name, m in rows(run).items()}
    assert {name: m.status for name, m in found.items()} == {
        "test_good": Status.OK,
        "test_once": Status.OK,
        "test_raises": Status.ERROR,
        "test_wrong": Status.INCORRECT,
        "test_skipped": Status.UNSUPPORTED,
        "lost": Status.MISSING,
    }
    assert "ZeroDivisionError" in found["test_raises"].reason
    assert found["test_skipped"].reason == "no tensor cores here"
    assert found["lost"].implementation == "megakernel"
    assert found["test_once"].reason == "one round: its noise is unknown"
    assert not any(m.verified for m in run.measurements)


# ------------------------------------------------------------------------------------------ suites that go wrong


@pytest.mark.parametrize(
    ("command", "status", "reason"),
    [
        ("true", Status.ERROR, "left no report; the suite wrote no results: the process ended with exit code 0"),
        ("echo boom; exit 7", Status.ERROR, "ended with exit code 7"),
        ("kill -SEGV $$", Status.ERROR, "ended by SIGSEGV"),
        ("kill -KILL $$", Status.ERROR, "ended by SIGKILL (out of memory?)"),
        ("no-such-program", Status.ERROR, "ended with exit code 127"),
        ("echo started; sleep 600", Status.TIMEOUT, "killed after 1 s, its time limit"),
        ("pytest no/such/file.py", Status.ERROR, "no/such/file.py"),
        ("pytest .", Status.ERROR, "nothing was collected"),
        ("pytest --no-such-option", Status.ERROR, "exit code 4"),
        ("pytest broken_syntax.py", Status.ERROR, "broken_syntax.py: it could not be collected"),
        ("pytest plain.py", Status.ERROR, "no benchmark ran"),
        ("pytest -k nothing plain.py", Status.ERROR, "nothing was collected"),
    ],
)
def test_a_suite_that_goes_wrong_gives_every_expected_name_a_status(
    subject: Subject, command: str, status: Status, reason: str
) -> None:
    sha = subject.repository.commit({"broken_syntax.py": "def test(:", "plain.py": "def test_plain(): pass"})
    timeout_s = 1.0 if status is Status.TIMEOUT else 120.0
    run = subject.run(sha, run=command, timeout_s=timeout_s, expect=((SORT, "suite"), LOST))[0]
    assert run.status is (RunStatus.TIMEOUT if status is Status.TIMEOUT else RunStatus.ERROR)
    assert [(m.workload.name, m.implementation, m.status) for m in run.measurements] == [
        (SORT, "suite", status),
        (*LOST, status),
    ]
    assert reason in run.reason
    assert all(m.reason == run.reason for m in run.measurements)
    assert run.log_tail or command in ("true", "kill -SEGV $$", "kill -KILL $$")
    assert subject.left() == []


@pytest.mark.parametrize("option", ["--benchmark-disable", "--benchmark-skip"])
def test_a_suite_that_times_nothing_misses_what_it_collected(subject: Subject, option: str) -> None:
    sha = subject.repository.commit({"benchmarks/bench_sort.py": BENCHMARK})
    run = subject.run(sha, run=f"pytest {option} benchmarks/bench_sort.py", expect=(LOST,))[0]
    assert run.status is RunStatus.OK
    assert {m.status for m in run.measurements} <= {Status.MISSING, Status.UNSUPPORTED}
    assert set(rows(run)) == {SORT, SORT.replace("10", "1000"), "lost"}
    assert all(m.reason for m in run.measurements)


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        ('{"benchmarks": []', "the results file is no pytest-benchmark result: line 1"),
        ('{"benchmarks": []}', "left no report"),
        ('{"something": "else"}', "the file has no 'benchmarks'"),
        ("\\0\\377", "not"),
    ],
)
def test_results_that_cannot_be_read_are_told(subject: Subject, results: str, reason: str) -> None:
    """The command finds its results file where pytest would: in PYTEST_ADDOPTS."""
    sha = subject.repository.commit({"a": "1"})
    command = f"""file=${{PYTEST_ADDOPTS##*--benchmark-json=}}; printf '{results}' > "$file" """
    run = subject.run(sha, run=command, expect=(LOST,))[0]
    assert run.status is RunStatus.ERROR
    assert reason in run.reason
    assert rows(run)["lost"].status is Status.ERROR


@pytest.mark.parametrize("report", ['{"version": 1', "[]", '{"version": 2}', '{"version": 1, "hardware": {"name": 7}}'])
def test_a_report_that_is_not_perfcis_is_told(subject: Subject, report: str) -> None:
    sha = subject.repository.commit({"a": "1"})
    run = subject.run(sha, run=f"printf '{report}' > $PERFCI_REPORT; false", expect=(LOST,))[0]
    assert run.status is RunStatus.ERROR
    assert "the process's report cannot be used" in run.reason


@pytest.mark.parametrize("make", ["mkfifo", "mkdir", "ln -s /dev/zero"])
@pytest.mark.parametrize("which", ["$PERFCI_REPORT", '"${PYTEST_ADDOPTS##*--benchmark-json=}"'])
def test_a_result_that_is_no_file_is_told_and_not_waited_for(subject: Subject, make: str, which: str) -> None:
    sha = subject.repository.commit({"a": "1"})
    run = subject.run(sha, run=f"{make} {which}", expect=(LOST,))[0]
    assert run.status is RunStatus.ERROR
    assert rows(run)["lost"].status is Status.ERROR


def test_what_a_reason_holds_can_be_shown_on_a_terminal(subject: Subject) -> None:
    said = "\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m\x9b31m \u202eback\x00\r\nnext\tline\x7f"
    test = f"def test_it(benchmark):\n    benchmark(list)\n    raise ValueError({said!r})\n"
    sha = subject.repository.commit({"test_it.py": test})
    (path,) = suite.run(subject.job(sha, run="pytest test_it.py"), subject.settings, out=subject.out, echo=print)
    found = rows(artifact.read(path).run)["test_it.py::test_it"]
    assert found.status is Status.ERROR
    assert found.reason.startswith("ValueError: red\ufffd31m \ufffdback")
    assert all(c.isprintable() or c in "\n\t" for c in found.reason)


def test_a_full_disk_is_no_fault_of_the_commit(subject: Subject) -> None:
    sha = subject.repository.commit({"a": "1"})
    with pytest.raises(SuiteError, match="No space left on device"):
        subject.run(sha, run="echo 'OSError: [Errno 28] No space left on device'; exit 1")
    assert not subject.out.exists()


def test_a_command_that_only_writes_results_is_believed_as_unverified(subject: Subject) -> None:
    """E.g. a container in which perfci's plugin is not."""
    sha = subject.repository.commit({"r.json": '{"benchmarks": [{"fullname": "x", "stats": {"data": [0.5, 0.25]}}]}'})
    run = subject.run(sha, run='cat r.json > "${PYTEST_ADDOPTS##*--benchmark-json=}"')[0]
    assert (run.status, rows(run)["x"].status, rows(run)["x"].verified) == (RunStatus.OK, Status.OK, False)
    assert run.hardware.name


def test_the_next_process_runs_after_a_bad_one(subject: Subject) -> None:
    sha = subject.repository.commit({"benchmarks/bench_sort.py": BENCHMARK})
    command = "test $PERFCI_INDEX = 0 && exit 9; pytest benchmarks/bench_sort.py"
    bad, good = subject.run(sha, run=command, runs=2, expect=((SORT, "suite"),))
    assert (bad.status, good.status) == (RunStatus.ERROR, RunStatus.OK)
    assert rows(good)[SORT].status is Status.OK


def test_a_suite_whose_paths_a_commit_lacks_cannot_be_built_there(subject: Subject) -> None:
    sha = subject.repository.commit({"a": "1"})
    run = subject.run(sha, paths=("a", "kernels"), expect=(LOST,))[0]
    assert run.status is RunStatus.BUILD_FAILED
    assert run.reason == f"paths: kernels does not exist at commit {sha[:12]}"
