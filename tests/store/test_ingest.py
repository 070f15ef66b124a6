"""Ingest: a result file is stored whole, verbatim and once, or not at all."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from perfci.errors import ArtifactError
from perfci.model import (
    LATENCY,
    Clock,
    Commit,
    Direction,
    Measurement,
    Metric,
    Origin,
    Run,
    RunStatus,
    Status,
    Telemetry,
    Timing,
    Workload,
)
from perfci.stats.ceiling import floor_latency
from perfci.store import reads, tables, writes
from perfci.store.engine import reading
from perfci.store.rows import Ingested
from tests.build import (
    CONTROLS,
    ENVIRONMENT,
    EPOCH,
    H200,
    a_commit,
    a_measurement,
    a_run,
    a_sha,
    a_workload,
    an_artifact,
)

THROUGHPUT = Metric("throughput", "token/s", Direction.HIGHER)


def ingest(engine: sa.Engine, run: Run, origin: Origin | None = None) -> Ingested:
    return writes.ingest(engine, an_artifact(run), path="a.perfci.json", origin=origin)


def test_the_same_file_twice_is_stored_once(engine: sa.Engine) -> None:
    first, second = ingest(engine, a_run()), ingest(engine, a_run())
    assert (first.created, second.created) == (True, False)
    assert first.run_id == second.run_id
    assert reads.counts(engine)["measurement"] == 1


def test_what_a_run_says_is_read_back_as_it_was_written(engine: sa.Engine) -> None:
    html = "<script>alert('x')</script> & \"quoted\" %s {x} é 🚀"
    run = a_run(
        [
            Measurement(
                workload=Workload(html, tokens=2**62, bytes_moved=3, flops=4, working_set_bytes=2**62),
                implementation=html,
                status=Status.OK,
                timing=Timing((0.3, 0.1, 0.2, 5e-324), Clock.CUDA_EVENT, iterations=10**9, resolution=5e-7),
                error=1e-3,
                tolerance=2e-3,
                verified=True,
                reason=f"{html}\nsecond line",
                extras={html: html, "registers": 255, "spills": 0.5, "graph": True},
            ),
            a_measurement("torch-graph", status=Status.UNSUPPORTED, reason="no CUDA"),
        ],
        suite=html,
        commit=Commit(a_sha(9), (a_sha(8), a_sha(7)), 9, EPOCH - timedelta(days=1), html),
        hardware=dataclasses.replace(H200, partition="1g.18gb"),
        environment=dataclasses.replace(ENVIRONMENT, image=html),
        session=html,
        index=7,
        status=RunStatus.TIMEOUT,
        telemetry=Telemetry(sm_clock_hz=(1.2e9, 1.98e9), throttled=("sw_power_cap",), others=(html,)),
        reason=html,
        log_tail=f"{html}\t\n\n",
    )
    stored = ingest(engine, run)
    [row] = reads.runs(engine, suite=html)
    [timed, unsupported] = [point for _, point in reads.session_points(engine, html)]

    assert (row.id, row.commit, row.reason, row.log_tail) == (stored.run_id, run.commit, run.reason, run.log_tail)
    assert (row.session, row.index, row.status) == (run.session, run.index, run.status)
    assert (row.origin, row.started_at, row.finished_at) == (run.origin, run.started_at, run.finished_at)
    assert (row.artifact_sha256, row.hardware, row.node) == (an_artifact(run).sha256, "h200", "node-a")
    assert reads.hardware(engine) == (run.hardware,)
    assert reads.nodes(engine) == (run.node,)
    assert reads.environment(engine, timed.environment) == run.environment
    assert reads.environments(engine) == {timed.environment: run.environment}
    assert reads.controls(engine, stored.run_id) == run.controls
    assert reads.samples(engine, timed.series_id, stored.run_id) == (0.3, 0.1, 0.2, 5e-324)
    assert (timed.n, timed.median, timed.tokens, timed.resolution) == (4, 0.15000000000000002, 2**62, 5e-7)
    assert (timed.verified, timed.reason, timed.harness) == (True, run.measurements[0].reason, run.harness)
    assert timed.floor == floor_latency(run.measurements[0].workload, CONTROLS)
    assert (unsupported.status, unsupported.median, unsupported.n) == (Status.UNSUPPORTED, None, 0)
    assert (unsupported.mad, unsupported.p10, unsupported.p90) == (None, None, None)
    assert reads.samples(engine, unsupported.series_id, stored.run_id) == ()
    with reading(engine) as connection:
        found = connection.execute(sa.select(tables.measurement).where(tables.measurement.c.n == 4)).one()
        telemetry = connection.scalar(sa.select(tables.run.c.telemetry))
    assert (found.extras, found.error, found.tolerance) == (dict(run.measurements[0].extras), 1e-3, 2e-3)
    assert (found.clock, found.iterations, found.working_set_bytes) == (Clock.CUDA_EVENT, 10**9, 2**62)
    assert telemetry["sm_clock_hz"] == [1.2e9, 1.98e9]
    assert telemetry["others"] == [html]


@given(st.lists(st.floats(allow_nan=False), max_size=50))
def test_packed_samples_come_back_bit_for_bit(samples: list[float]) -> None:
    packed = writes.pack(samples)
    assert len(packed) == 8 * len(samples)
    assert reads.unpack(packed) == tuple(samples)


def test_packed_samples_are_little_endian_float64() -> None:
    assert writes.pack([1.0, -2.5]).hex() == "000000000000f03f" + "00000000000004c0"


def test_a_result_of_a_run_without_measurements_is_kept(engine: sa.Engine) -> None:
    ingest(engine, a_run([], controls=(), status=RunStatus.BUILD_FAILED, reason="nvcc is not there"))
    [run] = reads.runs(engine, suite="kernels")
    assert (run.status, run.reason) == (RunStatus.BUILD_FAILED, "nvcc is not there")
    assert reads.all_series(engine) == ()


def test_a_delivered_result_may_be_told_to_be_recorded(engine: sa.Engine) -> None:
    ingest(engine, a_run(), origin=Origin.RECORDED)
    assert reads.runs(engine, suite="kernels")[0].origin is Origin.RECORDED


@pytest.mark.parametrize(
    ("stated", "wanted"),
    [
        (Origin.SYNTHETIC, Origin.RECORDED),
        (Origin.SYNTHETIC, Origin.MEASURED),
        (Origin.MEASURED, Origin.SYNTHETIC),
        (Origin.RECORDED, Origin.SYNTHETIC),
        (Origin.RECORDED, Origin.MEASURED),
    ],
)
def test_no_other_origin_may_be_overridden(engine: sa.Engine, stated: Origin, wanted: Origin) -> None:
    with pytest.raises(ArtifactError, match=f"a.perfci.json holds {stated} numbers, not {wanted} ones"):
        ingest(engine, a_run(origin=stated), origin=wanted)
    assert set(reads.counts(engine).values()) == {0}


@pytest.mark.parametrize("first", [Origin.MEASURED, Origin.RECORDED])
@pytest.mark.parametrize("synthetic_first", [True, False])
def test_generated_and_real_numbers_never_share_a_suite(
    engine: sa.Engine, first: Origin, synthetic_first: bool
) -> None:
    origins = [first, Origin.SYNTHETIC]
    stored, refused = reversed(origins) if synthetic_first else origins
    ingest(engine, a_run(origin=stored))
    before = reads.counts(engine)
    with pytest.raises(ArtifactError, match=r"a.perfci.json holds .* the suite 'kernels' holds .* another suite name"):
        ingest(engine, a_run(origin=refused, index=1, commit=a_commit(2), session="another"))
    assert reads.counts(engine) == before
    assert [series.synthetic for series in reads.all_series(engine)] == [stored is Origin.SYNTHETIC]


@pytest.mark.parametrize("metric", [Metric("latency", "ms", Direction.LOWER), Metric("latency", "s", Direction.HIGHER)])
def test_a_series_never_changes_its_unit_or_direction(engine: sa.Engine, metric: Metric) -> None:
    ingest(engine, a_run([a_measurement()]))
    before = reads.counts(engine)
    with pytest.raises(ArtifactError, match=r"decode/tiny / torch-eager / latency is in .* but its series is in 's'"):
        ingest(engine, a_run([a_measurement("new"), a_measurement(metric=metric)], index=1, session="b"))
    assert reads.counts(engine) == before


@pytest.mark.parametrize("fact", [{"model": "NVIDIA H200 NVL"}, {"count": 8}, {"partition": "1g.18gb"}])
def test_times_of_another_device_under_the_same_name_are_refused(engine: sa.Engine, fact: dict[str, Any]) -> None:
    ingest(engine, a_run(hardware=H200))
    before = reads.counts(engine)
    with pytest.raises(ArtifactError, match=r"^a.perfci.json is of .* the hardware 'h200' is 1 x NVIDIA H200; "):
        ingest(engine, a_run(hardware=dataclasses.replace(H200, **fact), index=1, session="another"))
    assert reads.counts(engine) == before
    assert reads.hardware(engine) == (H200,)


def test_another_power_cap_is_no_other_device(engine: sa.Engine) -> None:
    ingest(engine, a_run(hardware=H200))
    assert ingest(engine, a_run(hardware=dataclasses.replace(H200, power_cap_w=600.0), index=1)).created


def test_a_run_without_times_says_nothing_of_the_device(engine: sa.Engine) -> None:
    """A build that failed on the near side of a `launch` knows the device by the settings alone."""
    unknown = a_run([], hardware=dataclasses.replace(H200, model="H200"), status=RunStatus.BUILD_FAILED)
    ingest(engine, unknown)
    ingest(engine, a_run(hardware=H200, index=1))
    assert reads.hardware(engine) == (H200,)
    assert ingest(engine, dataclasses.replace(unknown, index=2)).created
    assert reads.hardware(engine) == (H200,)


def test_two_metrics_of_one_implementation_are_two_series(engine: sa.Engine) -> None:
    ingest(engine, a_run([a_measurement(), a_measurement(samples=(100.0,), metric=THROUGHPUT)]))
    assert [(s.key.metric, s.unit, s.direction) for s in reads.all_series(engine)] == [
        (LATENCY.name, LATENCY.unit, LATENCY.direction),
        ("throughput", "token/s", Direction.HIGHER),
    ]


def test_a_floor_comes_from_the_controls_of_its_own_run(engine: sa.Engine) -> None:
    doubled = tuple(dataclasses.replace(control, value=2 * control.value) for control in CONTROLS)
    ingest(engine, a_run(index=0))
    ingest(engine, a_run(index=1, controls=doubled))
    ingest(engine, a_run(index=2, controls=()))
    floor = floor_latency(a_workload(), CONTROLS)
    assert floor is not None
    [series] = reads.all_series(engine)
    assert [point.floor for point in reads.history(engine, series.id)] == [floor, floor / 2, None]


def test_one_name_with_two_devices_is_two_nodes(engine: sa.Engine) -> None:
    for index, uuid in enumerate(["GPU-1", "GPU-2", "GPU-1"]):
        ingest(engine, a_run(index=index, node=dataclasses.replace(a_run().node, device_uuid=uuid)))
    assert [node.device_uuid for node in reads.nodes(engine)] == ["GPU-1", "GPU-2"]


def test_equal_environments_share_a_fingerprint_and_others_do_not(engine: sa.Engine) -> None:
    for index, driver in enumerate(["570.1", "570.2", "570.1"]):
        ingest(engine, a_run(index=index, environment=dataclasses.replace(ENVIRONMENT, driver=driver)))
    [series] = reads.all_series(engine)
    first, second, third = (point.environment for point in reads.history(engine, series.id))
    assert first == third != second


def test_a_fingerprint_is_the_same_on_every_machine_and_day() -> None:
    assert writes.fingerprint(ENVIRONMENT) == "a1f1975c1798248a"
