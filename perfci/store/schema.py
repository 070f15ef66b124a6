"""The schema's versions: bring a database to the newest, and say when it is not there.

alembic is imported where it is needed: the scheduler imports this module each time that it reads a DAG file.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from perfci import share
from perfci.errors import StoreError
from perfci.store import tables
from perfci.store.engine import BUSY_TIMEOUT_S, connect, reading, translate, where, writing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from alembic.config import Config
    from alembic.script import ScriptDirectory

# Any number that no other program on the same PostgreSQL server uses for its advisory locks.
_UPGRADE_LOCK = 0x70657266_6369
_MARK, _SQLITE_MARK = "perfci db rebuild is not finished", 0x70657266


def upgrade(url: str) -> None:
    """Make the database (a SQLite file; not its folder) or bring it to the newest schema, whole or not at all.

    Several at once are safe: the others wait and find nothing to do. Raises StoreError.
    """
    with changing(url) as connection:
        version = version_of(connection)
        _refuse_newer(version, connection.engine)
        if version is None:
            refuse_foreign(connection)
        bring(connection)


@contextmanager
def changing(url: str) -> Iterator[sa.Connection]:
    """One transaction that may change the schema, one at a time: committed whole at the end, or nothing of it is.

    Makes a SQLite file that is not there. Raises StoreError.
    """
    engine = connect(url, create=True)
    try:
        if engine.dialect.name == "sqlite":
            _write_ahead(engine)
            sa.event.listen(engine, "connect", _let_tables_be_replaced)
        with writing(engine) as connection:
            if engine.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_UPGRADE_LOCK)))
            yield connection
    finally:
        engine.dispose()


def bring(connection: sa.Connection, revision: str = "head") -> None:
    """To a newer revision, on a connection of `changing`. Raises StoreError."""
    from alembic import command  # noqa: PLC0415

    before = version_of(connection)
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
    if version_of(connection) != before:
        check_references(connection)


def check_references(connection: sa.Connection) -> None:
    """What SQLite does not look at while the schema changes. Raises StoreError."""
    if connection.dialect.name != "sqlite":
        return
    if (broken := connection.exec_driver_sql("PRAGMA foreign_key_check").first()) is not None:
        raise StoreError(
            f"{where(connection.engine.url)} has a row of {broken[0]} that refers to no {broken[2]}",
            next_step="nothing was changed; restore a backup",
        )


def check(engine: sa.Engine) -> None:
    """Raises StoreError unless the database can be reached and has exactly the schema that this perfci knows."""
    with reading(engine) as connection:
        version = version_of(connection)
        rebuilding = version == newest() and being_rebuilt(connection)
    _refuse_newer(version, engine)
    if version != newest():
        raise StoreError(
            f"the schema of {where(engine.url)} is {version or 'not there'}, not {newest()}",
            next_step="run `perfci db upgrade`",
        )
    if rebuilding:
        raise StoreError(
            f"{where(engine.url)} is being rebuilt", next_step="wait for `perfci db rebuild`, or start it again"
        )


def newest() -> str | None:
    return _scripts().get_current_head()


def known() -> Sequence[str]:
    """Every revision, the newest first."""
    return [script.revision for script in _scripts().walk_revisions()]


def being_rebuilt(connection: sa.Connection) -> bool:
    """By `perfci db rebuild`, which is at work or was killed: much is not there yet."""
    if connection.dialect.name == "sqlite":
        return connection.exec_driver_sql("PRAGMA user_version").scalar() == _SQLITE_MARK
    return connection.exec_driver_sql("SELECT obj_description('run'::regclass, 'pg_class')").scalar() == _MARK


def mark_rebuilt(connection: sa.Connection, *, finished: bool) -> None:
    """The mark stands in the database itself, and comes and goes with a transaction."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA user_version = {0 if finished else _SQLITE_MARK}")
    else:
        connection.exec_driver_sql(f"COMMENT ON TABLE run IS {'NULL' if finished else repr(_MARK)}")


def refuse_foreign(connection: sa.Connection) -> None:
    """Tables of these names that no upgrade made belong to another program."""
    if theirs := sorted(tables.metadata.tables.keys() & sa.inspect(connection).get_table_names()):
        raise StoreError(
            f"{where(connection.engine.url)} has a table {theirs[0]!r} that is not perfci's",
            next_step="name another database",
        )


def version_of(connection: sa.Connection) -> str | None:
    from alembic.runtime.migration import MigrationContext  # noqa: PLC0415

    return MigrationContext.configure(connection).get_current_revision()


def _config() -> Config:
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(share.folder("migrations")).replace("%", "%%"))
    return config


def _scripts() -> ScriptDirectory:
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    return ScriptDirectory.from_config(_config())


def _refuse_newer(version: str | None, engine: sa.Engine) -> None:
    if version is not None and version not in known():
        raise StoreError(
            f"the schema of {where(engine.url)} is {version!r}, which this perfci does not know",
            next_step="update perfci, or name another database",
        )


def _let_tables_be_replaced(connection: Any, record: object) -> None:
    """A migration makes a table anew and drops the old one; with references enforced, SQLite would first delete its
    rows, which others refer to. `check_references` looks at the result."""
    connection.execute("PRAGMA foreign_keys = OFF")


def _write_ahead(engine: sa.Engine) -> None:
    """Readers then go on while one writes. The file remembers it; the switch happens outside of a transaction.

    SQLite does not wait for others here, whatever the connection's patience: it says at once that the file is locked.
    """
    until = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            with translate(engine), engine.execution_options(sqlite_begin=None).connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
                return
        except StoreError as error:
            code = getattr(getattr(error.__cause__, "orig", None), "sqlite_errorname", "")
            if not code.startswith("SQLITE_BUSY") or time.monotonic() > until:
                raise
        time.sleep(0.02)
