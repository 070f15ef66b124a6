"""What a measured process found: its exit, perfci's report and the suite's own results, made into measurements.

Nothing that was expected or collected is left out: where there is no number there is a status and a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfci.bench import process_report
from perfci.bench.process import Ended
from perfci.bench.process_report import Pair, ProcessReport, line, unmeasured
from perfci.errors import ArtifactError
from perfci.model import Measurement, RunStatus, Status
from perfci.readers import pytest_benchmark
from perfci.readers.pytest_benchmark import FOREIGN_IMPLEMENTATION, Results

# What became of a name that a process of this status says nothing about.
_SILENT: Mapping[RunStatus, Status] = {
    RunStatus.OK: Status.MISSING,
    RunStatus.ERROR: Status.ERROR,
    RunStatus.TIMEOUT: Status.TIMEOUT,
    RunStatus.BUILD_FAILED: Status.BUILD_FAILED,
}
# pytest's exit codes beyond 0 and 1 (some tests failed, which is told test by test).
_PYTEST = {
    2: "pytest was interrupted",
    3: "pytest failed inside",
    4: "pytest refused its options",
    5: "nothing was collected",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a Run says about its process, and the report if there is one."""

    status: RunStatus
    reason: str
    measurements: tuple[Measurement, ...]
    report: ProcessReport | None = None


def failed(status: RunStatus, reason: str, expect: Iterable[Pair]) -> Outcome:
    """Nothing ran: every expected name gets the status."""
    found = tuple(unmeasured(pair, _SILENT[status], reason) for pair in dict.fromkeys(expect))
    return Outcome(status, reason, found)


def judge(ended: Ended, report_path: Path, results_path: Path, *, expect: Sequence[Pair]) -> Outcome:
    """Merge what a process left behind. A number that perfci's plugin took goes before the suite's own."""
    report, results, problems = None, None, []
    try:
        report = process_report.read(report_path)
        if not report.finished:
            problems.append("the process broke off")
    except ArtifactError as error:
        problems.append(error.message)
    try:
        results = _results(results_path, report)
    except ArtifactError as error:
        problems.append(error.message.replace(str(results_path), "the results file"))
    found = _numbers(report, results)
    _apply_failures(found, report)
    status, reason = _status(ended, report, results, problems=problems, found=bool(found))
    silent = _silence(ended, status, reason, report=report, found=len(found))
    for pair in (*_collected(report, status), *expect):
        found.setdefault(pair, unmeasured(pair, _SILENT[status], silent))
    return Outcome(status, reason, tuple(found.values()), report)


def _results(path: Path, report: ProcessReport | None) -> Results:
    """Raises ArtifactError. pytest-benchmark writes no file, old versions an empty one, when it timed nothing."""
    if path.is_file() and path.stat().st_size > 0:
        return pytest_benchmark.read(path)
    if report is None or not report.finished:
        raise ArtifactError("the suite wrote no results", next_step="look at the log's end")
    return Results(version="", measured_at=None, commit_sha="", committed_at=None, rows=())


def _numbers(report: ProcessReport | None, results: Results | None) -> dict[Pair, Measurement]:
    found: dict[Pair, Measurement] = {}
    for measurement in report.measurements if report else ():
        pair = (measurement.workload.name, measurement.implementation)
        twice = unmeasured(pair, Status.ERROR, "measured twice in one process: which one holds is not known")
        found[pair] = twice if pair in found else measurement
    for row in results.rows if results else ():
        # A row that calls itself perfci's without being in the report is the suite's own word.
        if not (row.own and report and row.name in report.rows):
            found.setdefault((row.name, FOREIGN_IMPLEMENTATION), row.measurement)
    return found


def _apply_failures(found: dict[Pair, Measurement], report: ProcessReport | None) -> None:
    """A test that failed after its number was taken has no number: the check that failed may be of its output.

    A file that could not be collected is no benchmark; its failure is a reason for those that were expected of it.
    """
    if report is None:
        return
    for node, (told, reason) in report.failures.items():
        if node not in report.rows and node not in report.collected:
            continue
        pair = report.rows.get(node, (node, FOREIGN_IMPLEMENTATION))
        status = Status.ERROR if told in (Status.OK, Status.CHECKED) else told
        known = found.get(pair)
        if known is None:
            found[pair] = unmeasured(pair, status, reason)
        elif known.status in (Status.OK, Status.CHECKED):
            found[pair] = replace(known, status=status, timing=None, verified=False, reason=reason)


def _status(
    ended: Ended, report: ProcessReport | None, results: Results | None, *, problems: Sequence[str], found: bool
) -> tuple[RunStatus, str]:
    if ended.timed_out:
        return RunStatus.TIMEOUT, f"the process was {ended.how()}, its time limit"
    if report and ended.code in _PYTEST:
        return RunStatus.ERROR, _last_words(ended, (_PYTEST[ended.code], *_uncollected(report)))
    if results is None:
        return RunStatus.ERROR, _last_words(ended, problems)
    if report is None and (ended.code != 0 or not results.rows):
        return RunStatus.ERROR, _last_words(ended, problems)
    if not found and not (report and report.collected):
        return RunStatus.ERROR, f"no benchmark ran: the process {ended.how()}"
    # A crash while Python shuts down comes after everything was measured and reported.
    return RunStatus.OK, f"everything was reported, then the process {ended.how()}" if ended.code > 1 else ""


def _last_words(ended: Ended, problems: Sequence[str]) -> str:
    said = f"; its last line: {line(ended.tail.splitlines()[-1])}" if ended.tail else ""
    return f"{'; '.join(problems)}: the process {ended.how()}{said}"


def _silence(ended: Ended, status: RunStatus, reason: str, *, report: ProcessReport | None, found: int) -> str:
    """Why a name has no result."""
    if status is not RunStatus.OK:
        return reason
    if not found and report and report.collected:
        return (
            f"{len(report.collected)} benchmarks were collected and none was timed: does the suite run with "
            "--benchmark-disable, --benchmark-skip, -n or a --benchmark-json of its own?"
        )
    return "; ".join((f"the suite {ended.how()} without it", f"{found} others were reported", *_uncollected(report)))


def _uncollected(report: ProcessReport | None) -> list[str]:
    if report is None:
        return []
    return [f"{n}: {r}" for n, (_, r) in report.failures.items() if n not in report.rows and n not in report.collected]


def _collected(report: ProcessReport | None, status: RunStatus) -> list[Pair]:
    """Rows that have to be there. A test that names its row itself has none if a broken process never came to it: what
    is expected of the suite says that it is absent, and a row under the test's own name would be another series."""
    if report is None:
        return []
    unnamed = report.measuring - report.rows.keys() if status is not RunStatus.OK else frozenset()
    return [report.rows.get(node, (node, FOREIGN_IMPLEMENTATION)) for node in report.collected if node not in unnamed]
