"""What no result file holds: what people said of alerts, who was told, what nights planned and lacked, where the
repository says that commits stand, and which results were delivered. Read from one database and laid on another one,
by names alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from perfci.model import AlertState, Origin
from perfci.store import portable
from perfci.store import tables as t
from perfci.store.engine import writing

Row = dict[str, Any]
Key = tuple[str, ...]
_SERIES = (t.hardware.c.name.label("hardware"), t.series.c.workload, t.series.c.implementation, t.series.c.metric)
_ALERT = ("suite", "hardware", "workload", "implementation", "metric", "sha")
_SAID = ("state", "assignee", "note", "created_at", "updated_at")
_PLAN = ("planned", "planned_at")
_COMMIT = ("parents", "position", "on_branch", "committed_at", "subject")
# Parameters that a statement may have: SQLite takes 32,766, a row has ten.
_ROWS = 1000


@dataclass(frozen=True, slots=True)
class Decisions:
    """Rows with names in place of numbers. origins: by the sha256 of the result file, of every run."""

    suites: tuple[Row, ...]
    commits: tuple[Row, ...]
    origins: Mapping[str, Origin]
    alerts: tuple[Row, ...]
    plans: tuple[Row, ...]
    absences: tuple[Row, ...]
    notifications: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Laid:
    """left: alerts whose series or commit is not there, in words."""

    alerts: int
    left: tuple[str, ...]


def read(engine: sa.Engine) -> Decisions:
    """Of one moment. Raises StoreError."""
    suite, session = t.suite.c.name.label("suite"), t.session.c.name.label("session")
    commits = sa.select(suite, t.commit.c.sha, *(t.commit.c[name] for name in _COMMIT)).join_from(t.commit, t.suite)
    alerts = _named_alerts(sa.select(*(c for c in t.alert.c if c.name not in ("series_id", "commit_id"))))
    plans = sa.select(session, *(t.session.c[name] for name in _PLAN)).where(t.session.c.planned.is_not(None))
    absence = sa.select(suite, session, *(t.absence.c[name] for name in ("hardware", "reason", "text", "created_at")))
    named = _named_alerts(sa.select(t.alert.c.id)).subquery()
    told = [c for c in t.notification.c if c.name not in ("id", "alert_id", "session_id")]
    notifications = (
        sa.select(*told, session, *(named.c[name] for name in _ALERT))
        .join_from(t.notification, named, named.c.id == t.notification.c.alert_id, isouter=True)
        .join(t.session, t.session.c.id == t.notification.c.session_id, isouter=True)
    )
    origins = sa.select(t.run.c.artifact_sha256, t.run.c.origin)
    with portable.snapshot(engine) as connection:
        return Decisions(
            suites=_rows(connection, sa.select(suite, t.suite.c.synthetic).order_by(t.suite.c.id)),
            commits=_rows(connection, commits.order_by(t.commit.c.id)),
            origins={r.artifact_sha256: r.origin for r in connection.execute(origins)},
            alerts=_rows(connection, alerts.order_by(t.alert.c.id)),
            plans=_rows(connection, plans.order_by(t.session.c.id)),
            absences=_rows(connection, absence.join_from(t.absence, t.suite).join(t.session).order_by(t.absence.c.id)),
            notifications=_rows(connection, notifications.order_by(t.notification.c.id)),
        )


def lay(engine: sa.Engine, decisions: Decisions) -> Laid:
    """Give a database that was made from result files what they do not hold: whole or not at all; repeatable.

    An alert that is there and that somebody has answered meanwhile stays as it is. Raises StoreError.
    """
    with writing(engine) as connection:
        suites = _suites(connection, decisions.suites)
        _commits(connection, decisions.commits, suites)
        of_sessions = (*decisions.plans, *decisions.absences, *decisions.notifications)
        sessions = _sessions(connection, sorted({row["session"] for row in of_sessions if row["session"]}))
        _plans(connection, decisions.plans, sessions)
        _add(connection, t.absence, [_absence(row, suites, sessions) for row in decisions.absences])
        laid, left = _alerts(connection, decisions.alerts)
        known = {_alert_key(row._asdict()): int(row.id) for row in connection.execute(_alert_ids())}
        told = [_notification(row, known, sessions) for row in decisions.notifications]
        _add(connection, t.notification, told)
        portable.number_on(connection, (t.alert,))
    return Laid(laid, tuple(left))


def _named_alerts(wanted: sa.Select[Any]) -> sa.Select[Any]:
    return (
        wanted.add_columns(t.suite.c.name.label("suite"), *_SERIES, t.commit.c.sha)
        .join_from(t.alert, t.series, t.series.c.id == t.alert.c.series_id)
        .join(t.commit, t.commit.c.id == t.alert.c.commit_id)
        .join(t.suite, t.suite.c.id == t.series.c.suite_id)
        .join(t.hardware, t.hardware.c.id == t.series.c.hardware_id)
    )


def _alert_ids() -> sa.Select[Any]:
    return _named_alerts(sa.select(t.alert.c.id, t.alert.c.state, t.alert.c.assignee, t.alert.c.note))


def _alert_key(row: Mapping[str, Any]) -> Key:
    return tuple(row[name] for name in _ALERT)


def _rows(connection: sa.Connection, wanted: sa.Select[Any]) -> tuple[Row, ...]:
    return tuple(row._asdict() for row in connection.execute(wanted))


def _suites(connection: sa.Connection, rows: Sequence[Row]) -> Mapping[str, int]:
    _add(connection, t.suite, [{"name": row["suite"], "synthetic": row["synthetic"]} for row in rows])
    return {row.name: row.id for row in connection.execute(sa.select(t.suite))}


def _sessions(connection: sa.Connection, names: Sequence[str]) -> Mapping[str, int]:
    _add(connection, t.session, [{"name": name} for name in names])
    return {row.name: row.id for row in connection.execute(sa.select(t.session))}


def _plans(connection: sa.Connection, rows: Sequence[Row], sessions: Mapping[str, int]) -> None:
    plan = sa.update(t.session).where(t.session.c.id == sa.bindparam("of"))
    if rows:
        connection.execute(plan, [{"of": sessions[row["session"]]} | {n: row[n] for n in _PLAN} for row in rows])


def _commits(connection: sa.Connection, rows: Sequence[Row], suites: Mapping[str, int]) -> None:
    """What the repository said goes before what a result file claims."""
    insert = _new(connection, t.commit)
    upsert = insert.on_conflict_do_update(
        index_elements=["suite_id", "sha"], set_={name: insert.excluded[name] for name in _COMMIT}
    )
    values = [{"suite_id": suites[row["suite"]], "sha": row["sha"]} | {n: row[n] for n in _COMMIT} for row in rows]
    for start in range(0, len(values), _ROWS):
        connection.execute(upsert, values[start : start + _ROWS])


def _absence(row: Row, suites: Mapping[str, int], sessions: Mapping[str, int]) -> Row:
    facts = {name: row[name] for name in ("hardware", "reason", "text", "created_at")}
    return facts | {"suite_id": suites[row["suite"]], "session_id": sessions[row["session"]]}


def _alerts(connection: sa.Connection, rows: Sequence[Row]) -> tuple[int, list[str]]:
    """Each with the number that people know it by, where no other alert is there yet."""
    series = {_series_key(row._asdict()): row.id for row in connection.execute(_series_ids())}
    shas = sa.select(t.suite.c.name, t.commit.c.sha, t.commit.c.id).join_from(t.commit, t.suite)
    commits = {(row.name, row.sha): row.id for row in connection.execute(shas)}
    known = {_alert_key(row._asdict()): row for row in connection.execute(_alert_ids())}
    new: list[Row] = []
    left: list[str] = []
    for row in rows:
        there = known.get(_alert_key(row))
        series_id, commit_id = series.get(_series_key(row)), commits.get((row["suite"], row["sha"]))
        if there is not None:
            if (there.state, there.assignee, there.note) == (AlertState.NEW, "", ""):
                said = {name: row[name] for name in _SAID}
                connection.execute(sa.update(t.alert).where(t.alert.c.id == there.id).values(said))
        elif series_id is None or commit_id is None:
            left.append(f"alert {row['id']} ({' / '.join(_alert_key(row)[:-1])} at {row['sha'][:9]})")
        else:
            facts = {name: value for name, value in row.items() if name in t.alert.c and name != "id"}
            number = {} if known else {"id": row["id"]}
            new.append(facts | number | {"series_id": series_id, "commit_id": commit_id})
    _add(connection, t.alert, new)
    return len(rows) - len(left), left


def _series_key(row: Mapping[str, Any]) -> Key:
    return tuple(row[name] for name in _ALERT[:-1])


def _series_ids() -> sa.Select[Any]:
    return (
        sa.select(t.series.c.id, t.suite.c.name.label("suite"), *_SERIES)
        .join_from(t.series, t.suite, t.suite.c.id == t.series.c.suite_id)
        .join(t.hardware, t.hardware.c.id == t.series.c.hardware_id)
    )


def _notification(row: Row, alerts: Mapping[Key, int], sessions: Mapping[str, int]) -> Row:
    facts = {name: value for name, value in row.items() if name in t.notification.c}
    alert = alerts.get(_alert_key(row))
    return facts | {"alert_id": alert, "session_id": sessions[row["session"]] if row["session"] else None}


def _new(connection: sa.Connection, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def _add(connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> None:
    """What is there already stays."""
    for start in range(0, len(rows), _ROWS):
        connection.execute(_new(connection, table).on_conflict_do_nothing(), rows[start : start + _ROWS])
