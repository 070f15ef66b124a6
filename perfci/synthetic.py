"""A year of nightly results that nobody measured: to look at pages and detectors without a GPU and without a wait.

Levels and noise are those of an H200 (decode of a 1-billion-parameter model, batch 1): processes of one night differ
by 0.1 %, nights wander by as much with memory, host-bound launches are noisier by two orders. Everything is a function
of the seed. What is planted is told by PLANTED and by the subjects of the commits.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from perfci.model import (
    Clock,
    Commit,
    Control,
    Environment,
    Hardware,
    Measurement,
    Node,
    Origin,
    Run,
    RunStatus,
    Status,
    Timing,
    Workload,
)

SUITE = "synthetic-year"
NIGHTS = 365
PROCESSES = 3
FIRST_NIGHT = datetime(2025, 12, 1, 2, 0, tzinfo=UTC)  # fixed: the same seed gives the same files on any day

HARDWARE = Hardware("synthetic-h200", "generated, no device", memory_bytes=141 * 2**30, power_cap_w=700.0)
NODES = (Node("synthetic-node-1", "GENERATED-1"), Node("synthetic-node-2", "GENERATED-2"))
WORKLOAD = Workload(
    "decode/llama-1b/b1-ctx512-bf16",
    tokens=1,
    bytes_moved=2_488_000_000,
    flops=2_500_000_000,
    working_set_bytes=2_488_000_000,
)

REGRESSION, IMPROVEMENT = 251, 122  # positions of the commits
DRIVER_CHANGE, HARNESS_CHANGE = 181, 46
GAP = range(141, 147)
BUILD_FAILED, TIMED_OUT, INCORRECT = 96, 211, (229, 230)

PLANTED = {
    IMPROVEMENT: "Issue weight loads before the dependency wait (planted: modular-pdl 4 % faster)",
    REGRESSION: "Halve the tile of the down projection (planted: modular-pdl 3 % slower)",
    BUILD_FAILED: "Rename the barrier header (planted: the build fails)",
    TIMED_OUT: "Poll without backing off (planted: one process hangs)",
    INCORRECT[0]: "Drop a fence before the output projection (planted: megakernel-graph is wrong)",
}
_SUBJECTS = (
    "Tidy the launch code",
    "Document the layout of the key cache",
    "Test odd head counts",
    "Name the stages of a step",
    "Type the registry",
    "Simplify the reference",
    "Draw inputs from a seed",
    "Split a long kernel file",
)


@dataclass(frozen=True, slots=True)
class _Line:
    """Seconds a step; standard deviations of the logarithm between processes, and of its wandering over nights."""

    latency: float
    process_noise: float = 0.001
    wander: float = 0.0008


_LINES = {
    "torch-eager": _Line(5890e-6, process_noise=0.05, wander=0.03),
    "torch-graph": _Line(1696e-6),
    "torch-compile": _Line(1206e-6, process_noise=0.0015),
    "modular-graph": _Line(814e-6),
    "modular-pdl": _Line(726e-6),
    "megakernel-graph": _Line(760e-6),
}
_STEPS = {  # implementation -> (position, ratio of latency from there on)
    "modular-pdl": ((IMPROVEMENT, 0.96), (REGRESSION, 1.03)),
}
_DRIVER_RATIO = 0.994  # a newer driver is a little faster; no commit's doing


def commits(seed: int) -> tuple[Commit, ...]:
    """The branch, oldest first: one commit a day."""
    made: list[Commit] = []
    for position in range(1, NIGHTS + 1):
        subject = PLANTED.get(position, _SUBJECTS[position * 5 % len(_SUBJECTS)])
        made.append(
            Commit(
                sha=hashlib.sha256(f"perfci synthetic {seed} {position}".encode()).hexdigest()[:40],
                parents=(made[-1].sha,) if made else (),
                position=position,
                committed_at=FIRST_NIGHT + timedelta(days=position - 1, hours=-9),
                subject=subject,
            )
        )
    return tuple(made)


def year(seed: int, *, nights: int = NIGHTS) -> Iterator[Run]:
    """Runs of the first `nights` nights in the order of time, PROCESSES a night; nights of GAP have none."""
    chance = random.Random(f"perfci synthetic {seed}")
    drift = dict.fromkeys(_LINES, 0.0)
    for commit in commits(seed)[:nights]:
        for name, line in _LINES.items():
            # An autoregressive wandering with a memory of about ten nights.
            drift[name] = 0.9 * drift[name] + chance.gauss(0, line.wander * math.sqrt(1 - 0.9**2))
        if commit.position in GAP:
            continue
        for index in range(PROCESSES):
            yield _run(commit, index, drift, chance)


def _run(commit: Commit, index: int, drift: dict[str, float], chance: random.Random) -> Run:
    position = commit.position or 0
    started_at = FIRST_NIGHT + timedelta(days=position - 1, minutes=4 * index)
    node = NODES[position // 7 % 2]
    newer = position >= DRIVER_CHANGE
    hung = position == TIMED_OUT and index == 1
    status = RunStatus.BUILD_FAILED if position == BUILD_FAILED else RunStatus.TIMEOUT if hung else RunStatus.OK
    reason = {
        RunStatus.BUILD_FAILED: "the build ended with exit code 1",
        RunStatus.TIMEOUT: "stopped after 1800 s",
    }.get(status, "")
    return Run(
        suite=SUITE,
        commit=commit,
        hardware=HARDWARE,
        node=node,
        environment=Environment(
            driver="590.44" if newer else "580.159",
            cuda="13.0",
            torch="2.11.0",
            triton="3.6.0",
            python="3.12.3",
            os_kernel="generated",
        ),
        session=f"synthetic-{started_at:%Y-%m-%d}",
        index=index,
        origin=Origin.SYNTHETIC,
        status=status,
        harness="generated/2" if position >= HARNESS_CHANGE else "generated/1",
        started_at=started_at,
        finished_at=started_at + timedelta(minutes=3),
        measurements=tuple(_measurement(name, commit, status, reason, drift[name], node, chance) for name in _LINES),
        controls=() if status is RunStatus.BUILD_FAILED else _controls(chance, newer=newer),
        reason=reason,
        log_tail="error: barrier.h: no such file" if status is RunStatus.BUILD_FAILED else "",
    )


def _measurement(  # noqa: PLR0917
    name: str, commit: Commit, run: RunStatus, reason: str, drift: float, node: Node, chance: random.Random
) -> Measurement:
    position, line = commit.position or 0, _LINES[name]
    latency = line.latency * math.exp(drift + chance.gauss(0, line.process_noise))
    for start, ratio in _STEPS.get(name, ()):
        latency *= ratio if position >= start else 1.0
    latency *= _DRIVER_RATIO if position >= DRIVER_CHANGE else 1.0
    latency *= 1.0005 if node is NODES[1] else 1.0
    if run is not RunStatus.OK:
        return Measurement(WORKLOAD, name, Status(run.value), reason=reason)
    if name == "megakernel-graph" and position in INCORRECT:
        return Measurement(
            WORKLOAD,
            name,
            Status.INCORRECT,
            verified=True,
            error=0.31,
            tolerance=0.02,
            reason="logits differ from the reference by 0.31, 0.02 is allowed",
        )
    # Tenths of a nanosecond: finer than any clock, and the same text on every machine.
    samples = tuple(round(latency * math.exp(chance.gauss(0, 0.001)), 10) for _ in range(12))
    return Measurement(
        WORKLOAD,
        name,
        Status.OK,
        verified=True,
        timing=Timing(samples, Clock.CUDA_EVENT, iterations=20, resolution=2.5e-8),
        error=0.00026,
        tolerance=0.02,
    )


def _controls(chance: random.Random, *, newer: bool) -> tuple[Control, ...]:
    def near(value: float) -> float:
        return round(value * (1.003 if newer else 1.0) * math.exp(chance.gauss(0, 0.0005)), 12)

    return (
        Control("read_bandwidth_memory", "B/s", near(4.51e12), working_set_bytes=4_300_000_000),
        Control("read_bandwidth_cache", "B/s", near(7.9e12), working_set_bytes=25_000_000),
        Control("copy_bandwidth", "B/s", near(4.27e12), working_set_bytes=4_300_000_000),
        Control("matmul_rate", "flop/s", near(7.9e14)),
        Control("empty_launch", "s", near(2.4e-6)),
    )
