"""The embedded Airflow's own database: a SQLite file in its home, or a team's PostgreSQL.

It holds nothing that perfci could not lose but the runs that are under way: results are elsewhere.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from importlib.metadata import version as version_of
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from perfci.embedded.home import Home, unwritable, write_private
from perfci.errors import ServiceError
from perfci.supervisor import Tree, log_end

_MIGRATION_LIMIT_S = 300.0
_CONNECT_LIMIT_S = 10
# Above the last line of a traceback there may be the one that says what happened.
_LOG_LINES = 400
_NO_ROOM = ("database or disk is full", os.strerror(errno.ENOSPC))


def has_unfinished_runs(home: Home) -> bool:
    """An earlier command was killed while a DAG ran. Asked of the database itself, before anything is started."""
    try:
        return _first(home, "SELECT 1 FROM dag_run WHERE state IN ('running', 'queued') LIMIT 1") is not None
    except sa.exc.SQLAlchemyError:
        return True  # not known: the careful way to start is right in any case


def needs_migration(home: Home) -> bool:
    """`airflow db migrate` takes seconds, so a note tells which version has done it, and with what result."""
    if not home.server and not home.database.is_file():
        return True
    noted, _, revision = _noted(home).partition(" ")
    return noted != version() or bool(home.server and revision != _revision(home))


def migrate(home: Home, tree: Tree) -> None:
    """Raises ServiceError. A SQLite file that was never finished is made anew; a server's database is not touched."""
    note = home.folder / "migrated"
    try:
        if not home.server and not _noted(home):
            for part in home.folder.glob("airflow.db*"):
                part.unlink()
        note.unlink(missing_ok=True)
        code = tree.run(home.program("db", "migrate"), limit_s=_MIGRATION_LIMIT_S)
        if code:
            raise _not_migrated(home, code)
        if not home.server:
            home.database.chmod(0o600)
        noted = version() + (f" {_revision(home)}" if home.server else "")
        write_private(note, noted + "\n")
    except OSError as error:
        raise unwritable(home, error) from error


def _not_migrated(home: Home, code: int) -> ServiceError:
    said = log_end(home.log("db"), lines=_LOG_LINES)
    if any(words in said for words in _NO_ROOM):
        return ServiceError(f"the disk of {home.folder} is full", next_step="free some space and try again")
    last = said.rpartition("\n")[2] or f"code {code}"
    remedy = f"delete {home.folder} and try again" if not home.server else f"read {home.log('db')}"
    return ServiceError(f"Airflow's database cannot be made: {last}", next_step=remedy)


def _revision(home: Home) -> str:
    """Which schema a server's database has; empty: none yet. Raises ServiceError when the server does not answer."""
    try:
        return str(_first(home, "SELECT version_num FROM alembic_version") or "")
    except sa.exc.OperationalError as error:
        said = str(error.orig).strip().splitlines()
        raise ServiceError(
            f"Airflow's database {sa.make_url(home.server)!r} does not answer: {said[0] if said else 'no reason'}",
            next_step="is PostgreSQL running, and are service.airflow_database and the password right?",
        ) from error
    except sa.exc.ProgrammingError:
        return ""  # no such table


def _first(home: Home, statement: str) -> object:
    """The first value of a statement's first row; of a SQLite file that is there. Raises SQLAlchemyError."""
    if home.server:
        limit = {"connect_timeout": _CONNECT_LIMIT_S}
        engine = sa.create_engine(home.server, poolclass=NullPool, connect_args=limit)
    else:
        read_only = f"file:{quote(str(home.database))}?mode=ro"
        engine = sa.create_engine("sqlite://", poolclass=NullPool, creator=lambda: sqlite3.connect(read_only, uri=True))
    try:
        with engine.connect() as connection:
            return connection.exec_driver_sql(statement).scalar()
    finally:
        engine.dispose()


def version() -> str:
    """Of the installed Airflow, whose schema it is."""
    return version_of("apache-airflow-core")


def _noted(home: Home) -> str:
    note = home.folder / "migrated"
    return note.read_text().strip() if note.is_file() else ""
