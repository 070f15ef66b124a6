"""pytest-benchmark's JSON, versions 2 to 5, read as hostile input.

Times are seconds throughout. A file whose shape is wrong is refused whole, with line and field; a benchmark
whose numbers cannot be used is an `error` row, and its neighbours stay.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfci import artifact
from perfci.errors import ArtifactError
from perfci.model import Clock, Measurement, Status, Timing, Workload

# A function of a microsecond is run 200,000 times, which are 4 MB; Python needs five times a file's size to read it.
MAX_BYTES = 256 * 1024 * 1024
# Far more samples of a fast function than an order statistic needs, and all together what a result file takes.
MAX_SAMPLES = 2000
MAX_SAMPLES_OF_A_FILE = 400_000
FOREIGN_IMPLEMENTATION = "suite"
_NAME_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Row:
    """One benchmark. name: its full name as pytest has it. own: perfci's plugin timed it, and reports it better."""

    name: str
    own: bool
    measurement: Measurement


@dataclass(frozen=True, slots=True)
class Results:
    """A whole file. Times are None where the file has none (a checkout without git)."""

    version: str
    measured_at: datetime | None
    commit_sha: str
    committed_at: datetime | None
    rows: tuple[Row, ...]


def read(path: Path) -> Results:
    """Raises ArtifactError for a file that is missing, too large, truncated or foreign."""
    try:
        data = artifact.contents(path, limit=MAX_BYTES)
    except OSError as error:
        raise ArtifactError(f"{path}: {error.strerror}", next_step="name a readable pytest-benchmark file") from error
    return decode(data, name=str(path))


def decode(data: bytes, *, name: str) -> Results:
    """`name` stands for the file in messages. Raises ArtifactError."""
    if len(data) > MAX_BYTES:
        raise ArtifactError(
            f"{name} is no pytest-benchmark result: more than {MAX_BYTES} bytes",
            next_step="run fewer rounds (--benchmark-max-time)",
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise _refused(name, f"line {number}: not UTF-8") from error
    try:
        body = json.loads(text, object_pairs_hook=_no_duplicates)
    except json.JSONDecodeError as error:
        raise _refused(name, f"line {error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise _refused(name, str(error)[:200]) from error
    try:
        return _results(body)
    except _Wrong as wrong:
        raise _refused(name, f"line {_line(text, wrong.path)}: {_shown(wrong.path)} {wrong.problem}") from wrong


class _Wrong(Exception):
    def __init__(self, path: Sequence[str | int], problem: str) -> None:
        super().__init__(problem)
        self.path, self.problem = tuple(path), problem


def _refused(name: str, problem: str) -> ArtifactError:
    return ArtifactError(f"{name} is no pytest-benchmark result: {problem}", next_step="run the suite again")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise ValueError(f"the key {twice[:80]!r} appears twice in one object")
    return keys


def _results(body: object) -> Results:
    top = _object(body, ())
    benchmarks = _field(top, "benchmarks", list, ())
    commit = top.get("commit_info")
    commit = commit if isinstance(commit, dict) else {}
    most = max(20, min(MAX_SAMPLES, MAX_SAMPLES_OF_A_FILE // max(1, len(benchmarks))))
    rows = tuple(_row(entry, ("benchmarks", i), most=most) for i, entry in enumerate(benchmarks))
    seen: set[str] = set()
    for i, row in enumerate(rows):
        if row.name in seen:
            raise _Wrong(("benchmarks", i), f"is {row.name!r} a second time")
        seen.add(row.name)
    return Results(
        version=str(top.get("version", ""))[:40],
        measured_at=_time(top.get("datetime"), ("datetime",)),
        commit_sha=str(commit.get("id") or "")[:64],
        committed_at=_time(commit.get("time"), ("commit_info", "time")),
        rows=rows,
    )


def stored_name(name: str) -> str:
    """A test's name as a result file takes it: printable, and so short that a long one ends in its hash."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in name)
    if len(shown) <= _NAME_LENGTH:
        return shown
    return f"{shown[: _NAME_LENGTH - 13]}~{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:12]}"


def _row(entry: object, path: tuple[str | int, ...], *, most: int) -> Row:
    fields = _object(entry, path)
    key = "fullname" if fields.get("fullname") is not None else "name"
    name = stored_name(_field(fields, key, str, path))
    if not name:
        raise _Wrong((*path, key), "is empty")
    stats = _object(fields.get("stats"), (*path, "stats"))
    extra = fields.get("extra_info")
    own = isinstance(extra, dict) and "perfci" in extra
    workload = Workload(name)
    try:
        timing, extras = _timing(stats, most=most)
    except ValueError as problem:
        reason = f"{_shown(path)}.stats: {problem}"
        return Row(name, own, Measurement(workload, FOREIGN_IMPLEMENTATION, Status.ERROR, reason=reason))
    group = fields.get("group")
    if isinstance(group, str):
        extras["group"] = stored_name(group)[:200]
    reason = "one round: its noise is unknown" if len(timing.samples) == 1 else ""
    measurement = Measurement(workload, FOREIGN_IMPLEMENTATION, Status.OK, timing=timing, reason=reason, extras=extras)
    return Row(name, own, measurement)


def _timing(stats: dict[str, Any], *, most: int) -> tuple[Timing, dict[str, float | int | str | bool]]:
    """Raises ValueError that names the number which cannot be used."""
    data = stats.get("data")
    if data is None or data == []:
        # Saved without its samples: of the distribution the median alone is left.
        samples = [_seconds(stats.get("median"), "median")]
    elif isinstance(data, list):
        samples = [_seconds(value, f"data[{i}]") for i, value in enumerate(data)]
    else:
        raise ValueError("data is no list")
    rounds = _count(stats.get("rounds", len(samples)), "rounds")
    iterations = _count(stats.get("iterations", 1), "iterations")
    kept = _spread_out(samples, most)
    extras: dict[str, float | int | str | bool] = {"rounds": rounds}
    if len(kept) < rounds:
        extras["samples_kept"] = len(kept)
    return Timing(samples=kept, clock=Clock.FOREIGN, iterations=iterations), extras


def _seconds(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {str(value)[:40]!r}, no number of seconds")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number > 1e12:
        raise ValueError(f"{name} is {number}")
    if number <= 0:
        raise ValueError(f"{name} is {number}: the suite's timer cannot tell so short a time")
    return number


def _count(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**9:
        raise ValueError(f"{name} is {str(value)[:40]!r}, no count")
    return value


def _spread_out(samples: list[float], most: int) -> tuple[float, ...]:
    """At most so many of them, evenly over the run and in its order: a drift stays visible."""
    n = len(samples)
    return tuple(samples) if n <= most else tuple(samples[i * n // most] for i in range(most))


def _time(value: object, path: tuple[str | int, ...]) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _Wrong(path, "is no time")
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise _Wrong(path, f"is no time: {value[:60]!r}") from error
    # pytest-benchmark writes UTC, in older versions without saying so.
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise _Wrong(path, f"is beyond the calendar: {value[:60]!r}") from error


def _object(value: object, path: tuple[str | int, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Wrong(path, "is no object")
    return value


def _field(fields: dict[str, Any], key: str, kind: type, path: tuple[str | int, ...]) -> Any:
    if key not in fields:
        raise _Wrong(path, f"has no {key!r}")
    if not isinstance(fields[key], kind):
        raise _Wrong((*path, key), f"is no {'list' if kind is list else 'text'}")
    return fields[key]


def _shown(path: Sequence[str | int]) -> str:
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return shown.lstrip(".") or "the file"


def _line(text: str, path: Sequence[str | int]) -> int:
    """The line on which the value at `path` of a valid JSON text begins."""
    at = _skip(text, 0)
    for part in path:
        at = next((start for key, start in _members(text, at) if key == part), at)
    return text.count("\n", 0, at) + 1


def _members(text: str, at: int) -> Iterator[tuple[str | int, int]]:
    """Keys or indexes of the object or list that begins at `at`, with where their values begin."""
    decoder = json.JSONDecoder()
    is_object, index = text[at] == "{", 0

    at = _skip(text, at + 1)
    while text[at] not in "}]":
        key: str | int = index
        if is_object:
            key, at = decoder.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        yield key, at
        _, at = decoder.raw_decode(text, at)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
        index += 1


def _skip(text: str, at: int) -> int:
    """Past white space."""
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at
