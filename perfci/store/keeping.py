"""What keeping a database in order needs: raw samples thinned, space given back, a rebuild marked while it lasts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from perfci.errors import StoreError
from perfci.store import portable, schema
from perfci.store import tables as t
from perfci.store.engine import connect, reading, translate, where, writing

# A batch is one transaction: SQLite's other writers wait for no more than a fraction of a second.
RUNS_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Thinned:
    measurements: int
    bytes: int

    def __add__(self, other: Thinned) -> Thinned:
        return Thinned(self.measurements + other.measurements, self.bytes + other.bytes)


def thin(engine: sa.Engine, *, before: datetime, dry_run: bool = False) -> Iterator[Thinned]:
    """Drop the raw samples of runs that were started before a moment, a batch a step; summaries stay.

    Nothing that is computed needs them: histories, levels, floors and detection read the summaries. Repeatable, and
    may be killed: what a batch dropped is dropped. Raises StoreError.
    """
    r, m = t.run.c, t.measurement.c
    last = 0
    while True:
        with reading(engine) as connection:
            older = sa.select(r.id).where(r.started_at < before, r.id > last).order_by(r.id).limit(RUNS_AT_ONCE)
            run_ids = connection.scalars(older).all()
        if not run_ids:
            return
        last = run_ids[-1]
        full = sa.and_(m.run_id.in_(run_ids), m.samples.is_not(None))
        count = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(sa.func.length(m.samples)), 0)).where(full)
        with reading(engine) if dry_run else writing(engine) as connection:
            found = Thinned(*connection.execute(count).one())
            if found.measurements and not dry_run:
                connection.execute(sa.update(t.measurement).where(full).values(samples=None))
        yield found


def vacuum(engine: sa.Engine) -> None:
    """Give freed space back: SQLite's file shrinks (and needs as much room again meanwhile); PostgreSQL uses it for
    what comes. Raises StoreError."""
    plain = {"sqlite_begin": None} if engine.dialect.name == "sqlite" else {"isolation_level": "AUTOCOMMIT"}
    with translate(engine), engine.execution_options(**plain).connect() as connection:
        connection.exec_driver_sql("VACUUM" if engine.dialect.name == "sqlite" else "VACUUM (ANALYZE) measurement")
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")


def artifacts(connection: sa.Connection) -> Sequence[str]:
    """sha256 of every run's result file, sorted."""
    return connection.scalars(sa.select(t.run.c.artifact_sha256).order_by(t.run.c.artifact_sha256)).all()


def begin_rebuild(url: str) -> bool:
    """Make the database where it is not there, and mark it as being rebuilt. Returns whether it was marked before: a
    rebuild was killed, or another one is at work. Raises StoreError for one that has rows without the mark."""
    schema.upgrade(url)
    with schema.changing(url) as connection:
        if schema.being_rebuilt(connection):
            return True
        if (full := portable.has_rows(connection)) is not None:
            raise StoreError(
                f"{where(connection.engine.url)} has rows already (in {full})",
                next_step="name an empty database with --into, or move this one away",
            )
        schema.mark_rebuilt(connection, finished=False)
        return False


def hurried(url: str) -> sa.Engine:
    """For many small transactions: each is whole, and a power cut may take the last ones. A commit of another engine
    afterwards makes them last."""
    engine = connect(url)
    sqlite = engine.dialect.name == "sqlite"
    statement = "PRAGMA synchronous = NORMAL" if sqlite else "SET synchronous_commit = off"

    @sa.event.listens_for(engine, "connect")
    def hurry(connection: Any, record: object) -> None:
        connection.execute(statement)
        if not sqlite:
            connection.commit()  # or the pool takes the setting back with its rollback

    return engine


def end_rebuild(url: str) -> None:
    with schema.changing(url) as connection:
        schema.mark_rebuilt(connection, finished=True)


def sessions_of_all_series(engine: sa.Engine) -> Sequence[str]:
    """Few sessions that together touch every series: the newest of each."""
    newest = sa.select(sa.func.max(t.measurement.c.run_id)).group_by(t.measurement.c.series_id)
    names = (
        sa.select(t.session.c.name)
        .join_from(t.run, t.session, t.session.c.id == t.run.c.session_id)
        .where(t.run.c.id.in_(newest))
        .distinct()
        .order_by(t.session.c.name)
    )
    with reading(engine) as connection:
        return connection.scalars(names).all()
