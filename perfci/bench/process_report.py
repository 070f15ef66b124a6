"""What perfci's plugin says at the end of a measured process, read as hostile input.

The process ran the commit's code and could have written anything; a report is taken whole or not at all.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfci import artifact
from perfci.bench import process
from perfci.errors import ArtifactError
from perfci.model import Control, Environment, Hardware, Measurement, Node, Status, Telemetry, Timing, Workload
from perfci.readers.pytest_benchmark import stored_name

VERSION = 1
Pair = tuple[str, str]  # workload, implementation
# The limits of the result file, which is refused whole beyond them.
_LINE, _PARAGRAPH, _EXTRAS = 500, 20_000, 200
_LARGEST = 1e30
# Controls but for tab and new line, and what turns the direction of writing.
_UNPRINTED = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """finished: False where the process was ended before its tests were. collected: node ids of the tests that measure.
    measuring: those of them that name their row themselves, when they run. rows: which of them stand for which workload
    and implementation. failures: what became of those that gave no measurement, with the reason.
    """

    hardware: Hardware
    node: Node
    environment: Environment
    controls: tuple[Control, ...]
    telemetry: Telemetry
    harness: str
    finished: bool
    measurements: tuple[Measurement, ...]
    collected: tuple[str, ...]
    measuring: frozenset[str]
    failures: Mapping[str, tuple[Status, str]]
    rows: Mapping[str, Pair]


def read(path: Path) -> ProcessReport:
    """Raises ArtifactError for a report that is absent, truncated or of another shape."""
    try:
        data = artifact.contents(path, limit=artifact.MAX_BYTES)
        if len(data) > artifact.MAX_BYTES:
            raise ValueError(f"it has more than {artifact.MAX_BYTES} bytes")
        body = json.loads(data.decode("utf-8"))
        return _report(body)
    except FileNotFoundError as error:
        raise ArtifactError("the process left no report", next_step="look at the log's end") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        problem = f"the process's report cannot be used: {type(error).__name__}: {line(str(error))}"
        raise ArtifactError(problem, next_step="look at the log's end") from error


def line(text: str, limit: int = _LINE) -> str:
    """One printable line of at most `limit` characters."""
    return "".join(c if c.isprintable() else " " for c in text)[:limit]


def paragraph(text: str, limit: int = _PARAGRAPH) -> str:
    """At most `limit` characters, lines kept; without colours, and what would move a terminal's cursor is replaced."""
    plain = process.ESCAPE.sub("", text.replace("\r\n", "\n")).encode("utf-8", "replace").decode("utf-8")
    return _UNPRINTED.sub("\N{REPLACEMENT CHARACTER}", plain)[:limit]


def _report(body: dict[str, Any]) -> ProcessReport:
    if body["version"] != VERSION:
        raise ValueError(f"version {body['version']!r}")
    hardware = Hardware(**body["hardware"])
    environment = {key: line(str(value)) for key, value in body["environment"].items()}
    return ProcessReport(
        hardware=replace(
            hardware, name=_name(hardware.name), model=line(hardware.model), partition=line(hardware.partition)
        ),
        node=Node(_name(body["node"]["name"]), line(body["node"]["device_uuid"])),
        environment=Environment(**environment),
        controls=tuple(_control(control) for control in body["controls"]),
        telemetry=artifact.telemetry_of(body["telemetry"]),
        harness=_name(body["harness"]),
        measurements=tuple(_measurement(measurement) for measurement in body["measurements"]),
        finished=body["finished"] is True,
        collected=tuple(stored_name(node) for node in body["collected"]),
        measuring=frozenset(stored_name(node) for node in body["measuring"]),
        failures={stored_name(n): (Status(f["status"]), paragraph(f["reason"])) for n, f in body["failures"].items()},
        rows={stored_name(node): (_name(pair[0]), _name(pair[1])) for node, pair in body["rows"].items()},
    )


def _name(text: str) -> str:
    if not text or len(text) > _LINE or not text.isprintable():
        raise ValueError(f"{text[:60]!r} is no usable name")
    return text


def _control(body: dict[str, Any]) -> Control:
    control = Control(**body)
    _name(control.name)
    _finite(control.name, control.value)
    return control


def _measurement(body: dict[str, Any]) -> Measurement:
    """With texts that fit into a result file; numbers that do not are no honest measurement's."""
    found = artifact.measurement_of(body)
    where = f"{_name(found.workload.name)} / {_name(found.implementation)}"
    for key in ("tokens", "bytes_moved", "flops", "working_set_bytes"):
        amount = getattr(found.workload, key)
        if isinstance(amount, bool) or not isinstance(amount, int) or not 0 <= amount < 2**62:
            raise ValueError(f"{where}: {key} is {amount!r}")
    # An output full of NaN has no distance from the reference; the reason says what is wrong with it.
    error = None if found.error is not None and not abs(float(found.error)) <= _LARGEST else found.error
    return Measurement(
        workload=found.workload,
        implementation=found.implementation,
        status=found.status,
        metric=found.metric,
        verified=bool(found.verified),
        timing=_timing(where, found.timing),
        error=error,
        tolerance=found.tolerance,
        reason=paragraph(found.reason),
        extras=dict(_extra(where, key, value) for key, value in list(found.extras.items())[:_EXTRAS]),
        trace=found.trace if artifact.is_trace(found.trace) else "",
    )


def _timing(where: str, timing: Timing | None) -> Timing | None:
    if timing is not None and (max(timing.samples) > 1e12 or len(timing.samples) > 100_000):
        raise ValueError(f"{where}: {len(timing.samples)} samples up to {max(timing.samples)} s")
    return timing


def _extra(where: str, key: str, value: object) -> tuple[str, float | int | str | bool]:
    if isinstance(value, str):
        return line(key, 100), line(value)
    if isinstance(value, bool):
        return line(key, 100), value
    if isinstance(value, int | float):
        _finite(f"{where}: {key}", value)
        return line(key, 100), value
    raise ValueError(f"{where}: {key} is {str(value)[:60]!r}")


def _finite(where: str, value: float) -> None:
    if not math.isfinite(value) or abs(value) > _LARGEST:
        raise ValueError(f"{where} is {value}")


def unmeasured(pair: Pair, status: Status, reason: str) -> Measurement:
    """A Measurement that has no numbers, only what became of it."""
    return Measurement(Workload(pair[0]), pair[1], status, reason=paragraph(reason))
