"""From points (one a process) to levels (one a commit), which is what the pages show. Pure; rows in, rows out.

The fresh process is the unit of evidence: a level is the median over its processes, and its spread is theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import groupby, pairwise
from statistics import median

from perfci.model import Commit, Origin, Status
from perfci.stats.ceiling import ceiling_fraction
from perfci.store.rows import Point, SeriesRow


class Shown(StrEnum):
    """What a chart draws of a series."""

    TOKENS = "tokens"  # per second
    METRIC = "metric"  # as stored: a latency
    CHANGE = "change"  # gain over the line's own median: small changes of lines that are far apart


@dataclass(frozen=True, slots=True)
class Level:
    """A series at one commit in one environment.

    middle, low, high: median, least and greatest over its timed processes, in the metric's unit; None when none
    was timed. processes: the timed ones, all where none was timed. failures: statuses other than ok with their
    reason, each once. floor as in Point, the newest known. ceiling_fraction: median over the processes of each one's
    share of its own ceiling; None where that is unknown.
    """

    commit: Commit
    environment: str
    harness: str
    origin: Origin
    verified: bool
    newest_at: datetime
    nodes: tuple[str, ...]
    middle: float | None
    low: float | None
    high: float | None
    processes: int
    failures: tuple[tuple[Status, str], ...]
    tokens: int
    floor: float | None
    ceiling_fraction: float | None

    @property
    def spread(self) -> float | None:
        """Half the range over the processes, as a share of the level; None below two processes: unknown, not zero."""
        if self.processes < 2 or self.middle is None or self.low is None or self.high is None:
            return None
        return (self.high - self.low) / 2 / self.middle


def levels(points: Sequence[Point]) -> tuple[Level, ...]:
    """Points as `reads.history` orders them; neighbours of one commit and one era are put together."""
    groups = groupby(points, key=lambda p: (p.commit.position, p.commit.sha, p.environment, p.harness))
    return tuple(level(tuple(group)) for _, group in groups)


def level(points: tuple[Point, ...]) -> Level:
    newest = max(points, key=lambda p: p.started_at)
    values = [p.median for p in points if p.median is not None]
    failures = dict.fromkeys((p.status, p.reason) for p in points if p.status is not Status.OK)
    timed = [p for p in points if p.status is Status.OK]
    fractions = [f for p in timed if (f := ceiling_fraction(p.floor, p.median)) is not None]
    return Level(
        commit=newest.commit,
        environment=newest.environment,
        harness=newest.harness,
        origin=newest.origin,
        verified=all(p.verified for p in timed or points),
        newest_at=newest.started_at,
        nodes=tuple(sorted({p.node for p in points})),
        middle=median(values) if values else None,
        low=min(values, default=None),
        high=max(values, default=None),
        processes=len(values or points),
        failures=tuple(failures),
        tokens=max(p.tokens for p in points),
        floor=next((p.floor for p in reversed(points) if p.floor is not None), None),
        ceiling_fraction=median(fractions) if fractions else None,
    )


@dataclass(frozen=True, slots=True)
class Line:
    """One series' whole history."""

    series: SeriesRow
    levels: tuple[Level, ...]

    @property
    def name(self) -> str:
        return self.series.key.implementation


def segments(history: Sequence[Level]) -> tuple[tuple[Level, ...], ...]:
    """Runs of timed levels that a line may join.

    A line is broken where a commit between was tried without a time, where environment or harness changed, and
    where at least twice the usual number of commits went by unmeasured: what was not measured is not drawn.
    """
    timed = [level for level in history if level.middle is not None]
    usual = max(1.0, median([_step(a, b) for a, b in pairwise(timed)])) if len(timed) > 1 else 1.0
    failed = [level.commit.position or 0 for level in history if level.middle is None]
    parts: list[list[Level]] = []
    for level in timed:
        before = parts[-1][-1] if parts else None
        if before is None or not _joined(before, level, usual, failed):
            parts.append([])
        parts[-1].append(level)
    return tuple(tuple(part) for part in parts)


def _step(a: Level, b: Level) -> int:
    return (b.commit.position or 0) - (a.commit.position or 0)


def _joined(a: Level, b: Level, usual: float, failed: Sequence[int]) -> bool:
    if (a.environment, a.harness) != (b.environment, b.harness) or _step(a, b) >= 2 * usual:
        return False
    return not any((a.commit.position or 0) < position < (b.commit.position or 0) for position in failed)


def options(lines: Sequence[Line]) -> tuple[Shown, ...]:
    """Tokens/s only where a workload counts tokens."""
    counted = any(level.tokens > 0 for line in lines for level in line.levels)
    return (Shown.TOKENS, Shown.METRIC, Shown.CHANGE) if counted else (Shown.METRIC, Shown.CHANGE)
