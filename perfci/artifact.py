"""The result file of a Run, format version 1.

Written on a node with the standard library alone. Read as hostile input: size, schema, ranges and the
rules of the model are checked before anything of it is used, and a file is taken whole or refused whole.

The file is one JSON object in UTF-8; `artifact.schema.json` beside this module is its schema. Its identity
is the sha256 of its bytes.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import re
import reprlib
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from perfci.errors import ArtifactError
from perfci.model import (
    Clock,
    Commit,
    Control,
    Direction,
    Environment,
    Hardware,
    Measurement,
    Metric,
    Node,
    Origin,
    Run,
    RunStatus,
    Status,
    Telemetry,
    Timing,
    Workload,
)

FORMAT = "perfci-artifact"
VERSION = 1
SUFFIX = ".perfci.json"
# 600 workloads x 200 samples of 20 characters are 2.4 MB; ten times that is no honest file.
MAX_BYTES = 32 * 1024 * 1024
MAX_TRACE = 131_072  # characters; as in the schema
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


@dataclass(frozen=True, slots=True)
class Artifact:
    """A checked file: the Run, and the sha256 of the bytes that it came from."""

    sha256: str
    run: Run


def encode(run: Run) -> bytes:
    """The file's bytes; equal Runs give equal bytes."""
    body = {"format": FORMAT, "version": VERSION, "run": plain(run)}
    return json.dumps(body, sort_keys=True, allow_nan=False, ensure_ascii=False, indent=1).encode() + b"\n"


def write(run: Run, folder: Path) -> Path:
    """Write the Run's file into `folder` in one step: it is there whole or not at all.

    The name starts with session and index, so that a listing is readable, and ends with the content's hash.
    """
    data = encode(run)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name_start(run.session, run.index)}{hashlib.sha256(data).hexdigest()[:16]}{SUFFIX}"
    write_whole(data, path)
    return path


def write_whole(data: bytes, path: Path) -> None:
    """In one step, whatever is killed: readers see the whole file or none (or the one before). Raises OSError.

    Who may read it is the umask's to say: another user's service may be the one that takes it in.
    """
    temporary = path.with_name(f".writing-{os.getpid()}-{path.name}")
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def name_start(session: str, index: int) -> str:
    """How the names of a process's files begin; the content's hash and SUFFIX follow."""
    plain_session = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in session)[:80]
    return f"{plain_session}-{index:03d}-"


def read(path: Path) -> Artifact:
    """Raises ArtifactError for a file that is missing, too large, truncated, foreign or out of range."""
    try:
        data = contents(path, limit=MAX_BYTES)
    except OSError as error:
        raise ArtifactError(f"{path}: {error.strerror}", next_step="name a readable result file") from error
    return decode(data, name=str(path))


def contents(path: Path, *, limit: int) -> bytes:
    """A file's bytes, `limit` and one of them at most. For files that hostile code may have put there.

    Raises OSError, also for what is no regular file: a pipe would be waited for without an end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        return stream.read(limit + 1)


def decode(data: bytes, *, name: str) -> Artifact:
    """`name` stands for the file in messages. Raises ArtifactError."""
    if len(data) > MAX_BYTES:
        raise _refused(name, f"more than {MAX_BYTES} bytes")
    try:
        body = json.loads(
            data.decode("utf-8"), parse_constant=_NoNumber, parse_int=_integer, object_pairs_hook=_no_duplicates
        )
    except (ValueError, RecursionError) as error:
        raise _refused(name, f"not JSON ({error})") from error
    _check_header(body, name)
    try:
        _check_schema(body)
        run = _run(body["run"])
    except (ValueError, RecursionError) as error:
        raise _refused(name, str(error)) from error
    return Artifact(sha256=hashlib.sha256(data).hexdigest(), run=run)


def schema() -> dict[str, Any]:
    text = resources.files("perfci").joinpath("artifact.schema.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def plain(value: object) -> object:
    """The JSON shape of a noun of the model: what the file holds for it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        shape = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, Measurement) and not value.trace:
            del shape["trace"]  # the one optional key: files without traces are those of every reader of version 1
        return shape
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return value


def is_trace(text: object) -> bool:
    """Whether a result file takes it as a Measurement's trace."""
    return isinstance(text, str) and len(text) <= MAX_TRACE and _BASE64.fullmatch(text) is not None


def _refused(name: str, problem: str) -> ArtifactError:
    return ArtifactError(f"{name} is no perfci result: {problem}", next_step="nothing of it was stored; measure again")


class _NoNumber:
    """Stands for what Python reads as a number and this format does not, until the schema names its place."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text if len(self._text) <= 40 else f"{self._text[:20]}... ({len(self._text)} digits)"


def _integer(text: str) -> int | _NoNumber:
    # The greatest number of the format is 1e30; Python refuses 4,300 digits by itself, without saying where.
    return int(text) if len(text) <= 40 else _NoNumber(text)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ValueError(f"{twice[:60]!r} appears twice in one object")
    return keys


def _check_header(body: object, name: str) -> None:
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise _refused(name, f'it has no "format": "{FORMAT}"')
    version = body.get("version")
    if type(version) is not int or version != VERSION:
        raise _refused(name, f"format version {_short(version)}, this perfci reads {VERSION}")


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator, validators  # noqa: PLC0415  a node writes without this library

    # Stricter than the schema language: 1.0 is no integer, and half of a surrogate pair is no text.
    types = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda _, value: type(value) is int,
            "number": lambda _, value: type(value) in {int, float},
            "string": lambda _, value: isinstance(value, str) and _is_text(value),
        }
    )
    one_by_one = Draft202012Validator.VALIDATORS["items"]

    def items(validator: Any, wanted: Any, found: Any, parent: Any) -> Iterator[Any]:
        # The library takes 5 us a number: 80 s for the 15 million that fit into a file.
        if not _all_in_range(wanted, found):
            yield from one_by_one(validator, wanted, found, parent)

    strict = validators.extend(Draft202012Validator, {"items": items}, type_checker=types)  # type: ignore[no-untyped-call]
    return strict(schema())


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _all_in_range(wanted: dict[str, Any], found: object) -> bool:
    """Whether this is a list of numbers, asked to be in a range that excludes its lower end, and every one is."""
    if not isinstance(found, list) or wanted.keys() != {"type", "exclusiveMinimum", "maximum"}:
        return False
    low, high = wanted["exclusiveMinimum"], wanted["maximum"]
    return all(type(value) in {int, float} and low < value <= high for value in found)


def _check_schema(body: object) -> None:
    """Raises ValueError that names the first field that breaks the schema."""
    error = next(_validator().iter_errors(body), None)
    if error is None:
        return
    # Of something or null, something was meant: its own error says more than that neither fits.
    while error.context:
        inner = [each for each in error.context if each.validator_value != "null"]
        deepest = max(inner, key=lambda each: len(each.absolute_path))
        if len(inner) > 1 and not deepest.path:
            break
        error = deepest
    where = "/".join(str(part)[:60] for part in error.absolute_path) or "the file"
    problem = error.message.replace(repr(error.instance), _short(error.instance), 1)
    if error.validator == "pattern":
        problem = f"{_short(error.instance)} has a control character, or another form than it must have"
    raise ValueError(f"{where}: {problem if len(problem) <= 300 else problem[:140] + ' ... ' + problem[-140:]}")


def _short(value: object) -> str:
    # repr() of one value of a hostile file may be as long as the file, and nest as deep.
    return reprlib.repr(value)


def _time(where: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError("it has no time zone")
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{where}: {text!r} is no moment ({error})") from error


def _range(body: dict[str, Any], key: str) -> tuple[float, float] | None:
    pair = body[key]
    if pair is None:
        return None
    if pair[0] > pair[1]:
        raise ValueError(f"telemetry/{key}: the range {pair} is upside down")
    return (float(pair[0]), float(pair[1]))


def _commit(body: dict[str, Any]) -> Commit:
    at = body["committed_at"]
    return Commit(
        sha=body["sha"],
        parents=tuple(body["parents"]),
        position=body["position"],
        committed_at=None if at is None else _time("run/commit/committed_at", at),
        subject=body["subject"],
    )


def telemetry_of(body: dict[str, Any]) -> Telemetry:
    """From this format's JSON shape. Raises KeyError, TypeError or ValueError for another one."""
    return Telemetry(
        sm_clock_hz=_range(body, "sm_clock_hz"),
        memory_clock_hz=_range(body, "memory_clock_hz"),
        temperature_c=_range(body, "temperature_c"),
        power_w=_range(body, "power_w"),
        throttled=tuple(body["throttled"]),
        others=tuple(body["others"]),
        load_average=body["load_average"],
    )


def _timing(body: dict[str, Any] | None) -> Timing | None:
    if body is None:
        return None
    return Timing(
        samples=tuple(float(s) for s in body["samples"]),
        clock=Clock(body["clock"]),
        iterations=body["iterations"],
        resolution=float(body["resolution"]),
    )


def measurement_of(body: dict[str, Any]) -> Measurement:
    """From this format's JSON shape. Raises KeyError, TypeError or ValueError for another one."""
    metric = body["metric"]
    return Measurement(
        workload=Workload(**body["workload"]),
        implementation=body["implementation"],
        status=Status(body["status"]),
        metric=Metric(metric["name"], metric["unit"], Direction(metric["direction"])),
        verified=body["verified"],
        timing=_timing(body["timing"]),
        error=body["error"],
        tolerance=body["tolerance"],
        reason=body["reason"],
        extras=body["extras"],
        trace=body.get("trace", ""),
    )


def _measurements(bodies: list[dict[str, Any]]) -> tuple[Measurement, ...]:
    found: dict[tuple[str, str, str], Measurement] = {}
    for number, body in enumerate(bodies):
        where = f"run/measurements/{number}"
        try:
            measurement = measurement_of(body)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        key = (measurement.workload.name, measurement.implementation, measurement.metric.name)
        if key in found:
            raise ValueError(f"{where}: {' / '.join(key)} is measured twice in one run")
        found[key] = measurement
    return tuple(found.values())


def _run(body: dict[str, Any]) -> Run:
    started_at, finished_at = (_time(f"run/{key}", body[key]) for key in ("started_at", "finished_at"))
    if finished_at < started_at:
        raise ValueError(f"run/finished_at: {finished_at} is before it started at {started_at}")
    return Run(
        suite=body["suite"],
        commit=_commit(body["commit"]),
        hardware=Hardware(**body["hardware"]),
        node=Node(**body["node"]),
        environment=Environment(**body["environment"]),
        session=body["session"],
        index=body["index"],
        origin=Origin(body["origin"]),
        status=RunStatus(body["status"]),
        harness=body["harness"],
        started_at=started_at,
        finished_at=finished_at,
        measurements=_measurements(body["measurements"]),
        controls=tuple(Control(**c) for c in body["controls"]),
        telemetry=telemetry_of(body["telemetry"]),
        reason=body["reason"],
        log_tail=body["log_tail"],
    )
