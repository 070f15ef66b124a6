"""Every SELECT: one function a question, named by it. Each raises StoreError where the database cannot answer."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from sys import byteorder
from typing import Any

import sqlalchemy as sa

from perfci.errors import StoreError
from perfci.model import AlertState, Control, Environment, Hardware, Node, Origin, RunStatus, Status
from perfci.store import records
from perfci.store import tables as t
from perfci.store.engine import reading
from perfci.store.rows import AbsenceRow, AlertRow, Point, RunRow, SeriesRow, SuiteRow

# An alert in one of these still asks something of a person.
OPEN = (AlertState.NEW, AlertState.CONFIRMED, AlertState.INVESTIGATING)
# Histories asked for at once: a tenth of the statements' time of one by one, and a year of them fits into memory.
_HISTORIES = 50
# Longer than the pause between two nights, over a weekend too.
_FORGOTTEN = timedelta(days=7)


def suites(engine: sa.Engine) -> tuple[SuiteRow, ...]:
    with reading(engine) as connection:
        found = connection.execute(sa.select(t.suite).order_by(t.suite.c.name))
        return tuple(SuiteRow(record.id, record.name, record.synthetic) for record in found)


def hardware(engine: sa.Engine) -> tuple[Hardware, ...]:
    with reading(engine) as connection:
        found = connection.execute(sa.select(t.hardware).order_by(t.hardware.c.name))
        return tuple(records.hardware(record) for record in found)


def nodes(engine: sa.Engine) -> tuple[Node, ...]:
    with reading(engine) as connection:
        found = connection.execute(sa.select(t.node).order_by(t.node.c.name, t.node.c.device_uuid))
        return tuple(Node(record.name, record.device_uuid) for record in found)


def environments(engine: sa.Engine) -> Mapping[str, Environment]:
    """By fingerprint, in the order in which they were first seen."""
    with reading(engine) as connection:
        found = connection.execute(sa.select(t.environment).order_by(t.environment.c.id))
        return {record.fingerprint: records.environment(record) for record in found}


def environment(engine: sa.Engine, fingerprint: str) -> Environment:
    with reading(engine) as connection:
        wanted = sa.select(t.environment).where(t.environment.c.fingerprint == fingerprint)
        record = connection.execute(wanted).one_or_none()
    if record is None:
        raise StoreError(f"no environment has the fingerprint {fingerprint!r}", next_step="take one from a point")
    return records.environment(record)


def all_series(engine: sa.Engine, *, suite: str | None = None, hardware: str | None = None) -> tuple[SeriesRow, ...]:
    """Ordered by suite, hardware, workload, implementation, metric."""
    wanted = records.select_series().order_by(*records.SERIES_ORDER)
    if suite is not None:
        wanted = wanted.where(t.suite.c.name == suite)
    if hardware is not None:
        wanted = wanted.where(t.hardware.c.name == hardware)
    with reading(engine) as connection:
        return tuple(records.series_row(record) for record in connection.execute(wanted))


def history(engine: sa.Engine, series_id: int, *, off_branch: bool = False) -> tuple[Point, ...]:
    """All points of a series in the order of the branch: commit position, then session start, then index.

    Dates of commits play no part. off_branch: those of commits without a position too, at the end.
    """
    [(_, points)] = histories(engine, [series_id], off_branch=off_branch)
    return points


def histories(
    engine: sa.Engine, series_ids: Sequence[int], *, off_branch: bool = False
) -> Iterator[tuple[int, tuple[Point, ...]]]:
    """`history` of each of these series, in the order of `series_ids`."""
    began = sa.func.min(t.run.c.started_at).over(
        partition_by=[t.measurement.c.series_id, t.run.c.commit_id, t.run.c.session_id]
    )
    wanted = records.select_points().order_by(
        *(t.measurement.c.series_id, *records.COMMIT_ORDER, began, t.session.c.id, t.run.c.index, t.run.c.id)
    )
    if not off_branch:
        wanted = wanted.where(t.commit.c.position.is_not(None))
    for start in range(0, len(series_ids), _HISTORIES):
        part = series_ids[start : start + _HISTORIES]
        found: dict[int, list[Point]] = {series_id: [] for series_id in part}
        with reading(engine) as connection:
            rows = connection.execute(wanted.where(t.measurement.c.series_id.in_(part))).all()
            for point in records.points(connection, rows):
                found[point.series_id].append(point)
        yield from ((series_id, tuple(found[series_id])) for series_id in part)


def latest(engine: sa.Engine) -> tuple[tuple[SeriesRow, tuple[Point, ...]], ...]:
    """For each series the points, whatever their status, of its newest measured commit.

    That is the one with the highest position, and of several there the one with the newest run. A series without a
    commit on the branch is left out.
    """
    wanted = records.select_series().order_by(*records.SERIES_ORDER)
    with reading(engine) as connection:
        known = {record.series_id: records.series_row(record) for record in connection.execute(wanted)}
        found: dict[int, list[Point]] = defaultdict(list)
        for point in _points_of_newest_commits(connection):
            found[point.series_id].append(point)
        # What the newest commit of its suite and hardware does not have: it was given up, or the run broke off.
        for point in _points_of_older_series(connection, sorted(known.keys() - found.keys())):
            found[point.series_id].append(point)
    return tuple((row, tuple(found[series_id])) for series_id, row in known.items() if series_id in found)


def session_points(engine: sa.Engine, session: str) -> tuple[tuple[SeriesRow, Point], ...]:
    """What a session measured, ordered by series, then along the branch, then by index."""
    wanted = (
        records.select_points(with_series=True)
        .where(t.session.c.name == session)
        .order_by(*records.SERIES_ORDER, *records.COMMIT_ORDER, t.run.c.index, t.run.c.started_at, t.run.c.id)
    )
    with reading(engine) as connection:
        return _with_series(connection, wanted)


def samples(engine: sa.Engine, series_id: int, run_id: int) -> tuple[float, ...]:
    """The raw samples of one point, in the order in which they were taken; empty where there are none."""
    wanted = sa.select(t.measurement.c.samples).where(
        t.measurement.c.series_id == series_id, t.measurement.c.run_id == run_id
    )
    with reading(engine) as connection:
        return unpack(connection.scalar(wanted) or b"")


def runs(
    engine: sa.Engine,
    *,
    suite: str,
    hardware: str | None = None,
    sha: str | None = None,
    session: str | None = None,
    broken_only: bool = False,
) -> tuple[RunRow, ...]:
    """In the order in which they were started. broken_only: those whose own status is not ok."""
    wanted = records.select_runs().where(t.suite.c.name == suite)
    if hardware is not None:
        wanted = wanted.where(t.hardware.c.name == hardware)
    if sha is not None:
        wanted = wanted.where(t.commit.c.sha == sha)
    if session is not None:
        wanted = wanted.where(t.session.c.name == session)
    if broken_only:
        wanted = wanted.where(t.run.c.status != RunStatus.OK)
    with reading(engine) as connection:
        return _runs_in_order(connection, wanted)


def newest_runs(engine: sa.Engine) -> tuple[RunRow, ...]:
    """All runs of the newest commit of each suite and hardware, also of one without any measurement."""
    with reading(engine) as connection:
        ids = _ids_at_newest_commits(connection)
        parts = [
            _runs_in_order(connection, records.select_runs().where(t.run.c.id.in_(p))) for p in records.in_parts(ids)
        ]
        return tuple(run for part in parts for run in part)


def newest_session(engine: sa.Engine) -> str | None:
    """Of the run that was started last and not made by a generator, or of a later night that lacks something; None
    where there is none."""
    ran = (
        sa.select(t.session.c.name, t.run.c.started_at.label("at"))
        .join_from(t.run, t.session, t.session.c.id == t.run.c.session_id)
        .where(t.run.c.origin != Origin.SYNTHETIC)
        .order_by(t.run.c.started_at.desc(), t.run.c.id.desc())
    )
    lacked = (
        sa.select(t.session.c.name, t.absence.c.created_at.label("at"))
        .join_from(t.absence, t.session, t.session.c.id == t.absence.c.session_id)
        .order_by(t.absence.c.created_at.desc(), t.absence.c.id.desc())
    )
    with reading(engine) as connection:
        newest = [record for each in (ran, lacked) if (record := connection.execute(each.limit(1)).one_or_none())]
    return max(newest, key=lambda record: record.at).name if newest else None


def absences(engine: sa.Engine, session: str) -> tuple[AbsenceRow, ...]:
    """What a night was to measure and did not, by suite and hardware."""
    a = t.absence.c
    wanted = records.select_absences().where(t.session.c.name == session)
    with reading(engine) as connection:
        found = connection.execute(wanted.order_by(t.suite.c.name, a.hardware, a.reason))
        return tuple(records.absence_row(record) for record in found)


def standing_absences(engine: sa.Engine) -> tuple[AbsenceRow, ...]:
    """Of each suite and hardware, what its newest night told, unless something was measured there since.

    What nights that came later have not told again is no news: the suite or the hardware was given up.
    """
    a = t.absence.c
    newest = sa.func.max(a.created_at).over(partition_by=(a.suite_id, a.hardware)).label("newest")
    ranked = sa.select(a.id, a.created_at, newest).subquery()
    last = sa.select(ranked.c.id).where(ranked.c.created_at == ranked.c.newest)
    since = (
        sa.select(t.run.c.id)
        .join_from(t.run, t.hardware, t.hardware.c.id == t.run.c.hardware_id)
        .where(t.run.c.suite_id == a.suite_id, t.hardware.c.name == a.hardware, t.run.c.started_at > a.created_at)
        .correlate(t.absence)
        .exists()
    )
    began = sa.select(sa.func.max(t.run.c.started_at)).where(t.run.c.origin != Origin.SYNTHETIC)
    wanted = records.select_absences().where(a.id.in_(last), ~since)
    with reading(engine) as connection:
        moments = (connection.scalar(began), connection.scalar(sa.select(sa.func.max(a.created_at))))
        newest_at = max((moment for moment in moments if moment is not None), default=None)
        if newest_at is not None:
            wanted = wanted.where(a.created_at >= newest_at - _FORGOTTEN)
        found = connection.execute(wanted.order_by(a.hardware, t.suite.c.name, a.reason))
        return tuple(records.absence_row(record) for record in found)


def controls(engine: sa.Engine, run_id: int) -> tuple[Control, ...]:
    with reading(engine) as connection:
        return records.controls(connection, [run_id]).get(run_id, ())


def measured(engine: sa.Engine, suite: str, hardware: str, *, but: str = "") -> frozenset[str]:
    """Commits of which something is known on this hardware. but: what this session found does not count.

    A build that failed and a process that took too long tell about the commit. An error may be the node's doing: a
    commit of which nothing else is known is not in the answer, and so is measured again.
    """
    wanted = _runs_at(sa.select(t.commit.c.sha), suite, hardware).where(t.run.c.status != RunStatus.ERROR).distinct()
    wanted = _without(wanted, but)
    with reading(engine) as connection:
        return frozenset(connection.scalars(wanted))


def expected(
    engine: sa.Engine, suite: str, hardware: str, *, before: int | None, but: str = ""
) -> tuple[tuple[str, str], ...]:
    """(workload, implementation) of all that the newest measured commit before a position had, sorted.

    What the next commit lacks of it is `missing` there, by name. before: None for the newest commit of all. A benchmark
    that was `missing` itself is not asked for again: the commit that lost it says so. but: as for `measured`.
    """
    had = (t.measurement.c.run_id == t.run.c.id, t.measurement.c.status != Status.MISSING)
    newest = (
        _runs_at(sa.select(t.commit.c.id), suite, hardware)
        .where(t.commit.c.position.is_not(None), sa.exists().where(*had))
        .order_by(*_NEWEST_FIRST)
        .limit(1)
    )
    newest = _without(newest, but)
    if before is not None:
        newest = newest.where(t.commit.c.position < before)
    names = (t.series.c.workload, t.series.c.implementation)
    with reading(engine) as connection:
        runs_there = _runs_at(sa.select(t.run.c.id), suite, hardware).where(t.commit.c.id == newest.scalar_subquery())
        runs_there = _without(runs_there, but)
        wanted = (
            sa.select(*names)
            .join_from(t.measurement, t.series, t.series.c.id == t.measurement.c.series_id)
            .where(t.measurement.c.run_id.in_(connection.scalars(runs_there).all()))
            .where(t.measurement.c.status != Status.MISSING)
            .distinct()
            .order_by(*names)
        )
        return tuple((record.workload, record.implementation) for record in connection.execute(wanted))


def alerts(engine: sa.Engine, *, open_only: bool = True) -> tuple[AlertRow, ...]:
    """Newest first."""
    wanted = records.select_alerts().order_by(t.alert.c.created_at.desc(), t.alert.c.id.desc())
    if open_only:
        wanted = wanted.where(t.alert.c.state.in_(OPEN))
    with reading(engine) as connection:
        return tuple(records.alert_row(record) for record in connection.execute(wanted))


def counts(engine: sa.Engine) -> Mapping[str, int]:
    """Rows by table."""
    each = (
        sa.select(sa.func.count()).select_from(table).scalar_subquery().label(table.name)
        for table in t.metadata.sorted_tables
    )
    with reading(engine) as connection:
        return dict(connection.execute(sa.select(*each)).mappings().one())


def unpack(packed: bytes) -> tuple[float, ...]:
    """The reverse of `writes.pack`."""
    values = array("d")
    values.frombytes(packed)
    if byteorder == "big":
        values.byteswap()
    return tuple(values)


_NEWEST_FIRST = (t.commit.c.position.desc(), t.run.c.started_at.desc(), t.run.c.id.desc())


def _points_of_newest_commits(connection: sa.Connection) -> Iterator[Point]:
    """Of each suite and hardware, what its newest commit has. Walks over runs, which are few, not over measurements."""
    run_ids = _ids_at_newest_commits(connection, sa.exists().where(t.measurement.c.run_id == t.run.c.id))
    for part in records.in_parts(run_ids):
        yield from _points_in_order(connection, t.measurement.c.run_id.in_(part))


def _ids_at_newest_commits(connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> Sequence[int]:
    """Runs that meet the conditions, of each suite and hardware those at the newest commit that has one."""
    newest = sa.func.first_value(t.run.c.commit_id).over(
        partition_by=(t.run.c.suite_id, t.run.c.hardware_id), order_by=_NEWEST_FIRST
    )
    ranked = (
        sa.select(t.run.c.id, t.run.c.commit_id, newest.label("newest"))
        .join_from(t.run, t.commit, t.commit.c.id == t.run.c.commit_id)
        .where(t.commit.c.position.is_not(None), *conditions)
        .subquery()
    )
    return connection.scalars(sa.select(ranked.c.id).where(ranked.c.commit_id == ranked.c.newest)).all()


def _runs_in_order(connection: sa.Connection, wanted: sa.Select[Any]) -> tuple[RunRow, ...]:
    found = connection.execute(wanted.order_by(t.run.c.started_at, t.run.c.index, t.run.c.id))
    return tuple(records.run_row(record) for record in found)


def _points_of_older_series(connection: sa.Connection, series_ids: Sequence[int]) -> Iterator[Point]:
    newest = (
        sa.select(t.run.c.commit_id)
        .join_from(t.measurement, t.run, t.run.c.id == t.measurement.c.run_id)
        .join(t.commit, t.commit.c.id == t.run.c.commit_id)
        .where(t.measurement.c.series_id == t.series.c.id, t.commit.c.position.is_not(None))
        .order_by(*_NEWEST_FIRST)
        .limit(1)
        .correlate(t.series)
        .scalar_subquery()
    )
    for part in records.in_parts(series_ids):
        by_commit: dict[int, list[int]] = defaultdict(list)
        found = connection.execute(sa.select(t.series.c.id, newest.label("commit_id")).where(t.series.c.id.in_(part)))
        for series_id, commit_id in found:
            if commit_id is not None:
                by_commit[commit_id].append(series_id)
        for commit_id, ids in by_commit.items():
            run_ids = connection.scalars(sa.select(t.run.c.id).where(t.run.c.commit_id == commit_id)).all()
            yield from _points_in_order(
                connection, sa.and_(t.measurement.c.series_id.in_(ids), t.measurement.c.run_id.in_(run_ids))
            )


def _points_in_order(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> tuple[Point, ...]:
    wanted = records.select_points().where(condition).order_by(t.run.c.started_at, t.run.c.index, t.run.c.id)
    return records.points(connection, connection.execute(wanted).all())


def _with_series(connection: sa.Connection, wanted: sa.Select[Any]) -> tuple[tuple[SeriesRow, Point], ...]:
    found = connection.execute(wanted).all()
    return tuple(zip(map(records.series_row, found), records.points(connection, found), strict=True))


def _runs_at(wanted: sa.Select[Any], suite: str, hardware: str) -> sa.Select[Any]:
    """Runs of a suite on a hardware, with their commits."""
    return (
        wanted.select_from(t.run)
        .join(t.commit, t.commit.c.id == t.run.c.commit_id)
        .join(t.suite, t.suite.c.id == t.run.c.suite_id)
        .join(t.hardware, t.hardware.c.id == t.run.c.hardware_id)
        .where(t.suite.c.name == suite, t.hardware.c.name == hardware)
    )


def _without(wanted: sa.Select[Any], session: str) -> sa.Select[Any]:
    """Runs without those of a session; all of them for an empty name."""
    if not session:
        return wanted
    return wanted.where(t.run.c.session_id.not_in(sa.select(t.session.c.id).where(t.session.c.name == session)))
