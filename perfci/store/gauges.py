"""Statements behind the metrics: few, and each walks over runs or an index, never over all measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from perfci.model import AbsenceReason, AlertState, ChangeKind, NoticeState, RunStatus, Status
from perfci.store import progress
from perfci.store import tables as t
from perfci.store.engine import reading
from perfci.store.rows import Progress

Place = tuple[str, str]  # suite, hardware

# Sessions of these names are no nights: a person or a backfill made them.
_BY_HAND = ("run-%", "backfill-%")
# What was planned before is given up.
_WATCHED = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Totals:
    """Runs of one suite on one hardware with one status, since the database was made."""

    suite: str
    hardware: str
    status: RunStatus
    runs: int
    device_seconds: float
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class NewestNight:
    """commits: how many were measured. runs, results: by (suite, hardware, status). progress: None where nobody planned
    it."""

    progress: Progress | None
    began_at: datetime | None
    finished_at: datetime | None
    commits: Mapping[Place, int]
    runs: Mapping[tuple[str, str, RunStatus], int]
    results: Mapping[tuple[str, str, Status], int]
    device_seconds: Mapping[str, float]
    absences: Mapping[tuple[str, str, AbsenceReason], int]


@dataclass(frozen=True, slots=True)
class Gauges:
    """None of it counts generated results. alerts: by kind, state, and whether detection still sees them.

    unfinished_since: when the oldest session was planned that still lacks processes; None where none does.
    """

    totals: tuple[Totals, ...]
    night: NewestNight | None
    unfinished_since: datetime | None
    alerts: Mapping[tuple[ChangeKind, AlertState, bool], int]
    notices: Mapping[tuple[str, NoticeState], int]
    database_bytes: int


def read(engine: sa.Engine, *, now: datetime) -> Gauges:
    """All at one moment. Raises StoreError."""
    with reading(engine) as connection:
        session_id = _newest_night(connection)
        return Gauges(
            totals=_totals(connection),
            night=None if session_id is None else _night(connection, session_id),
            unfinished_since=progress.unfinished_since(connection, since=now - _WATCHED),
            alerts=_alerts(connection),
            notices=_notices(connection),
            database_bytes=_bytes(connection),
        )


def _totals(connection: sa.Connection) -> tuple[Totals, ...]:
    r = t.run.c
    key = (r.suite_id, r.hardware_id, r.status)
    sums = (sa.func.count(), sa.func.sum(r.device_seconds), sa.func.max(r.finished_at))
    found = connection.execute(sa.select(*key, *sums).group_by(*key)).all()
    suites = _names(connection, t.suite, ~t.suite.c.synthetic)
    hardware = _names(connection, t.hardware)
    told = [
        Totals(suites[suite_id], hardware[hardware_id], *rest)
        for suite_id, hardware_id, *rest in found
        if suite_id in suites
    ]
    return tuple(sorted(told, key=lambda total: (total.suite, total.hardware, total.status)))


def _newest_night(connection: sa.Connection) -> int | None:
    """The session that was planned last; of those that nobody planned, the last that was begun and has something real.
    A rebuild gives the sessions other numbers."""
    s = t.session.c
    measured = sa.exists().where(t.run.c.session_id == s.id, t.run.c.suite_id == t.suite.c.id, ~t.suite.c.synthetic)
    absent = sa.exists().where(t.absence.c.session_id == s.id)
    by_hand = sa.or_(*(s.name.like(pattern) for pattern in _BY_HAND))
    real = sa.or_(s.planned.is_not(None), measured, absent)
    newest = sa.select(s.id).where(~by_hand, real).order_by(s.planned_at.desc().nulls_last(), s.id.desc())
    found: int | None = connection.scalar(newest.limit(1))
    return found


def _night(connection: sa.Connection, session_id: int) -> NewestNight:
    r, place = t.run.c, (t.suite.c.name, t.hardware.c.name)
    mine = (r.session_id == session_id, ~t.suite.c.synthetic)
    runs = (
        sa.select(
            *(*place, r.status, sa.func.count(), sa.func.sum(r.device_seconds)),
            *(sa.func.min(r.started_at), sa.func.max(r.finished_at)),
        )
        .join_from(t.run, t.suite, t.suite.c.id == r.suite_id)
        .join(t.hardware, t.hardware.c.id == r.hardware_id)
        .where(*mine)
        .group_by(*place, r.status)
        .order_by(*place, r.status)
    )
    found = connection.execute(runs).all()
    device_seconds: dict[str, float] = {}
    for _, hardware, _, _, seconds, _, _ in found:
        device_seconds[hardware] = device_seconds.get(hardware, 0.0) + seconds
    return NewestNight(
        progress=next(iter(progress.found(connection, t.session.c.id == session_id)), None),
        began_at=min((record[5] for record in found), default=None),
        finished_at=max((record[6] for record in found), default=None),
        commits=_commits(connection, mine),
        runs={(record[0], record[1], record[2]): record[3] for record in found},
        results=_results(connection, mine),
        device_seconds=device_seconds,
        absences=_absences(connection, session_id),
    )


def _commits(connection: sa.Connection, mine: Sequence[sa.ColumnElement[bool]]) -> Mapping[Place, int]:
    place = (t.suite.c.name, t.hardware.c.name)
    wanted = (
        sa.select(*place, sa.func.count(t.run.c.commit_id.distinct()))
        .join_from(t.run, t.suite, t.suite.c.id == t.run.c.suite_id)
        .join(t.hardware, t.hardware.c.id == t.run.c.hardware_id)
        .where(*mine)
        .group_by(*place)
        .order_by(*place)
    )
    return {(suite, hardware): count for suite, hardware, count in connection.execute(wanted)}


def _results(
    connection: sa.Connection, mine: Sequence[sa.ColumnElement[bool]]
) -> Mapping[tuple[str, str, Status], int]:
    m, place = t.measurement.c, (t.suite.c.name, t.hardware.c.name)
    wanted = (
        sa.select(*place, m.status, sa.func.count())
        .join_from(t.run, t.suite, t.suite.c.id == t.run.c.suite_id)
        .join(t.hardware, t.hardware.c.id == t.run.c.hardware_id)
        .join(t.measurement, m.run_id == t.run.c.id)
        .where(*mine)
        .group_by(*place, m.status)
        .order_by(*place, m.status)
    )
    return {(suite, hardware, status): count for suite, hardware, status, count in connection.execute(wanted)}


def _absences(connection: sa.Connection, session_id: int) -> Mapping[tuple[str, str, AbsenceReason], int]:
    a = t.absence.c
    key = (t.suite.c.name, a.hardware, a.reason)
    wanted = (
        sa.select(*key, sa.func.count())
        .join_from(t.absence, t.suite, t.suite.c.id == a.suite_id)
        .where(a.session_id == session_id)
        .group_by(*key)
        .order_by(*key)
    )
    return {(suite, hardware, reason): count for suite, hardware, reason, count in connection.execute(wanted)}


def _alerts(connection: sa.Connection) -> Mapping[tuple[ChangeKind, AlertState, bool], int]:
    """What stands is in the evidence, which only JSON tells; there are few alerts."""
    a = t.alert.c
    wanted = (
        sa.select(a.kind, a.state, a.evidence)
        .join_from(t.alert, t.series, t.series.c.id == a.series_id)
        .join(t.suite, t.suite.c.id == t.series.c.suite_id)
        .where(~t.suite.c.synthetic)
    )
    counted: dict[tuple[ChangeKind, AlertState, bool], int] = {}
    for kind, state, evidence in connection.execute(wanted):
        stands = bool(evidence.get("found", True)) and not evidence.get("recovered", False)
        counted[kind, state, stands] = counted.get((kind, state, stands), 0) + 1
    return counted


def _notices(connection: sa.Connection) -> Mapping[tuple[str, NoticeState], int]:
    n = t.notification.c
    wanted = sa.select(n.channel, n.state, sa.func.count()).group_by(n.channel, n.state).order_by(n.channel, n.state)
    return {(channel, state): count for channel, state, count in connection.execute(wanted)}


def _bytes(connection: sa.Connection) -> int:
    if connection.dialect.name == "postgresql":
        return int(connection.scalar(sa.select(sa.func.pg_database_size(sa.func.current_database()))) or 0)
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    return int(pages * connection.exec_driver_sql("PRAGMA page_size").scalar_one())


def _names(connection: sa.Connection, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> Mapping[int, str]:
    found = connection.execute(sa.select(table.c.id, table.c.name).where(*conditions))
    return {record.id: record.name for record in found}
