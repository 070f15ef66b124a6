"""What several SELECTs share: their joins and columns, and how a record of them becomes a row."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from perfci.model import Commit, Control, Environment, Hardware, SeriesKey, Workload
from perfci.stats.ceiling import floor_latency
from perfci.store import tables as t
from perfci.store.rows import AbsenceRow, AlertRow, Point, RunRow, SeriesRow

Record = sa.Row[Any]

SERIES = (
    t.series.c.id.label("series_id"),
    t.suite.c.name.label("suite"),
    t.suite.c.synthetic,
    t.series.c.workload,
    t.series.c.implementation,
    t.series.c.metric,
    t.hardware.c.name.label("hardware"),
    t.series.c.unit,
    t.series.c.direction,
)
SERIES_ORDER = (t.suite.c.name, t.hardware.c.name, t.series.c.workload, t.series.c.implementation, t.series.c.metric)
COMMIT = (t.commit.c.sha, t.commit.c.parents, t.commit.c.position, t.commit.c.committed_at, t.commit.c.subject)
# Branch order; dates of commits play no part. Commits off the branch come last.
COMMIT_ORDER = (t.commit.c.position.is_(None), t.commit.c.position, t.commit.c.id)

_m = t.measurement.c
_POINT = (
    _m.series_id.label("point_series_id"),
    _m.run_id,
    *COMMIT,
    t.session.c.name.label("session"),
    t.run.c.index.label("number"),
    t.run.c.started_at,
    t.node.c.name.label("node"),
    t.environment.c.fingerprint,
    t.run.c.harness,
    t.run.c.origin,
    *(_m.status, _m.verified, _m.reason, _m.n, _m.median, _m.mad, _m.p10, _m.p90, _m.resolution),
    *(_m.tokens, _m.bytes_moved, _m.flops, _m.working_set_bytes),
)
_RUN = (
    t.run.c.id,
    t.run.c.artifact_sha256,
    t.suite.c.name.label("suite"),
    *COMMIT,
    t.hardware.c.name.label("hardware"),
    t.node.c.name.label("node"),
    t.session.c.name.label("session"),
    t.run.c.index.label("number"),
    *(t.run.c.origin, t.run.c.status, t.run.c.reason, t.run.c.log_tail, t.run.c.started_at, t.run.c.finished_at),
    *(t.run.c.telemetry, t.run.c.device_seconds),
)


def select_series() -> sa.Select[Any]:
    return (
        sa.select(*SERIES)
        .join_from(t.series, t.suite, t.suite.c.id == t.series.c.suite_id)
        .join(t.hardware, t.hardware.c.id == t.series.c.hardware_id)
    )


def select_points(*, with_series: bool = False) -> sa.Select[Any]:
    """Measurements with what a Point needs of their runs; floors come later, see `points`."""
    wanted = (
        sa.select(*_POINT)
        .join_from(t.measurement, t.run, t.run.c.id == t.measurement.c.run_id)
        .join(t.commit, t.commit.c.id == t.run.c.commit_id)
        .join(t.session, t.session.c.id == t.run.c.session_id)
        .join(t.node, t.node.c.id == t.run.c.node_id)
        .join(t.environment, t.environment.c.id == t.run.c.environment_id)
    )
    if not with_series:
        return wanted
    return (
        wanted.add_columns(*SERIES)
        .join(t.series, t.series.c.id == t.measurement.c.series_id)
        .join(t.suite, t.suite.c.id == t.series.c.suite_id)
        .join(t.hardware, t.hardware.c.id == t.series.c.hardware_id)
    )


def select_runs() -> sa.Select[Any]:
    return (
        sa.select(*_RUN)
        .join_from(t.run, t.commit, t.commit.c.id == t.run.c.commit_id)
        .join(t.suite, t.suite.c.id == t.run.c.suite_id)
        .join(t.hardware, t.hardware.c.id == t.run.c.hardware_id)
        .join(t.node, t.node.c.id == t.run.c.node_id)
        .join(t.session, t.session.c.id == t.run.c.session_id)
    )


def select_alerts() -> sa.Select[Any]:
    return (
        sa.select(*(c for c in t.alert.c if c.name != "series_id"), *COMMIT, *SERIES)
        .join_from(t.alert, t.commit, t.commit.c.id == t.alert.c.commit_id)
        .join(t.series, t.series.c.id == t.alert.c.series_id)
        .join(t.suite, t.suite.c.id == t.series.c.suite_id)
        .join(t.hardware, t.hardware.c.id == t.series.c.hardware_id)
    )


def select_absences() -> sa.Select[Any]:
    a = t.absence.c
    return (
        sa.select(
            t.session.c.name.label("session"),
            t.suite.c.name.label("suite"),
            *(a.hardware, a.reason, a.text, a.created_at),
        )
        .join_from(t.absence, t.session, t.session.c.id == a.session_id)
        .join(t.suite, t.suite.c.id == a.suite_id)
    )


def points(connection: sa.Connection, records: Sequence[Record]) -> tuple[Point, ...]:
    """Points in the order of `records`, each with the floor that its own run's controls give."""
    bounded = {record.run_id for record in records if record.bytes_moved or record.flops}
    known = controls(connection, bounded)
    return tuple(_point(record, known.get(record.run_id, ())) for record in records)


def controls(connection: sa.Connection, run_ids: Iterable[int]) -> Mapping[int, tuple[Control, ...]]:
    """By run."""
    found: dict[int, list[Control]] = defaultdict(list)
    c = t.control.c
    for part in in_parts(sorted(run_ids)):
        wanted = sa.select(t.control).where(c.run_id.in_(part)).order_by(c.run_id, c.number)
        for record in connection.execute(wanted):
            found[record.run_id].append(Control(record.name, record.unit, record.value, record.working_set_bytes))
    return {run_id: tuple(each) for run_id, each in found.items()}


def in_parts(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """For IN: SQLite takes 32,766 parameters a statement, and PostgreSQL plans long lists slowly."""
    return (ids[start : start + 10_000] for start in range(0, len(ids), 10_000))


def series_row(record: Record) -> SeriesRow:
    return SeriesRow(
        id=record.series_id,
        key=_series_key(record),
        unit=record.unit,
        direction=record.direction,
        synthetic=record.synthetic,
    )


def run_row(record: Record) -> RunRow:
    return RunRow(
        id=record.id,
        artifact_sha256=record.artifact_sha256,
        suite=record.suite,
        commit=_commit(record),
        hardware=record.hardware,
        node=record.node,
        session=record.session,
        index=record.number,
        origin=record.origin,
        status=record.status,
        reason=record.reason,
        log_tail=record.log_tail,
        started_at=record.started_at,
        finished_at=record.finished_at,
        disturbed=(*record.telemetry["throttled"], *record.telemetry["others"]),
        device_seconds=record.device_seconds,
    )


def alert_row(record: Record) -> AlertRow:
    return AlertRow(
        id=record.id,
        series=_series_key(record),
        series_id=record.series_id,
        commit=_commit(record),
        kind=record.kind,
        ratio=record.ratio,
        low=record.low,
        high=record.high,
        state=record.state,
        assignee=record.assignee,
        note=record.note,
        created_at=record.created_at,
        updated_at=record.updated_at,
        evidence=record.evidence,
    )


def absence_row(record: Record) -> AbsenceRow:
    return AbsenceRow(
        session=record.session,
        suite=record.suite,
        hardware=record.hardware,
        reason=record.reason,
        text=record.text,
        created_at=record.created_at,
    )


def hardware(record: Record) -> Hardware:
    return Hardware(
        name=record.name,
        model=record.model,
        count=record._mapping["count"],  # a Row is a tuple, which has a `count` of its own
        memory_bytes=record.memory_bytes,
        power_cap_w=record.power_cap_w,
        partition=record.partition,
    )


def environment(record: Record) -> Environment:
    return Environment(**{field.name: getattr(record, field.name) for field in dataclasses.fields(Environment)})


def _point(record: Record, run_controls: Sequence[Control]) -> Point:
    workload = Workload(
        name="",
        tokens=record.tokens,
        bytes_moved=record.bytes_moved,
        flops=record.flops,
        working_set_bytes=record.working_set_bytes,
    )
    return Point(
        series_id=record.point_series_id,
        run_id=record.run_id,
        commit=_commit(record),
        session=record.session,
        index=record.number,
        started_at=record.started_at,
        node=record.node,
        environment=record.fingerprint,
        harness=record.harness,
        origin=record.origin,
        status=record.status,
        verified=record.verified,
        reason=record.reason,
        n=record.n,
        median=record.median,
        mad=record.mad,
        p10=record.p10,
        p90=record.p90,
        resolution=record.resolution,
        tokens=record.tokens,
        floor=floor_latency(workload, run_controls),
    )


def _commit(record: Record) -> Commit:
    return Commit(
        sha=record.sha,
        parents=tuple(record.parents),
        position=record.position,
        committed_at=record.committed_at,
        subject=record.subject,
    )


def _series_key(record: Record) -> SeriesKey:
    return SeriesKey(record.suite, record.workload, record.implementation, record.metric, record.hardware)
