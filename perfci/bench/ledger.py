"""What became of each test of the measured process, and the report of it that perfci reads afterwards.

A row is opened when a test hands over its case, and closed with a Measurement. The rules that need both the row and
pytest's verdict stand here: an exception inside `measure` makes the row's status, and a test that fails after its
measurement takes the speed back.
"""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from perfci import artifact
from perfci.bench.case import Case
from perfci.bench.faults import CaseError
from perfci.model import Control, Environment, Hardware, Measurement, Node, Status, Telemetry

VERSION = 1  # of the process report
_REASON_LENGTH = 2000
_SHORT = 500  # as in the artifact's schema
_LARGEST = 1e30


@dataclass(slots=True)
class _Row:
    case: Case
    measurement: Measurement | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """What is known about the process as a whole."""

    hardware: Hardware
    node: Node
    environment: Environment
    harness: str
    controls: tuple[Control, ...] = ()
    telemetry: Telemetry = field(default_factory=Telemetry)


@dataclass(slots=True)
class Ledger:
    """collected: the tests that measure. measuring: those of them whose case names the row, which is not known before
    they run. failures: what became of tests and files that did not pass, and why. finished: all that could run has run.
    """

    finished: bool = False
    collected: list[str] = field(default_factory=list)
    measuring: list[str] = field(default_factory=list)
    failures: dict[str, tuple[Status, str]] = field(default_factory=dict)
    _rows: dict[str, _Row] = field(default_factory=dict)

    def forget(self, test: str) -> None:
        """Before a test runs: what an earlier attempt at it left does not count."""
        self._rows.pop(test, None)
        self.failures.pop(test, None)

    def open(self, test: str, case: Case) -> None:
        """Raises CaseError: for a name that no file takes, for a second case in a test, for one measured before.

        Two measurements of one series in one process could not be told from each other.
        """
        if problems := check_names(case):
            raise CaseError(f"{problems[0]} cannot be stored")
        key = (case.workload.name, case.implementation)
        if test in self._rows:
            raise CaseError(f"a test measures one case; {key[0]} / {key[1]} is its second")
        for other, row in self._rows.items():
            if (row.case.workload.name, row.case.implementation) == key:
                raise CaseError(f"{key[0]} / {key[1]} was measured by {other} before")
        self._rows[test] = _Row(case)

    def close(self, test: str, measurement: Measurement) -> None:
        """A fact named `trace` that a result file takes as one becomes the Measurement's."""
        facts = dict(measurement.extras)
        trace = str(facts.pop("trace")) if artifact.is_trace(facts.get("trace")) else measurement.trace
        self._rows[test].measurement = replace(measurement, extras=clean_extras(facts), trace=trace)

    def is_open(self, test: str) -> bool:
        return test in self._rows and self._rows[test].measurement is None

    def holds(self, test: str) -> bool:
        """Whether there is something to say about it."""
        return test in self._rows or test in self.failures

    def fail(self, test: str, status: Status, reason: str, *, error: float | None = None) -> None:
        """The test, or a file that could not be collected, ended with `status`; so does its row, if it has one.

        error: norm-relative, where an output was compared. The first failure of a test is the one that is told.
        """
        reason = reason[:_REASON_LENGTH].replace("\0", "?")
        if test in self.failures:
            return
        self.failures[test] = (status, reason)
        row = self._rows.get(test)
        if row is None:
            return
        if error is None and row.measurement is not None:
            error = row.measurement.error
        row.measurement = Measurement(
            workload=row.case.workload,
            implementation=row.case.implementation,
            status=status,
            error=error if error is not None and error <= _LARGEST else None,
            tolerance=row.case.tolerance if row.case.has_reference else None,
            reason=reason,
        )

    def measurements(self) -> tuple[Measurement, ...]:
        return tuple(row.measurement for row in self._rows.values() if row.measurement is not None)

    def plain(self, device: Device) -> dict[str, object]:
        return {
            "version": VERSION,
            "hardware": artifact.plain(device.hardware),
            "node": artifact.plain(device.node),
            "environment": artifact.plain(device.environment),
            "controls": artifact.plain(device.controls),
            "telemetry": artifact.plain(device.telemetry),
            "harness": device.harness,
            "measurements": artifact.plain(self.measurements()),
            "finished": self.finished,
            "collected": list(self.collected),
            "measuring": list(self.measuring),
            "failures": {test: {"status": s.value, "reason": reason} for test, (s, reason) in self.failures.items()},
            "rows": {test: [row.case.workload.name, row.case.implementation] for test, row in self._rows.items()},
        }


def write(report: Mapping[str, object], path: Path) -> None:
    """In one step: the file is there whole or not at all. Raises OSError."""
    text = json.dumps(report, allow_nan=False, ensure_ascii=False, indent=1)
    # An exception may say half a surrogate pair, which is no text; the report must not be lost for it.
    artifact.write_whole(text.encode("utf-8", "replace") + b"\n", path)


def told(error: BaseException) -> str:
    """An exception in one line: its type, and first and last line of what it says."""
    text = "".join(traceback.format_exception_only(type(error), error))
    return one_line(text)


def one_line(text: str) -> str:
    """CUDA says what happened in its first line, a compiler in its last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " … ".join((lines[0], lines[-1]) if len(lines) > 1 else lines)[:_REASON_LENGTH] or "no reason given"


def clean_extras(extras: Mapping[str, object]) -> dict[str, float | int | str | bool]:
    """As the result file takes them: finite numbers, short printable strings; anything else as its text."""
    return {_short(str(key))[:100]: _clean(value) for key, value in list(extras.items())[:200]}


def _clean(value: object) -> float | int | str | bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and math.isfinite(value) and abs(value) <= _LARGEST:
        return value
    return _short(str(value))


def _short(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:_SHORT]


def check_names(case: Case) -> Sequence[str]:
    """What the result file would not take of a case's names and sizes."""
    names = {"workload.name": case.workload.name, "implementation": case.implementation}
    sizes = {key: getattr(case.workload, key) for key in ("tokens", "bytes_moved", "flops", "working_set_bytes")}
    return [
        *(f"{key} = {name!r}" for key, name in names.items() if not name or _short(name) != name),
        *(f"workload.{key} = {size!r}" for key, size in sizes.items() if not isinstance(size, int) or size < 0),
    ]
