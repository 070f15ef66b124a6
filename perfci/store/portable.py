"""A database's rows as JSON lines, and back: the same for SQLite and PostgreSQL, for every schema that had a release.

Tables and columns are those that the database itself has, so that a database can be taken away before it is upgraded,
and one of an older schema comes back by the way that it would have gone: its rows first, then the upgrade.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

import sqlalchemy as sa
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, StatementError

from perfci.errors import StoreError
from perfci.store import schema, tables
from perfci.store.engine import reading, where

# A part is in memory as a whole, here and where it is read; one row may be larger than that.
PART_BYTES = 4 * 1024 * 1024
_ROWS_AT_ONCE = 500
_SAFE_INTEGER = 2**63


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of a table: a JSON array a line, values in the order of the table's columns."""

    table: str
    rows: int
    lines: bytes


@dataclass(frozen=True, slots=True)
class Shape:
    """What a database consists of: its schema's version, and the columns of each table, referred-to tables first."""

    revision: str
    columns: Mapping[str, tuple[str, ...]]


class _Foreign(Exception):
    """A value that its column cannot hold."""


@contextmanager
def snapshot(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that sees one moment of the database, however long it reads. Raises StoreError."""
    level = {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}
    with reading(engine.execution_options(**level)) as connection:
        yield connection


def shape(connection: sa.Connection) -> Shape:
    """Raises StoreError for a database without perfci's tables, or of a schema that this perfci does not know."""
    name = where(connection.engine.url)
    revision = schema.version_of(connection)
    if revision is None:
        raise StoreError(f"{name} has no tables of perfci", next_step="name another database, or `perfci db upgrade`")
    if revision not in schema.known():
        raise StoreError(f"the schema of {name} is {revision!r}, which is newer", next_step="update perfci")
    found = {table.name: tuple(column.name for column in table.columns) for table in _reflected(connection)}
    return Shape(revision, found)


def parts(connection: sa.Connection, table: str) -> Iterator[Part]:
    """All rows of a table in the order of its key."""
    reflected = next(known for known in _reflected(connection) if known.name == table)
    plain = [_PLAIN[_kind(column)] for column in reflected.columns]
    wanted = sa.select(reflected).order_by(*reflected.primary_key.columns)
    lines: list[bytes] = []
    size = 0
    for row in connection.execute(wanted, execution_options={"yield_per": _ROWS_AT_ONCE}):
        values = [None if value is None else form(value) for form, value in zip(plain, row, strict=True)]
        lines.append(json.dumps(values, allow_nan=False, separators=(",", ":")).encode() + b"\n")
        size += len(lines[-1])
        if size >= PART_BYTES:
            yield Part(table, len(lines), b"".join(lines))
            lines, size = [], 0
    if lines:
        yield Part(table, len(lines), b"".join(lines))


def restore(url: str, made: Shape, source: Iterable[Part], *, name: str) -> Mapping[str, int]:
    """Put rows into a database that has none, and bring it to the newest schema: all of it, or nothing changes.

    source: parts of the tables of `made`, each after those that it refers to; name: what messages call it. Returns the
    rows by table. Raises StoreError for a database that has rows, for an unknown schema and for rows that do not fit.
    """
    if made.revision not in schema.known():
        raise StoreError(f"{name} is of the schema {made.revision!r}, which is newer", next_step="update perfci")
    counts = dict.fromkeys(made.columns, 0)
    with schema.changing(url) as connection:
        _empty_at(connection, made.revision)
        reflected = {table.name: table for table in _reflected(connection)}
        theirs = {table: tuple(sorted(columns)) for table, columns in made.columns.items()}
        ours = {table.name: tuple(sorted(table.columns.keys())) for table in reflected.values()}
        if theirs != ours:
            raise StoreError(f"{name} has other tables than {made.revision} has", next_step="make the backup again")
        for part in source:
            if part.table not in reflected:
                raise StoreError(f"{name} has rows of {part.table!r}", next_step="make the backup again")
            try:
                _insert(connection, reflected[part.table], made.columns[part.table], part)
            except (_Foreign, StatementError) as error:
                if isinstance(error, DBAPIError) and not isinstance(error, IntegrityError | DataError):
                    raise  # the database's own trouble, not the row's
                told = " ".join(str(getattr(error, "orig", None) or error).split())[:200]
                raise StoreError(
                    f"{name} has rows of {part.table} that cannot be stored ({told})",
                    next_step="nothing was stored; take another backup",
                ) from error
            counts[part.table] += part.rows
        number_on(connection, reflected.values())
        schema.check_references(connection)
        schema.bring(connection)
        schema.mark_rebuilt(connection, finished=True)  # a rebuild that was given up before its first row
    return counts


def has_rows(connection: sa.Connection) -> str | None:
    """A table of perfci's that has some."""
    there = sa.inspect(connection).get_table_names()
    for name in sorted(tables.metadata.tables.keys() & set(there)):
        table = sa.table(name)
        if connection.scalar(sa.select(sa.literal(1)).select_from(table).limit(1)) is not None:
            return name
    return None


def number_on(connection: sa.Connection, of: Iterable[sa.Table]) -> None:
    """The next row gets the number after the greatest; SQLite does so by itself."""
    if connection.dialect.name != "postgresql":
        return
    for table in of:
        if "id" in table.columns:
            greatest = sa.select(sa.func.max(table.c.id)).scalar_subquery()
            sequence = sa.func.pg_get_serial_sequence(f'"{table.name}"', "id")
            connection.execute(
                sa.select(sa.func.setval(sequence, sa.func.coalesce(greatest, 1), greatest.is_not(None)))
            )


def _empty_at(connection: sa.Connection, revision: str) -> None:
    """The database at that revision; nobody else writes to it before this transaction ends."""
    version = schema.version_of(connection)
    if version is None:
        schema.refuse_foreign(connection)
    elif connection.dialect.name == "postgresql":
        there = tables.metadata.tables.keys() & set(sa.inspect(connection).get_table_names())
        quoted = ", ".join(f'"{name}"' for name in sorted(there))
        connection.exec_driver_sql(f"LOCK TABLE {quoted} IN ACCESS EXCLUSIVE MODE")
    if (full := has_rows(connection)) is not None:
        raise StoreError(
            f"{where(connection.engine.url)} has rows already (in {full})", next_step="name a database without any"
        )
    if version not in (None, revision):
        tables.metadata.drop_all(connection)
        connection.exec_driver_sql("DROP TABLE alembic_version")
        version = None
    if version is None:
        schema.bring(connection, revision)


def _reflected(connection: sa.Connection) -> Sequence[sa.Table]:
    """perfci's tables as they are in this database, each after those that it refers to."""
    there = sa.inspect(connection).get_table_names()
    found = sa.MetaData()
    found.reflect(connection, only=sorted(tables.metadata.tables.keys() & set(there)))
    return found.sorted_tables


def _insert(connection: sa.Connection, table: sa.Table, columns: Sequence[str], part: Part) -> None:
    readers = [_reader(connection, table.columns[name]) for name in columns]
    rows: list[dict[str, Any]] = []
    for line in part.lines.splitlines():
        try:
            values = json.loads(line, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            raise _Foreign(f"no JSON: {error}") from error
        if not isinstance(values, list) or len(values) != len(columns):
            raise _Foreign("a row of another length")
        rows.append({name: read(value) for name, read, value in zip(columns, readers, values, strict=True)})
    if len(rows) != part.rows:
        raise _Foreign(f"{len(rows)} rows instead of {part.rows}")
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        connection.execute(sa.insert(table), rows[start : start + _ROWS_AT_ONCE])


def _reader(connection: sa.Connection, column: sa.Column[Any]) -> Callable[[object], object]:
    kind = _kind(column)
    # SQLite keeps times without a zone, and takes any value for any column.
    zoned = connection.dialect.name == "postgresql"

    def read(value: object) -> object:
        if value is None and column.nullable:
            return sa.null() if kind == "json" else None
        try:
            made = _READ[kind](value)
        except (TypeError, ValueError, OverflowError, binascii.Error) as error:
            raise _Foreign(f"{column.name}: {str(error) or 'another type'}") from error
        return made.replace(tzinfo=None) if isinstance(made, datetime) and not zoned else made

    return read


_KINDS: tuple[tuple[type[Any], str], ...] = (
    (sa.JSON, "json"),
    (sa.DateTime, "time"),
    (sa.LargeBinary, "bytes"),
    (sa.Boolean, "truth"),
    (sa.Integer, "integer"),
    (sa.Float, "number"),
    (sa.String, "text"),
)


def _kind(column: sa.Column[Any]) -> str:
    return next(kind for cls, kind in _KINDS if isinstance(column.type, cls))


def _utc(value: datetime) -> str:
    return (value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)).isoformat()


def _as_it_is(value: Any) -> Any:
    return value


_PLAIN: Mapping[str, Callable[[Any], Any]] = {
    "json": _as_it_is,
    "time": _utc,
    "bytes": lambda value: base64.b64encode(value).decode(),
    "truth": bool,
    "integer": int,
    "number": float,
    "text": _as_it_is,
}


def _time(value: Any) -> datetime:
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError(f"{value[:40]!r} has no time zone")
    return moment.astimezone(UTC)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -_SAFE_INTEGER <= value < _SAFE_INTEGER:
        raise ValueError("no integer of 64 bits")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("no number")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("no text")
    value.encode()  # half of a surrogate pair is no text
    return value


def _bytes(value: Any) -> bytes:
    return base64.b64decode(value, validate=True)


_READ: Mapping[str, Callable[[Any], Any]] = {
    "json": _as_it_is,
    "time": _time,
    "bytes": _bytes,
    "truth": _truth,
    "integer": _integer,
    "number": _number,
    "text": _text,
}


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")
