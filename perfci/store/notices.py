"""Statements about who was told what: `notification`, and what there is to tell of a night."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from perfci.model import UNMEASURED, AbsenceReason, NoticeState, RunStatus, Status
from perfci.store import records
from perfci.store import tables as t
from perfci.store.engine import reading, writing
from perfci.store.reads import OPEN
from perfci.store.rows import AlertRow

_n = t.notification.c
# Parameters that a statement may have: SQLite takes 32,766, a row has seven.
_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Subject:
    """What may be told: an alert, or a night. `key` is the same wherever it is told, and after a restore."""

    key: str
    alert_id: int | None = None
    session_id: int | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    key: str
    state: NoticeState
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Trouble:
    """What went wrong with one suite on one hardware. what: an AbsenceReason, RunStatus or Status.

    count: processes for a RunStatus, benchmarks for a Status. text: the reason, or the first benchmark's name.
    """

    what: AbsenceReason | RunStatus | Status
    suite: str
    hardware: str
    commit: str = ""
    subject: str = ""
    count: int = 0
    text: str = ""


def session_id(engine: sa.Engine, session: str) -> int | None:
    with reading(engine) as connection:
        found: int | None = connection.scalar(sa.select(t.session.c.id).where(t.session.c.name == session))
        return found


def open_alerts(engine: sa.Engine, *, since: datetime) -> tuple[AlertRow, ...]:
    """Alerts that ask something of a person, raised since then, oldest first; none of generated series."""
    wanted = (
        records.select_alerts()
        .where(t.alert.c.state.in_(OPEN), t.alert.c.created_at >= since, ~t.suite.c.synthetic)
        .order_by(t.alert.c.created_at, t.alert.c.id)
    )
    with reading(engine) as connection:
        return tuple(records.alert_row(record) for record in connection.execute(wanted))


def troubles(engine: sa.Engine, session_id: int) -> tuple[Trouble, ...]:
    """What the night lacks, then processes that broke, then benchmarks that did. None of generated suites."""
    with reading(engine) as connection:
        return (
            *_absences(connection, session_id),
            *_broken(connection, session_id),
            *_failed(connection, session_id),
        )


def told(engine: sa.Engine, channel: str, keys: Iterable[str]) -> Mapping[str, Notice]:
    """What the channel was told, or is being told, of these."""
    with reading(engine) as connection:
        return {notice.key: notice for notice in _known(connection, channel, keys)}


def claim(engine: sa.Engine, channel: str, subjects: Sequence[Subject], *, at: datetime) -> frozenset[str]:
    """Note that the channel is about to be told of these. Returns the keys that were nobody's before: the caller alone
    tells them, and then says `sent` or `forget`."""
    ours: set[str] = set()
    with writing(engine) as connection:
        # Sorted, so that two who claim the same never wait for each other in a circle.
        ordered = sorted({subject.key: subject for subject in subjects}.values(), key=lambda s: s.key)
        for start in range(0, len(ordered), _ROWS):
            rows = [
                {
                    "channel": channel,
                    "key": subject.key,
                    "alert_id": subject.alert_id,
                    "session_id": subject.session_id,
                    "state": NoticeState.SENDING,
                    "created_at": at,
                    "updated_at": at,
                }
                for subject in ordered[start : start + _ROWS]
            ]
            ours.update(connection.scalars(_new(connection).values(rows).returning(_n.key)))
    return frozenset(ours)


def sent(engine: sa.Engine, channel: str, keys: Iterable[str], *, at: datetime) -> None:
    done = sa.update(t.notification).values(state=NoticeState.SENT, updated_at=at)
    with writing(engine) as connection:
        for part in _parts(keys):
            connection.execute(done.where(_n.channel == channel, _n.key.in_(part)))


def forget(engine: sa.Engine, channel: str, keys: Iterable[str], *, before: datetime | None = None) -> None:
    """These were certainly not told: they may be told later. What was sent stays. before: only what was claimed
    before that."""
    gone = sa.delete(t.notification).where(_n.channel == channel, _n.state == NoticeState.SENDING)
    if before is not None:
        gone = gone.where(_n.updated_at < before)
    with writing(engine) as connection:
        for part in _parts(keys):
            connection.execute(gone.where(_n.key.in_(part)))


def _parts(keys: Iterable[str]) -> Iterable[Sequence[str]]:
    ordered = sorted(set(keys))
    return (ordered[start : start + _ROWS] for start in range(0, len(ordered), _ROWS))


def _known(connection: sa.Connection, channel: str, keys: Iterable[str]) -> Iterable[Notice]:
    for part in _parts(keys):
        wanted = sa.select(_n.key, _n.state, _n.updated_at).where(_n.channel == channel, _n.key.in_(part))
        yield from (Notice(r.key, r.state, r.updated_at) for r in connection.execute(wanted))


def _new(connection: sa.Connection) -> postgresql.Insert | sqlite.Insert:
    on_postgresql = connection.dialect.name == "postgresql"
    insert = postgresql.insert(t.notification) if on_postgresql else sqlite.insert(t.notification)
    return insert.on_conflict_do_nothing()


def _absences(connection: sa.Connection, session_id: int) -> Iterable[Trouble]:
    a = t.absence.c
    wanted = (
        sa.select(t.suite.c.name, a.hardware, a.reason, a.text)
        .join_from(t.absence, t.suite, t.suite.c.id == a.suite_id)
        # An unaffected commit is no trouble.
        .where(a.session_id == session_id, a.reason != AbsenceReason.UNAFFECTED, ~t.suite.c.synthetic)
        .order_by(a.reason, t.suite.c.name, a.hardware)
    )
    for record in connection.execute(wanted):
        yield Trouble(record.reason, record.name, record.hardware, text=record.text)


def _broken(connection: sa.Connection, session_id: int) -> Iterable[Trouble]:
    wanted = (
        _of_session(sa.select(*_PLACE, t.run.c.status, _count(t.run.c.id), sa.func.min(t.run.c.reason)), session_id)
        .where(t.run.c.status != RunStatus.OK)
        .group_by(*_PLACE, t.run.c.status)
        .order_by(*_PLACE[:3], t.run.c.status)
    )
    return _troubles(connection, wanted)


def _failed(connection: sa.Connection, session_id: int) -> Iterable[Trouble]:
    """In processes that came to their end: of one that broke, the benchmarks broke with it."""
    m = t.measurement.c
    name = t.series.c.workload + " / " + t.series.c.implementation
    chosen = sa.select(*_PLACE, m.status, _count(m.series_id.distinct()), sa.func.min(name))
    wanted = (
        _of_session(chosen, session_id)
        .join(t.measurement, m.run_id == t.run.c.id)
        .join(t.series, t.series.c.id == m.series_id)
        .where(t.run.c.status == RunStatus.OK, m.status.in_([Status.INCORRECT, *sorted(UNMEASURED)]))
        .group_by(*_PLACE, m.status)
        .order_by(m.status != Status.INCORRECT, *_PLACE[:3], m.status)
    )
    return _troubles(connection, wanted)


_PLACE = (t.suite.c.name, t.hardware.c.name, t.commit.c.sha, t.commit.c.subject)


def _count(what: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
    return sa.func.count(what)


def _of_session(wanted: sa.Select[Any], session_id: int) -> sa.Select[Any]:
    return (
        wanted.select_from(t.run)
        .join(t.suite, t.suite.c.id == t.run.c.suite_id)
        .join(t.hardware, t.hardware.c.id == t.run.c.hardware_id)
        .join(t.commit, t.commit.c.id == t.run.c.commit_id)
        .where(t.run.c.session_id == session_id, ~t.suite.c.synthetic)
    )


def _troubles(connection: sa.Connection, wanted: sa.Select[Any]) -> Iterable[Trouble]:
    for suite, hardware, sha, subject, what, count, text in connection.execute(wanted):
        yield Trouble(what, suite, hardware, sha, subject, count, text)
