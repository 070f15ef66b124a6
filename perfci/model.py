"""The nouns of perfci; each has one meaning here, in SQL, on the command line and on the pages.

Base SI units throughout; fractions are fractions. Standard library only: every other room, the measured
process included, imports this one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Status(StrEnum):
    """What became of one Measurement."""

    OK = "ok"
    CHECKED = "checked"  # output correct, but a time on this device would be no performance number
    INCORRECT = "incorrect"
    ERROR = "error"
    TIMEOUT = "timeout"
    BUILD_FAILED = "build_failed"
    UNSUPPORTED = "unsupported"
    MISSING = "missing"


# Could not be measured, as opposed to: measured, and wrong.
UNMEASURED = frozenset({Status.ERROR, Status.TIMEOUT, Status.BUILD_FAILED, Status.MISSING})


class RunStatus(StrEnum):
    """What became of a whole Run. Anything but `ok` explains the statuses of its measurements."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    BUILD_FAILED = "build_failed"


class Origin(StrEnum):
    """Where a Run's numbers come from."""

    MEASURED = "measured"  # by this installation
    RECORDED = "recorded"  # measured elsewhere and delivered with the repository
    SYNTHETIC = "synthetic"  # made by a generator; never shares a Series with the other two


class Direction(StrEnum):
    LOWER = "lower_is_better"
    HIGHER = "higher_is_better"


class Clock(StrEnum):
    """What timed the samples."""

    CUDA_EVENT = "cuda_event"
    PERF_COUNTER = "perf_counter"
    FOREIGN = "foreign"  # a timer that the suite brought itself


class AlertState(StrEnum):
    NEW = "new"
    CONFIRMED = "confirmed"
    INVESTIGATING = "investigating"
    ACCEPTED = "accepted"
    FIXED = "fixed"
    BACKED_OUT = "backed_out"
    INVALID = "invalid"
    INFRASTRUCTURE = "infrastructure"


class ChangeKind(StrEnum):
    REGRESSION = "regression"
    IMPROVEMENT = "improvement"


class AbsenceReason(StrEnum):
    """Why a night has no result of a suite on a hardware, though it was to have one."""

    NO_NODE = "no_node"  # no live node has that hardware
    BUDGET = "budget"  # the night's device minutes were spent on what comes first
    UNAFFECTED = "unaffected"  # the commit leaves the suite's files as they were


class NoticeState(StrEnum):
    """How far telling a channel came. What stays `sending` may have been sent, and is not sent again."""

    SENDING = "sending"
    SENT = "sent"


@dataclass(frozen=True, slots=True)
class Commit:
    """`position` counts first-parent ancestors on the tracked branch (root = 1); None when off it."""

    sha: str
    parents: tuple[str, ...] = ()
    position: int | None = None
    committed_at: datetime | None = None
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Hardware:
    """A class of device; the node that has one may be replaced without breaking a history.

    `memory_bytes` is rounded to GiB so that firmware reservations do not make two classes of one card.
    """

    name: str
    model: str
    count: int = 1
    memory_bytes: int | None = None
    power_cap_w: float | None = None
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """One box and device. `device_uuid` is empty for a CPU."""

    name: str
    device_uuid: str = ""


@dataclass(frozen=True, slots=True)
class Environment:
    """Versions and settings during a Run; empty where there is none (no CUDA on a CPU).

    device: settings of the device that move its speed and stay during a Run, as `name=value` in one line
        (ECC, clock limits, a CPU's governor); never what flutters.
    """

    driver: str = ""
    cuda: str = ""
    torch: str = ""
    triton: str = ""
    python: str = ""
    os_kernel: str = ""
    image: str = ""
    device: str = ""


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    unit: str
    direction: Direction


LATENCY = Metric("latency", "s", Direction.LOWER)


@dataclass(frozen=True, slots=True)
class Control:
    """A rate or time that no commit can change, measured in every Run by perfci itself.

    Names: `read_bandwidth_memory`, `read_bandwidth_cache`, `copy_bandwidth` (B/s), `matmul_rate`
    (flop/s), `empty_launch` (s). `working_set_bytes` is what a bandwidth was measured over.
    """

    name: str
    unit: str
    value: float
    working_set_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one Measurement in one process, in the order in which they were taken.

    samples: each the mean of `iterations` back-to-back steps, in the metric's unit.
    resolution: smallest difference that the clock can show, per sample, in the same unit.
    """

    samples: tuple[float, ...]
    clock: Clock
    iterations: int = 1
    resolution: float = 0.0

    def __post_init__(self) -> None:
        if not self.samples:
            raise ValueError("a Timing needs at least one sample")
        if any(not math.isfinite(s) or s <= 0 for s in self.samples):
            raise ValueError("samples must be finite and positive")


@dataclass(frozen=True, slots=True)
class Summary:
    """Order statistics of one Timing, in the metric's unit."""

    n: int
    median: float
    mad: float
    p10: float
    p90: float


@dataclass(frozen=True, slots=True)
class Workload:
    """An operation at concrete sizes.

    tokens: tokens that one step produces (0: tokens/s has no meaning here).
    bytes_moved, flops: least traffic and arithmetic of one step; working_set_bytes: what a step touches.
    Zero where a suite does not say: there is no ceiling then.
    """

    name: str
    tokens: int = 0
    bytes_moved: int = 0
    flops: int = 0
    working_set_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one Run found for one Series.

    error: largest norm-relative error of an output against the reference, None when not compared.
    reason: why there is no timing, or what a reader of the timing must know; one paragraph.
    extras: compile metrics and other small facts (finite numbers, short strings).
    trace: where the step's time went, base64 of whatever the suite packs; kept with the result file, read by the suite.
    """

    workload: Workload
    implementation: str
    status: Status
    metric: Metric = LATENCY
    verified: bool = False
    timing: Timing | None = None
    error: float | None = None
    tolerance: float | None = None
    reason: str = ""
    extras: Mapping[str, float | int | str | bool] = field(default_factory=dict)
    trace: str = ""

    def __post_init__(self) -> None:
        if (self.status is Status.OK) != (self.timing is not None):
            raise ValueError(
                f"{self.workload.name} / {self.implementation}: status {self.status} contradicts its timing"
            )


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What was seen on the device while a Run measured; None where the device does not say.

    throttled: reasons as NVML names them, without the harmless ones (idle, application clocks).
    others: other processes that used the device.
    """

    sm_clock_hz: tuple[float, float] | None = None  # least, greatest
    memory_clock_hz: tuple[float, float] | None = None
    temperature_c: tuple[float, float] | None = None
    power_w: tuple[float, float] | None = None
    throttled: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    load_average: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a suite at one commit in one fresh process on one node.

    session groups the runs of one visit to a node; index counts a session's processes from 0.
    harness identifies perfci's version and sampling rules: a change of it starts a new segment of a
    history and is blamed on no commit.
    """

    suite: str
    commit: Commit
    hardware: Hardware
    node: Node
    environment: Environment
    session: str
    index: int
    origin: Origin
    status: RunStatus
    harness: str
    started_at: datetime
    finished_at: datetime
    measurements: tuple[Measurement, ...]
    controls: tuple[Control, ...] = ()
    telemetry: Telemetry = Telemetry()
    reason: str = ""
    log_tail: str = ""


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """One line on a chart."""

    suite: str
    workload: str
    implementation: str
    metric: str
    hardware: str


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A series changed level at `index` of its history (the first point of the new level).

    ratio: new level over old level of the metric as stored; low, high: its 95 % interval.
    """

    index: int
    ratio: float
    low: float
    high: float


def change_kind(ratio: float, direction: Direction) -> ChangeKind:
    """A ratio of 1 is no change; callers do not ask then."""
    worse = ratio > 1 if direction is Direction.LOWER else ratio < 1
    return ChangeKind.REGRESSION if worse else ChangeKind.IMPROVEMENT


def tokens_per_second(tokens: int, latency: float) -> float | None:
    return tokens / latency if tokens > 0 else None
