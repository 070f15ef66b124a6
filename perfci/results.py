"""What is known of each series at one commit, over all its processes: the rows of `perfci results`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from sqlalchemy import Engine

from perfci.model import Origin, RunStatus, Status, tokens_per_second
from perfci.stats.ceiling import ceiling_fraction
from perfci.store import reads
from perfci.store.rows import Point, RunRow, SeriesRow

# Worst first. One process that fails says more than two that do not.
SEVERITY = (
    Status.INCORRECT,
    Status.BUILD_FAILED,
    Status.TIMEOUT,
    Status.ERROR,
    Status.MISSING,
    Status.UNSUPPORTED,
    Status.CHECKED,
    Status.OK,
)


@dataclass(frozen=True, slots=True)
class Result:
    """One series at one commit. The names are those of `perfci results --json` and stay.

    median_s: seconds, median over the processes' medians; None unless status is ok. ceiling_fraction: 1 is the
    least possible latency. n_runs: processes that it rests on.
    """

    suite: str
    commit: str
    workload: str
    implementation: str
    hardware: str
    node: str
    origin: Origin
    status: Status
    verified: bool
    median_s: float | None
    tokens_per_second: float | None
    ceiling_fraction: float | None
    n_runs: int


def newest(engine: Engine) -> tuple[Result, ...]:
    """Each series' newest measured commit, on all hardware. Raises StoreError."""
    return tuple(result(series, points) for series, points in reads.latest(engine))


def result(series: SeriesRow, points: Sequence[Point]) -> Result:
    """`points`: what was found for one series at one commit; at least one. The newest session's environment rules:
    processes of another one are no evidence beside it. So does its status, since a later night may repair an
    earlier one's timeout. An incorrect output stays: the same code gave it, and a race is right most of the time."""
    alike = comparable(points)
    last = alike[-1]
    status = worst([p.status for p in alike if p.session == last.session or p.status is Status.INCORRECT])
    timed = [p for p in alike if p.median is not None and status is Status.OK]
    level = median(p.median for p in timed if p.median is not None) if timed else None
    fractions = [f for p in timed if (f := ceiling_fraction(p.floor, p.median)) is not None]
    return Result(
        suite=series.key.suite,
        commit=last.commit.sha,
        workload=series.key.workload,
        implementation=series.key.implementation,
        hardware=series.key.hardware,
        node=last.node,
        origin=last.origin,
        status=status,
        verified=all(p.verified for p in timed or alike),
        median_s=level if series.unit == "s" else None,
        tokens_per_second=None if level is None else tokens_per_second(last.tokens, level),
        ceiling_fraction=median(fractions) if fractions else None,
        n_runs=len(timed or alike),
    )


def comparable(points: Sequence[Point]) -> tuple[Point, ...]:
    """Those of the newest one's environment and harness, oldest first."""
    ordered = sorted(points, key=lambda p: (p.started_at, p.index, p.run_id))
    return tuple(p for p in ordered if (p.environment, p.harness) == (ordered[-1].environment, ordered[-1].harness))


def worst(statuses: Sequence[Status]) -> Status:
    return min(statuses, key=SEVERITY.index)


def broken(runs: Sequence[RunRow]) -> tuple[RunRow, ...]:
    """Of one commit's runs those that broke as a whole, one for each reason."""
    found = sorted((r for r in runs if r.status is not RunStatus.OK), key=lambda r: (r.status, r.reason, r.index))
    return tuple(next(group) for _, group in groupby(found, key=lambda r: (r.status, r.reason)))


def spread(points: Sequence[Point]) -> float | None:
    """Half the range of the processes' medians over their median; None below two processes: unknown, not zero."""
    medians = [p.median for p in points if p.median is not None]
    return (max(medians) - min(medians)) / 2 / median(medians) if len(medians) > 1 else None
