"""Format version 1: a golden file that every later perfci must read, and the way there and back."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
import string
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from perfci import artifact, model
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
from tests.build import a_measurement, a_run, a_sha

GOLDEN = Path(__file__).parent / "version-1.perfci.json"

RECORDED = Run(
    suite="kernels",
    commit=Commit(
        a_sha("c"), (a_sha("p"), a_sha("q")), 42, datetime(2026, 11, 30, 22, 15, tzinfo=UTC), "Fuse <rms> & qkv"
    ),
    hardware=Hardware("h200", "NVIDIA H200", 1, 141 * 2**30, 700.0, ""),
    node=Node("gpu-a", "GPU-0f3c"),
    environment=Environment(
        driver="570.86",
        cuda="12.8",
        torch="2.11.0",
        triton="3.6.0",
        python="3.12.3",
        os_kernel="6.8.0",
        image="sha256:00",
        device="ecc=on",
    ),
    session="2026-12-01T02-00",
    index=1,
    origin=Origin.MEASURED,
    status=RunStatus.ERROR,
    harness="perfci/0.1.0 1a2b",
    started_at=datetime(2026, 12, 1, 2, 0, 0, 250_000, tzinfo=UTC),
    finished_at=datetime(2026, 12, 1, 2, 3, tzinfo=UTC),
    measurements=(
        Measurement(
            Workload("decode/llama-1b/b1-ctx512-bf16", 1, 2_471_000_000, 2_470_000_000, 2_500_000_000),
            "modular-graph",
            Status.OK,
            verified=True,
            timing=Timing((0.000912, 0.00091, 0.000915), Clock.CUDA_EVENT, 4, 5e-7),
            error=0.0031,
            tolerance=0.01,
            extras={"registers": 128, "spills": 0, "graph": True, "occupancy": 0.5, "ptxas": "12.8"},
        ),
        Measurement(Workload("decode/tiny"), "megakernel", Status.INCORRECT, reason="logits: 0.2 > 0.01\nsecond line"),
    ),
    controls=(
        Control("read_bandwidth_memory", "B/s", 4.3e12, 2**30),
        Control("empty_launch", "s", 2.1e-6),
    ),
    telemetry=Telemetry(
        sm_clock_hz=(1.7e9, 1.98e9), temperature_c=(41.0, 55.0), throttled=("sw_power_cap",), load_average=1.5
    ),
    reason="the suite's process ended with 1",
    log_tail="Traceback\n  é 🚀\n",
)


def test_the_golden_file_is_read_as_it_was_meant() -> None:
    found = artifact.read(GOLDEN)
    assert found.run == RECORDED
    assert found.sha256 == hashlib.sha256(GOLDEN.read_bytes()).hexdigest()


def test_todays_perfci_writes_the_golden_file_byte_for_byte() -> None:
    assert artifact.encode(RECORDED).decode() == GOLDEN.read_text("utf-8")


def test_the_golden_file_leaves_no_field_of_the_model_at_its_default() -> None:
    for kind, example in {
        "Commit": RECORDED.commit,
        "Environment": RECORDED.environment,
        "Workload": RECORDED.measurements[0].workload,
        "Timing": RECORDED.measurements[0].timing,
        "Control": RECORDED.controls[0],
    }.items():
        for field in fields(getattr(model, kind)):
            assert getattr(example, field.name) != field.default, f"{kind}.{field.name} is not shown to be kept"


def test_the_schema_is_a_valid_schema_and_describes_the_golden_file() -> None:
    Draft202012Validator.check_schema(artifact.schema())
    assert list(Draft202012Validator(artifact.schema()).iter_errors(json.loads(GOLDEN.read_text("utf-8")))) == []


def test_the_schema_names_every_value_and_field_of_the_model() -> None:
    defs = artifact.schema()["$defs"]
    run = defs["run"]["properties"]
    assert set(run) == {field.name for field in fields(Run)}
    assert set(run["environment"]["properties"]) == {field.name for field in fields(Environment)}
    assert set(defs["measurement"]["properties"]) == {field.name for field in fields(Measurement)}
    assert set(defs["telemetry"]["properties"]) == {field.name for field in fields(Telemetry)}
    enums = {
        Status: defs["measurement"]["properties"]["status"],
        RunStatus: run["status"],
        Origin: run["origin"],
        Clock: defs["timing"]["properties"]["clock"],
        Direction: defs["metric"]["properties"]["direction"],
    }
    for enum, found in enums.items():
        assert set(found["enum"]) == set(enum), enum


# Every character that UTF-8 can hold and that is no control character, of either direction of writing.
_line = st.text(
    st.characters(
        exclude_categories=("Cc", "Cs", "Zl", "Zp"),
        exclude_characters="\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
    ),
    max_size=20,
)
_name = _line.filter(bool)
_text = st.lists(_line, max_size=3).map("\n\t".join)
_count = st.integers(0, 2**62)
_sha = st.text("0123456789abcdef", min_size=40, max_size=40)
_moment = st.integers(0, 2**50).map(
    lambda microseconds: datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)
)
_sample = st.floats(0, 1e12, exclude_min=True, allow_subnormal=True)
_range = st.none() | st.tuples(st.floats(-1000, 0), st.floats(0, 1e15))
_timing = st.builds(
    Timing,
    st.lists(_sample, min_size=1, max_size=5).map(tuple),
    st.sampled_from(Clock),
    iterations=st.integers(1, 10**9),
    resolution=st.floats(0, 1e30),
)
_extras = st.dictionaries(
    _line, st.floats(-1e30, 1e30) | st.integers(-(10**30), 10**30) | st.booleans() | _line, max_size=3
)


@st.composite
def _measurements(draw: st.DrawFn, implementation: str) -> Measurement:
    status = draw(st.sampled_from(Status))
    return Measurement(
        workload=Workload(draw(_name), *(draw(_count) for _ in range(4))),
        implementation=implementation,
        status=status,
        metric=Metric(draw(_name), draw(_line), draw(st.sampled_from(Direction))),
        verified=draw(st.booleans()) and status in {Status.OK, Status.CHECKED},
        timing=draw(_timing) if status is Status.OK else None,
        error=draw(st.none() | st.floats(0, 1e30)),
        tolerance=draw(st.none() | st.floats(0, 1e30)),
        reason=draw(_text),
        extras=draw(_extras),
        trace=draw(st.just("") | st.binary(min_size=1, max_size=40).map(lambda data: base64.b64encode(data).decode())),
    )


@st.composite
def _runs(draw: st.DrawFn) -> Run:
    began = draw(_moment)
    return Run(
        suite=draw(_name),
        commit=Commit(
            draw(_sha),
            tuple(draw(st.lists(_sha, max_size=2))),
            draw(st.none() | st.integers(1, 10**9)),
            draw(st.none() | _moment),
            draw(_line),
        ),
        hardware=Hardware(
            draw(_name),
            draw(_line),
            draw(st.integers(1, 4096)),
            draw(st.none() | _count),
            draw(st.none() | st.floats(0, 1e6)),
            draw(_line),
        ),
        node=Node(draw(_name), draw(_line)),
        environment=Environment(**{field.name: draw(_line) for field in fields(Environment)}),
        session=draw(_name),
        index=draw(st.integers(0, 100_000)),
        origin=draw(st.sampled_from(Origin)),
        status=draw(st.sampled_from(RunStatus)),
        harness=draw(_name),
        started_at=began,
        finished_at=began + draw(st.timedeltas(timedelta(0), timedelta(days=1))),
        measurements=tuple(draw(_measurements(letter)) for letter in string.ascii_letters[: draw(st.integers(0, 3))]),
        controls=tuple(
            Control(draw(_name), draw(_line), draw(st.floats(1e-30, 1e30)), draw(st.none() | _count)) for _ in range(2)
        ),
        telemetry=Telemetry(
            draw(_range),
            draw(_range),
            draw(_range),
            draw(_range),
            (draw(_line),),
            (draw(_line),),
            draw(st.none() | _sample.filter(lambda x: x <= 1e6)),
        ),
        reason=draw(_text),
        log_tail=draw(_text),
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(_runs())
def test_every_run_that_the_model_allows_survives_the_file(run: Run) -> None:
    data = artifact.encode(run)
    assert artifact.decode(data, name="x").run == run
    assert artifact.encode(artifact.decode(data, name="x").run) == data


def test_a_trace_is_the_one_key_that_may_be_absent() -> None:
    traced = artifact.encode(a_run([replace(a_measurement(), trace="eJwDAAAAAAE=")]))
    assert b'"trace": "eJwDAAAAAAE="' in traced
    assert b'"trace"' not in artifact.encode(a_run([a_measurement()]))
    assert artifact.decode(traced, name="x").run.measurements[0].trace == "eJwDAAAAAAE="


def test_a_time_of_another_zone_is_the_same_moment() -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    run = a_run(started_at=datetime(2026, 12, 1, 7, 30, tzinfo=east))
    assert artifact.decode(artifact.encode(run), name="x").run.started_at == datetime(2026, 12, 1, 2, 0, tzinfo=UTC)


def test_a_file_appears_whole_under_a_name_that_can_be_read(tmp_path: Path) -> None:
    run = a_run(session="night/../1 é", index=3)
    path = artifact.write(run, tmp_path / "made" / "here")
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert path.name.endswith(artifact.SUFFIX)
    assert path.parent == tmp_path / "made" / "here"
    assert artifact.read(path).run == run
    assert artifact.write(run, tmp_path / "made" / "here") == path


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o027, 0o640)])
def test_who_may_read_a_file_is_the_umasks_to_say(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        path = artifact.write(a_run(), tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_number_that_json_cannot_hold_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        artifact.write(a_run([a_measurement(extras={"x": float("nan")})]), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.perfci.json", tmp_path):
        with pytest.raises(ArtifactError, match=f"^{path}: .*; name a readable result file$"):
            artifact.read(path)
