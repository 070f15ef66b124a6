"""How far sessions have come: the processes that their plans asked for, and those that have a result."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from perfci.model import AbsenceReason
from perfci.store import tables as t
from perfci.store.engine import reading
from perfci.store.rows import Progress


def of(engine: sa.Engine, session: str) -> Progress | None:
    """None for a session that nobody planned. Raises StoreError."""
    with reading(engine) as connection:
        return next(iter(found(connection, t.session.c.name == session)), None)


def unfinished_since(connection: sa.Connection, *, since: datetime) -> datetime | None:
    """When the oldest unfinished one of the sessions since then was planned; None where none is unfinished."""
    recent = found(connection, t.session.c.planned_at >= since)
    return min((each.planned_at for each in recent if each.unfinished), default=None)


def found(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> tuple[Progress, ...]:
    """Of the planned sessions that meet a condition. A process counts once, however many results it has given."""
    s, r, a = t.session.c, t.run.c, t.absence.c
    planned = sa.and_(s.planned.is_not(None), condition)
    mine = r.session_id.in_(sa.select(s.id).where(planned))
    each = sa.select(r.session_id, r.suite_id, r.hardware_id, r.commit_id, r.index).where(mine).distinct().subquery()
    ran = sa.select(each.c.session_id, sa.func.count().label("finished")).group_by(each.c.session_id).subquery()
    # What a plan leaves out for want of a node is of its own moment, and was never among its processes.
    told = sa.exists().where(a.session_id == s.id, a.reason == AbsenceReason.NO_NODE, a.created_at > s.planned_at)
    wanted = (
        sa.select(s.planned, s.planned_at, sa.func.coalesce(ran.c.finished, 0), told)
        .join_from(t.session, ran, ran.c.session_id == s.id, isouter=True)
        .where(planned)
        .order_by(s.id)
    )
    return tuple(Progress(*record) for record in connection.execute(wanted))
