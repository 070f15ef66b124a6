"""Store rows with defaults."""

from __future__ import annotations

from datetime import timedelta

from dashboard.levels import Line, levels
from perfci.model import Commit, Direction, Origin, SeriesKey, Status
from perfci.store.rows import AlertRow, Point, SeriesRow
from tests.build import EPOCH, a_commit


def a_series(
    implementation: str = "modular-pdl",
    *,
    id: int = 1,
    unit: str = "s",
    direction: Direction = Direction.LOWER,
    synthetic: bool = False,
) -> SeriesRow:
    key = SeriesKey("kernels", "decode/tiny", implementation, "latency", "h200")
    return SeriesRow(id, key, unit, direction, synthetic)


def a_point(
    position: int | None = 1,
    median: float | None = 1e-3,
    *,
    index: int = 0,
    commit: Commit | None = None,
    status: Status | None = None,
    session: str = "",
    environment: str = "e1",
    harness: str = "h1",
    origin: Origin = Origin.MEASURED,
    verified: bool = True,
    reason: str = "",
    tokens: int = 1,
    floor: float | None = 5e-4,
    series_id: int = 1,
) -> Point:
    timed = median is not None
    return Point(
        series_id=series_id,
        run_id=(position or 0) * 100 + index,
        commit=commit or a_commit(position),
        session=session or f"night-{position}",
        index=index,
        started_at=EPOCH + timedelta(days=position or 0, minutes=index),
        node="node-a",
        environment=environment,
        harness=harness,
        origin=origin,
        status=status or (Status.OK if timed else Status.ERROR),
        verified=verified,
        reason=reason,
        n=10 if timed else 0,
        median=median,
        mad=median and median * 1e-3,
        p10=median and median * 0.999,
        p90=median and median * 1.001,
        resolution=1e-8,
        tokens=tokens,
        floor=floor,
    )


def a_line(*points: Point, series: SeriesRow | None = None) -> Line:
    return Line(series or a_series(), levels(points))


def an_alert(position: int, *, ratio: float = 1.03, series: SeriesRow | None = None, **more: object) -> AlertRow:
    from perfci.model import AlertState, change_kind

    of = series or a_series()
    return AlertRow(
        id=position,
        series=of.key,
        series_id=of.id,
        commit=a_commit(position),
        kind=change_kind(ratio, of.direction),
        ratio=ratio,
        low=ratio - 0.005,
        high=ratio + 0.005,
        state=AlertState.NEW,
        assignee="",
        note="",
        created_at=EPOCH,
        updated_at=EPOCH,
        evidence=dict(more),
    )
