"""Connections to the database, and what its drivers complain about in perfci's words."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.pool import NullPool

from perfci.errors import StoreError

# One ingest of an ordinary night takes a tenth of a second; eight writers in a row are far below this.
BUSY_TIMEOUT_S = 30.0
# A server that has vanished behind a network says no word about it, and TCP alone waits for hours: after a minute and a
# half of silence on a connection it counts as lost.
_SILENCE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 6, "tcp_user_timeout": 90_000}
_SQLITE_PREFIX = "sqlite:///"
_SPELLINGS = "write sqlite:////folder/perfci.db or postgresql+psycopg://user:password@host/database"
_UPGRADE = "run `perfci db upgrade`"


def connect(
    url: str, *, read_only: bool = False, create: bool = False, busy_timeout_s: float = BUSY_TIMEOUT_S
) -> sa.Engine:
    """An engine for a SQLite file or a PostgreSQL database; nothing is opened yet.

    url: "sqlite:///" and a path as it stands, or a PostgreSQL URL.
    read_only: the database itself refuses writes. create: a SQLite file that is not there is made (its folder is not).
    busy_timeout_s: how long to wait for another writer, and for a connection.
    Raises StoreError for a URL of another kind.
    """
    encode = partial(json.dumps, allow_nan=False, ensure_ascii=False)
    if url.startswith(_SQLITE_PREFIX):
        engine = sa.create_engine(
            _sqlite_uri(url.removeprefix(_SQLITE_PREFIX), read_only=read_only, create=create),
            # A new connection costs 0.2 ms and survives a fork; a pooled one does not.
            poolclass=NullPool,
            connect_args={"timeout": busy_timeout_s},
            json_serializer=encode,
        )
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine
    parsed = _parsed(url)
    options = [
        *parsed.normalized_query.get("options", ()),
        f"-c timezone=UTC -c lock_timeout={busy_timeout_s * 1000:.0f}",
    ]
    if read_only:
        options.append("-c default_transaction_read_only=on")
    return sa.create_engine(
        parsed.set(drivername="postgresql+psycopg"),
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,
        connect_args={
            **_SILENCE,
            "connect_timeout": max(2, round(busy_timeout_s)),
            "options": " ".join(options),
            "application_name": "perfci",
        },
        json_serializer=encode,
    )


@contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """One transaction that only reads. Raises StoreError."""
    with translate(engine), engine.connect() as connection:
        yield connection


@contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """One transaction that writes: committed whole at the end, or nothing of it is. Raises StoreError."""
    # SQLite: the lock is taken at the start. A transaction that reads first and then writes cannot wait for
    # another writer, it fails at once.
    immediate = engine.execution_options(sqlite_begin="BEGIN IMMEDIATE")
    with translate(engine), immediate.begin() as connection:
        yield connection


@contextmanager
def translate(engine: sa.Engine) -> Iterator[None]:
    """Turns what the driver raises about the database's state into StoreError; other errors pass."""
    try:
        yield
    except DBAPIError as error:
        if (told := _told(error, engine.url)) is None:
            raise
        raise told from error


def where(url: sa.URL) -> str:
    """The database in words: SQLite's file, or the URL without its password."""
    return str(_file(url)) if url.get_backend_name() == "sqlite" else url.render_as_string(hide_password=True)


def _parsed(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, ValueError) as error:
        raise StoreError("the database URL cannot be read", next_step=_SPELLINGS) from error
    if backend != "postgresql":
        raise StoreError(f"{parsed.render_as_string(hide_password=True)!r} is of another kind", next_step=_SPELLINGS)
    return parsed


def _sqlite_uri(name: str, *, read_only: bool, create: bool) -> sa.URL:
    """`name` is taken as it stands: a path may hold what has a meaning in a URL."""
    if name in {"", ":memory:"}:
        raise StoreError(f"{_SQLITE_PREFIX + name!r} names no file", next_step=_SPELLINGS)
    mode = "ro" if read_only else "rwc" if create else "rw"
    database = f"file:{quote(str(Path(name).absolute()))}"
    return sa.URL.create("sqlite", database=database, query={"mode": mode, "uri": "true"})


def _file(url: sa.URL) -> Path:
    return Path(unquote(str(url.database).removeprefix("file:")))


def _prepare_sqlite(connection: Any, record: object) -> None:
    connection.isolation_level = None  # BEGIN is ours to say, see _begin_sqlite
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: sa.Connection) -> None:
    if begin := connection.get_execution_options().get("sqlite_begin", "BEGIN"):
        connection.exec_driver_sql(begin)


def _told(error: DBAPIError, url: sa.URL) -> StoreError | None:
    name = where(url)
    text = " ".join(str(error.orig).split())
    told = _sqlite(error, name, url) if url.get_backend_name() == "sqlite" else _postgresql(error, name)
    if told is None:
        return None
    problem, next_step = told
    return StoreError(problem.replace("{text}", text), next_step=next_step)


_SQLITE = {
    "SQLITE_BUSY": ("{name} is locked by another process", "stop what writes to it, or try again"),
    "SQLITE_LOCKED": ("{name} is locked by another process", "stop what writes to it, or try again"),
    "SQLITE_READONLY": ("{name} is read-only", "make the file and its folder writable"),
    "SQLITE_PERM": ("{name} may not be used", "make the file and its folder writable"),
    "SQLITE_FULL": ("the disk of {name} is full", "free some space and try again; nothing was stored"),
    "SQLITE_IOERR": ("{name} cannot be read or written ({text})", "look at its disk, then try again"),
    "SQLITE_CORRUPT": ("{name} is damaged ({text})", "restore it, or move it away and ingest the artifacts again"),
    "SQLITE_NOTADB": ("{name} is no SQLite database", "name another file"),
}


def _sqlite(error: DBAPIError, name: str, url: sa.URL) -> tuple[str, str] | None:
    code = str(getattr(error.orig, "sqlite_errorname", ""))
    if code.startswith("SQLITE_CANTOPEN"):
        return _unopened(_file(url), made=url.query.get("mode") == "rwc")
    if code.startswith("SQLITE_IOERR") and _no_room(_file(url)):
        code = "SQLITE_FULL"
    if code == "SQLITE_ERROR" and any(sign in str(error.orig) for sign in ("no such ", "has no column ")):
        return f"{name} is of another schema ({{text}})", _UPGRADE
    for kind, (problem, next_step) in _SQLITE.items():
        if code.startswith(kind):
            return problem.replace("{name}", name), next_step
    return None


def _no_room(path: Path) -> bool:
    """SQLite says "I/O error" when the index of its log does not fit; that grows by 32 KiB."""
    return path.parent.is_dir() and shutil.disk_usage(path.parent).free < 65_536


def _unopened(path: Path, *, made: bool) -> tuple[str, str]:
    if not path.parent.is_dir():
        return f"the folder {path.parent} of the database does not exist", "make it, or mend the database's URL"
    if not path.exists() and made:
        return f"{path} cannot be made", f"make {path.parent} a folder that this user may write to"
    if not path.exists():
        return f"there is no database at {path}", _UPGRADE
    return f"{path} cannot be opened", "make it a file that this user may read and write"


_POSTGRESQL = {
    "42P01": ("{name} is of another schema ({text})", _UPGRADE),
    "42703": ("{name} is of another schema ({text})", _UPGRADE),
    "42501": ("{name} refuses this user ({text})", "grant what is asked for, or use another user"),
    "25006": ("{name} is read-only", "connect to a server that accepts writes"),
    "28": ("{name} refuses this user ({text})", "mend user and password in the database's URL"),
    "3D000": ("{name} does not exist", "create the database, then " + _UPGRADE),
    "40": ("{name} broke off a transaction that stood in another's way", "try again; nothing was stored"),
    "53": ("{name} has no room left ({text})", "free some space or connections and try again; nothing was stored"),
    "55P03": ("{name} is locked by another process", "stop what writes to it, or try again"),
    "57P": ("{name} is shutting down or starting ({text})", "try again"),
    "08": ("{name} cannot be reached ({text})", "start the server, or mend the database's URL"),
}


def _postgresql(error: DBAPIError, name: str) -> tuple[str, str] | None:
    state = getattr(error.orig, "sqlstate", None)
    if state is None:
        # A connection that never came to be, or broke, carries no state.
        lost = isinstance(error, OperationalError)
        return (f"{name} cannot be reached ({{text}})", "start the server, or mend the URL") if lost else None
    for kind, (problem, next_step) in _POSTGRESQL.items():
        if state.startswith(kind):
            return problem.replace("{name}", name), next_step
    return None
