"""What `reads` returns and `writes` takes: plain frozen rows, no SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from perfci.model import (
    AbsenceReason,
    AlertState,
    ChangeKind,
    Commit,
    Direction,
    Origin,
    RunStatus,
    SeriesKey,
    Status,
)


@dataclass(frozen=True, slots=True)
class SeriesRow:
    id: int
    key: SeriesKey
    unit: str
    direction: Direction
    synthetic: bool


@dataclass(frozen=True, slots=True)
class Point:
    """One Measurement of one Series, with what a chart and a detector need of its Run.

    median, mad, p10, p90: over the process's samples, in the metric's unit; None unless status is ok.
    floor: least possible latency by the Run's own controls, None where no ceiling is known.
    environment, harness: fingerprints; a change of either starts a new segment.
    """

    series_id: int
    run_id: int
    commit: Commit
    session: str
    index: int
    started_at: datetime
    node: str
    environment: str
    harness: str
    origin: Origin
    status: Status
    verified: bool
    reason: str
    n: int
    median: float | None
    mad: float | None
    p10: float | None
    p90: float | None
    resolution: float
    tokens: int
    floor: float | None


@dataclass(frozen=True, slots=True)
class RunRow:
    """disturbed: why the device was throttled while it measured, and who else used it.

    device_seconds: wall seconds that its devices were held, times their number.
    """

    id: int
    artifact_sha256: str
    suite: str
    commit: Commit
    hardware: str
    node: str
    session: str
    index: int
    origin: Origin
    status: RunStatus
    reason: str
    log_tail: str
    started_at: datetime
    finished_at: datetime
    disturbed: tuple[str, ...] = ()
    device_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class AlertRow:
    id: int
    series: SeriesKey
    series_id: int
    commit: Commit
    kind: ChangeKind
    ratio: float
    low: float
    high: float
    state: AlertState
    assignee: str
    note: str
    created_at: datetime
    updated_at: datetime
    evidence: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewAlert:
    """ratio, low, high as in ChangePoint; evidence: JSON-able facts of the detector."""

    series_id: int
    commit_sha: str
    kind: ChangeKind
    ratio: float
    low: float
    high: float
    evidence: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Absence:
    """What a night was to measure and did not. text: why, and which commits, in words."""

    suite: str
    hardware: str
    reason: AbsenceReason
    text: str


@dataclass(frozen=True, slots=True)
class AbsenceRow:
    session: str
    suite: str
    hardware: str
    reason: AbsenceReason
    text: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Progress:
    """Of a planned session. planned, finished: processes. told: what it lacks was told by name when it was judged."""

    planned: int
    planned_at: datetime
    finished: int
    told: bool

    @property
    def unfinished(self) -> bool:
        return self.finished < self.planned and not self.told


@dataclass(frozen=True, slots=True)
class Ingested:
    """created is False when the same bytes were stored before."""

    run_id: int
    created: bool


@dataclass(frozen=True, slots=True)
class SuiteRow:
    id: int
    name: str
    synthetic: bool
