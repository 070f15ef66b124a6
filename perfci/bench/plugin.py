"""The pytest plugin of the measured process: `-p perfci.bench.plugin`.

It gives a suite the fixture `measure`, hands the samples to pytest-benchmark through its documented API (a timer that
replays them), and writes a process report, whatever becomes of the tests: after each one that measured, so that a
process that is killed loses no more than the test that it was at, and whole when the session ends. Beside tests of
plain pytest-benchmark it only takes notes. It needs neither torch nor more than the standard library, pytest 7 and
pytest-benchmark 4; torch is imported when a case is measured.

Read from the environment, all optional: PERFCI_REPORT (path of the report), PERFCI_SEED (integer; without it, inputs
are other ones in every process).

With `--benchmark-disable` a case is checked and not timed: status `checked`, with that reason.
"""

from __future__ import annotations

import gc
import os
import secrets
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfci.bench import ledger as reporting
from perfci.bench import rules
from perfci.bench.case import Case, Facts, Measure
from perfci.bench.faults import CaseError, ClockError, IncorrectOutput
from perfci.bench.measured import MeasuredProcess
from perfci.model import Measurement, Status

_NOT_TIMED = "timing was switched off (--benchmark-disable)"


class Replay:
    """A timer for pytest-benchmark: read in pairs, the differences are the samples."""

    __name__ = "perfci_replay"  # what pytest-benchmark writes down as the timer

    def __init__(self) -> None:
        self._readings: Iterator[float] = iter(())

    def load(self, samples: Sequence[float]) -> None:
        self._readings = (reading for sample in samples for reading in (0.0, sample))

    def __call__(self) -> float:
        return next(self._readings, 0.0)


_PROCESS = pytest.StashKey[MeasuredProcess]()


def pytest_configure(config: pytest.Config) -> None:
    report = os.environ.get("PERFCI_REPORT")
    if report and getattr(config.option, "dist", "no") != "no":
        raise pytest.UsageError(
            "pytest-xdist runs tests beside each other, and perfci measures one at a time; take -n out of the command"
        )
    if report and not Path(report).parent.is_dir():
        raise pytest.UsageError(f"PERFCI_REPORT = {report}: there is no such folder; make it")
    config.stash[_PROCESS] = MeasuredProcess(report=Path(report) if report else None, seed=_seed())


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[_PROCESS].start()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Of the tests that measure: an ordinary test beside them has no number that could be missing."""
    measured = session.config.stash[_PROCESS]
    names = {item.nodeid: getattr(item, "fixturenames", ()) for item in session.items}
    measured.ledger.collected = [test for test, fixtures in names.items() if "benchmark" in fixtures]
    measured.ledger.measuring = [test for test, fixtures in names.items() if "measure" in fixtures]
    measured.save()


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, None]:
    outcome = yield
    report: pytest.CollectReport = outcome.get_result()
    ledger = collector.config.stash[_PROCESS].ledger
    if report.failed:
        ledger.fail(report.nodeid, Status.ERROR, f"it could not be collected: {_collection_error(report.longreprtext)}")
    elif report.skipped:
        ledger.fail(report.nodeid, Status.UNSUPPORTED, _skip_reason(report))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    names = getattr(item, "fixturenames", ())
    plain = "benchmark" in names and "measure" not in names
    with item.config.stash[_PROCESS].window() if plain else nullcontext():
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    ledger = item.config.stash[_PROCESS].ledger
    if report.when == "setup":
        ledger.forget(item.nodeid)
    if report.failed:
        raised = call.excinfo.value if call.excinfo is not None else None
        status, reason = _failure(raised, inside=ledger.is_open(item.nodeid), text=report.longreprtext)
        ledger.fail(item.nodeid, status, reason, error=getattr(raised, "error", None))
    elif report.skipped:
        ledger.fail(item.nodeid, Status.UNSUPPORTED, _skip_reason(report))
    if report.when == "teardown" and ledger.holds(item.nodeid):  # what comes after a number may yet take it back
        item.config.stash[_PROCESS].save()


@pytest.hookimpl(
    hookwrapper=True, tryfirst=True
)  # first: another plugin's end may fail, and this report must not be lost
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, Any, None]:
    measured = session.config.stash[_PROCESS]
    try:
        measured.finish()
    except OSError as error:
        pytest.exit(f"PERFCI_REPORT = {measured.report}: {error.strerror}; give it a writable folder", returncode=2)
    yield


@pytest.fixture
def perfci_replay(request: pytest.FixtureRequest) -> Replay:
    """The timer that pytest-benchmark uses in this test: set by its own mark, before its fixture is made."""
    replay = Replay()
    mark = request.node.get_closest_marker("benchmark")
    options = {**(mark.kwargs if mark else {}), "timer": replay}
    request.node.add_marker(pytest.mark.benchmark(**options), append=False)
    return replay


@pytest.fixture
def measure(request: pytest.FixtureRequest, perfci_replay: Replay, benchmark: Any) -> Iterator[Measure]:
    """Checks and times one case: see perfci.bench.case."""
    process = request.config.stash[_PROCESS]
    test = request.node.nodeid

    def run(case: Case) -> None:
        process.ledger.open(test, case)
        process.save()
        if case.unsupported:
            pytest.skip(case.unsupported)
        measurement = _measured(process, case, timed=benchmark.enabled)
        if measurement.timing is not None:
            _hand_over(measurement, perfci_replay, benchmark)
        process.ledger.close(test, measurement)
        if measurement.timing is not None and case.trace is not None:
            process.save()  # a trace that takes the process down leaves the number
            process.ledger.close(test, replace(measurement, extras={**_traced(case.trace), **measurement.extras}))

    yield run
    # A case that is only checked, unsupported or wrong had nothing to hand over. Holds for this test alone: pytest
    # keeps a test's filters apart.
    warnings.filterwarnings("ignore", message="Benchmark fixture was not used")
    _release()


def _measured(process: MeasuredProcess, case: Case, *, timed: bool) -> Measurement:
    if case.check_only is not None:
        return _checked_only(case)
    from perfci.bench import gate  # noqa: PLC0415  needs torch

    checked = gate.check(case, seed=process.seed)
    if timed:
        return gate.measure(checked, rates=process.rates(), window=process.window)
    return gate.not_timed(checked, reason=_NOT_TIMED)


def _checked_only(case: Case) -> Measurement:
    assert case.check_only is not None
    try:
        facts = case.check_only.check()
    except AssertionError as error:
        raise IncorrectOutput(str(error) or "its own check failed") from error
    return Measurement(
        workload=case.workload,
        implementation=case.implementation,
        status=Status.CHECKED,
        verified=True,
        reason=case.check_only.reason,
        extras=facts,
    )


def _traced(trace: Callable[[], Facts]) -> Facts:
    _release()  # the step that was timed
    with _Noted() as noted:
        return trace()
    return {"trace_failed": noted.reason}


class _Noted:
    """Whatever is raised inside ends there and is kept as one line; an interruption goes on."""

    reason = ""

    def __enter__(self) -> _Noted:
        return self

    def __exit__(self, kind: object, raised: BaseException | None, where: object) -> bool:
        if not isinstance(raised, (Exception, pytest.skip.Exception, pytest.fail.Exception)):
            return False
        self.reason = reporting.told(raised)
        return True


def _hand_over(measurement: Measurement, replay: Replay, benchmark: Any) -> None:
    """To pytest-benchmark: its table, its JSON and its statistics show the device's samples."""
    assert measurement.timing is not None
    replay.load(measurement.timing.samples)
    benchmark.extra_info.update(
        perfci=rules.harness(),  # the reader of this file finds the key, and the row in the process report
        workload=measurement.workload.name,
        implementation=measurement.implementation,
        status=measurement.status.value,
        clock=measurement.timing.clock.value,
        iterations=measurement.timing.iterations,
        **measurement.extras,
    )
    benchmark.pedantic(_nothing, rounds=len(measurement.timing.samples), iterations=1, warmup_rounds=0)


def _nothing() -> None:
    pass


def _release() -> None:
    """A case's memory back to the device, before the next one asks for it."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _failure(raised: BaseException | None, *, inside: bool, text: str) -> tuple[Status, str]:
    """inside: the test had handed over its case, and `measure` had not returned."""
    if isinstance(raised, IncorrectOutput):
        return Status.INCORRECT, str(raised)
    if isinstance(raised, CaseError | ClockError):
        return Status.ERROR, str(raised)
    if raised is None:
        return Status.ERROR, reporting.one_line(text)
    if isinstance(raised, AssertionError):
        # A test's own assertion is about the output; one from inside of a step tells no more than any exception.
        # Its first line alone: pytest has explained the operands in the others.
        return (Status.ERROR if inside else Status.INCORRECT), reporting.told(raised).split(" … ")[0]
    return Status.ERROR, reporting.told(raised)


def _skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if hasattr(report, "wasxfail"):
        return f"expected to fail: {report.wasxfail or 'no reason given'}"
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return reporting.one_line(text.removeprefix("Skipped: "))


def _collection_error(text: str) -> str:
    """pytest marks the lines of the exception with an E."""
    marked = [line.removeprefix("E").strip() for line in text.splitlines() if line.startswith("E ")]
    return reporting.one_line("\n".join(marked) or text)


def _seed() -> int:
    given = os.environ.get("PERFCI_SEED")
    if given is None:
        return secrets.randbits(31)
    if not given.isdigit():
        raise pytest.UsageError(f"PERFCI_SEED = {given!r}: give it a whole number of 0 or more")
    return int(given)
