"""The result file of a Run, format version 1.

Written on a node with the standard library alone. Read as hostile input: size, schema, ranges and the
rules of the model are checked before anything of it is used, and a file is taken whole or refused whole.

The file is one JSON object in UTF-8; `artifact.schema.json` beside this module is its schema. Its identity
is the sha256 of its bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
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
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".writing-")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def name_start(session: str, index: int) -> str:
    """How the names of a process's files begin; the content's hash and SUFFIX follow."""
    plain_session = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in session)[:80]
    return f"{plain_session}-{index:03d}-"


def read(path: Path) -> Artifact:
    """Raises ArtifactError for a file that is missing, too large, truncated, foreign or out of range."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ArtifactError(f"{path}: {error.strerror}", next_step="name a readable result file") from error
    return decode(data, name=str(path))


def decode(data: bytes, *, name: str) -> Artifact:
    """`name` stands for the file in messages. Raises ArtifactError."""
    if len(data) > MAX_BYTES:
        raise _refused(name, f"more than {MAX_BYTES} bytes")
    try:
        body = json.loads(data.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise _refused(name, f"not JSON ({error})") from error
    _check_header(body, name)
    if problem := _first_schema_error(body):
        raise _refused(name, problem)
    try:
        run = _run(body["run"])
    except (ValueError, OverflowError) as error:
        raise _refused(name, str(error)) from error
    return Artifact(sha256=hashlib.sha256(data).hexdigest(), run=run)


def schema() -> dict[str, Any]:
    text = resources.files("perfci").joinpath("artifact.schema.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def plain(value: object) -> object:
    """The JSON shape of a noun of the model: what the file holds for it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return value


def _refused(name: str, problem: str) -> ArtifactError:
    return ArtifactError(f"{name} is no perfci result: {problem}", next_step="nothing of it was stored; measure again")


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        raise ValueError("a key appears twice in one object")
    return keys


def _check_header(body: object, name: str) -> None:
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise _refused(name, f'it has no "format": "{FORMAT}"')
    if body.get("version") != VERSION or isinstance(body.get("version"), bool):
        raise _refused(name, f"format version {str(body.get('version'))[:40]!r}, this perfci reads {VERSION}")


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator  # noqa: PLC0415  a node writes results without this library

    return Draft202012Validator(schema())


def _first_schema_error(body: object) -> str | None:
    for error in _validator().iter_errors(body):
        where = "/".join(str(part) for part in error.absolute_path) or "the file"
        return f"{where}: {error.message[:300]}"
    return None


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time {text} has no time zone")
    return moment.astimezone(UTC)


def _range(pair: list[float] | None) -> tuple[float, float] | None:
    if pair is None:
        return None
    if pair[0] > pair[1]:
        raise ValueError(f"range {pair} is upside down")
    return (float(pair[0]), float(pair[1]))


def _commit(body: dict[str, Any]) -> Commit:
    at = body["committed_at"]
    return Commit(
        sha=body["sha"],
        parents=tuple(body["parents"]),
        position=body["position"],
        committed_at=None if at is None else _time(at),
        subject=body["subject"],
    )


def telemetry_of(body: dict[str, Any]) -> Telemetry:
    """From this format's JSON shape. Raises KeyError, TypeError or ValueError for another one."""
    return Telemetry(
        sm_clock_hz=_range(body["sm_clock_hz"]),
        memory_clock_hz=_range(body["memory_clock_hz"]),
        temperature_c=_range(body["temperature_c"]),
        power_w=_range(body["power_w"]),
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
    )


def _run(body: dict[str, Any]) -> Run:
    measurements = tuple(measurement_of(m) for m in body["measurements"])
    keys = [(m.workload.name, m.implementation, m.metric.name) for m in measurements]
    if len(set(keys)) != len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"{' / '.join(twice)} is measured twice in one run")
    started_at, finished_at = _time(body["started_at"]), _time(body["finished_at"])
    if finished_at < started_at:
        raise ValueError(f"finished at {finished_at}, before it started at {started_at}")
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
        measurements=measurements,
        controls=tuple(Control(**c) for c in body["controls"]),
        telemetry=telemetry_of(body["telemetry"]),
        reason=body["reason"],
        log_tail=body["log_tail"],
    )
