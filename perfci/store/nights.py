"""What the plan of a night asks of earlier ones: how long a job takes, what was spent, whose turn it is.

`but` leaves a session out: a plan that is made again for the same session finds what the first one found. Each raises
StoreError where the database cannot answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from statistics import median
from typing import Any

import sqlalchemy as sa

from perfci.model import AbsenceReason, Origin, RunStatus
from perfci.store import tables as t
from perfci.store.engine import reading

# The newest processes tell best how long the next one takes; so many outlast a night that was out of the ordinary.
_NEWEST = 30


def process_seconds(engine: sa.Engine, suite: str, hardware: str, *, but: str = "") -> float | None:
    """Device seconds that a process of this suite usually takes on this hardware; None where that is not known.

    What broke off early is no guide, what was stopped is.
    """
    took = (
        _runs(sa.select(t.run.c.device_seconds), but=but)
        .where(t.suite.c.name == suite, t.hardware.c.name == hardware)
        .where(t.run.c.status.in_((RunStatus.OK, RunStatus.TIMEOUT)), t.run.c.origin == Origin.MEASURED)
        .order_by(t.run.c.started_at.desc(), t.run.c.id.desc())
        .limit(_NEWEST)
    )
    with reading(engine) as connection:
        found = connection.scalars(took).all()
    return median(found) if found else None


def last_started(engine: sa.Engine, suite: str, hardware: str, *, but: str = "") -> datetime | None:
    """When this suite had its last turn on this hardware."""
    newest = _runs(sa.select(sa.func.max(t.run.c.started_at)), but=but)
    with reading(engine) as connection:
        last: datetime | None = connection.scalar(newest.where(t.suite.c.name == suite, t.hardware.c.name == hardware))
        return last


def quiet_nights(engine: sa.Engine, suite: str, hardware: str, *, but: str = "") -> int:
    """Nights since the suite's last turn on this hardware in which no commit touched its files."""
    a = t.absence.c
    wanted = (
        sa.select(sa.func.count(sa.distinct(a.session_id)))
        .select_from(t.absence)
        .join(t.suite, t.suite.c.id == a.suite_id)
        .join(t.session, t.session.c.id == a.session_id)
        .where(t.suite.c.name == suite, a.hardware == hardware, a.reason == AbsenceReason.UNAFFECTED)
        .where(t.session.c.name != but)
    )
    if last := last_started(engine, suite, hardware, but=but):
        wanted = wanted.where(a.created_at > last)
    with reading(engine) as connection:
        return connection.scalar(wanted) or 0


def spent(engine: sa.Engine, hardware: str, *, since: datetime, but: str = "") -> float:
    """Device seconds of all runs on this hardware that were started since."""
    total = _runs(sa.select(sa.func.sum(t.run.c.device_seconds)), but=but)
    wanted = total.where(t.hardware.c.name == hardware, t.run.c.started_at >= since, t.run.c.origin == Origin.MEASURED)
    with reading(engine) as connection:
        return connection.scalar(wanted) or 0.0


def device_seconds(engine: sa.Engine, session: str) -> Mapping[str, float]:
    """What a night took of each hardware, by its name."""
    total = sa.select(t.hardware.c.name, sa.func.sum(t.run.c.device_seconds).label("seconds"))
    wanted = _runs(total).where(t.session.c.name == session).group_by(t.hardware.c.name).order_by(t.hardware.c.name)
    with reading(engine) as connection:
        return {record.name: record.seconds for record in connection.execute(wanted)}


def _runs(wanted: sa.Select[Any], *, but: str = "") -> sa.Select[Any]:
    joined = (
        wanted.select_from(t.run)
        .join(t.suite, t.suite.c.id == t.run.c.suite_id)
        .join(t.hardware, t.hardware.c.id == t.run.c.hardware_id)
        .join(t.session, t.session.c.id == t.run.c.session_id)
    )
    return joined.where(t.session.c.name != but) if but else joined
