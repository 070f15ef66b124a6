"""Builders with defaults: a test names what it is about, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from perfci import artifact
from perfci.artifact import Artifact
from perfci.model import (
    LATENCY,
    Clock,
    Commit,
    Control,
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

EPOCH = datetime(2026, 12, 1, 2, 0, tzinfo=UTC)
CPU = Hardware(name="cpu-test-2c", model="Test CPU", memory_bytes=16 * 2**30)
H200 = Hardware(name="h200", model="NVIDIA H200", memory_bytes=141 * 2**30, power_cap_w=700.0)
NODE = Node(name="node-a")
ENVIRONMENT = Environment(torch="2.13.0", triton="3.7.1", python="3.11.7", os_kernel="6.1.0")
SAMPLES = (0.0101, 0.0100, 0.0102, 0.0100, 0.0103)
TELEMETRY = Telemetry(load_average=0.5)
CONTROLS = (
    Control("read_bandwidth_cache", "B/s", 40e9, working_set_bytes=2**20),
    Control("read_bandwidth_memory", "B/s", 10e9, working_set_bytes=2**28),
    Control("matmul_rate", "flop/s", 100e9),
)


def a_sha(seed: object = 1) -> str:
    """Forty hexadecimal digits, equal for equal seeds."""
    return hashlib.sha1(str(seed).encode(), usedforsecurity=False).hexdigest()


def a_commit(
    position: int | None = 1,
    *,
    sha: str | None = None,
    committed_at: datetime | None = None,
    subject: str | None = None,
    parents: tuple[str, ...] | None = None,
) -> Commit:
    """By default the sha follows from the position, the parent is the position before, an hour lies between two."""
    place = position or 0
    return Commit(
        sha=sha or a_sha(position),
        parents=parents if parents is not None else ((a_sha(place - 1),) if place > 1 else ()),
        position=position,
        committed_at=committed_at or EPOCH + timedelta(hours=place),
        subject=subject if subject is not None else f"Change number {place}",
    )


def a_workload(name: str = "decode/tiny", **sizes: int) -> Workload:
    return Workload(
        name, **({"tokens": 1, "bytes_moved": 10_000_000, "flops": 1_000_000, "working_set_bytes": 2**29} | sizes)
    )


def a_timing(samples: Sequence[float] = SAMPLES, *, clock: Clock = Clock.PERF_COUNTER, **more: float) -> Timing:
    return Timing(
        samples=tuple(samples),
        clock=clock,
        iterations=int(more.get("iterations", 1)),
        resolution=more.get("resolution", 1e-7),
    )


def a_measurement(
    implementation: str = "torch-eager",
    samples: Sequence[float] = SAMPLES,
    *,
    workload: Workload | str = "decode/tiny",
    status: Status = Status.OK,
    metric: Metric = LATENCY,
    verified: bool | None = None,
    reason: str = "",
    error: float | None = None,
    tolerance: float | None = None,
    extras: Mapping[str, float | int | str | bool] | None = None,
) -> Measurement:
    """Timed and verified by default; with another status than `ok` it has no timing."""
    timed = status is Status.OK
    return Measurement(
        workload=a_workload(workload) if isinstance(workload, str) else workload,
        implementation=implementation,
        status=status,
        metric=metric,
        verified=timed if verified is None else verified,
        timing=a_timing(samples) if timed else None,
        error=error,
        tolerance=tolerance,
        reason=reason or ("" if timed else f"it is {status} in this test"),
        extras=extras or {},
    )


def a_run(
    measurements: Sequence[Measurement] | None = None,
    *,
    samples: Sequence[float] = SAMPLES,
    suite: str = "kernels",
    commit: Commit | None = None,
    hardware: Hardware = CPU,
    node: Node = NODE,
    environment: Environment = ENVIRONMENT,
    session: str = "night-1",
    index: int = 0,
    origin: Origin = Origin.MEASURED,
    status: RunStatus = RunStatus.OK,
    harness: str = "perfci/0.1.0 test",
    started_at: datetime | None = None,
    controls: Sequence[Control] = CONTROLS,
    telemetry: Telemetry = TELEMETRY,
    reason: str = "",
    log_tail: str = "",
) -> Run:
    """One measurement with these samples unless measurements are given; a minute lies between two indices."""
    began = started_at or EPOCH + timedelta(minutes=index)
    return Run(
        suite=suite,
        commit=commit or a_commit(),
        hardware=hardware,
        node=node,
        environment=environment,
        session=session,
        index=index,
        origin=origin,
        status=status,
        harness=harness,
        started_at=began,
        finished_at=began + timedelta(seconds=30),
        measurements=tuple(measurements) if measurements is not None else (a_measurement(samples=samples),),
        controls=tuple(controls),
        telemetry=telemetry,
        reason=reason,
        log_tail=log_tail,
    )


def an_artifact(run: Run | None = None) -> Artifact:
    """What a reader of the Run's file gets: encoded and decoded, so that no test stores what a file cannot hold."""
    return artifact.decode(artifact.encode(run or a_run()), name="a test's result")
