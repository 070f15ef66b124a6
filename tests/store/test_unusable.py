"""A database that cannot be used: one line that names it and the next step, and nothing half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from perfci.artifact import Artifact
from perfci.errors import StoreError
from perfci.store import reads, schema, tables, writes
from perfci.store.engine import connect, writing
from tests.build import a_commit, a_measurement, a_run, an_artifact
from tests.store.processes import SPAWN

NOBODY = 65534
CI = os.environ.get("CI", "").lower() in {"1", "true"}
A_SECOND_RUN = an_artifact(a_run(index=1))


@contextmanager
def told(*parts: str) -> Iterator[None]:
    """A StoreError of one line that holds these parts, and ends with a next step."""
    with pytest.raises(StoreError) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.next_step
    for part in parts:
        assert part in message


@contextmanager
def opened(url: str, *, read_only: bool = False) -> Iterator[sa.Engine]:
    engine = connect(url, read_only=read_only, busy_timeout_s=0.2)
    yield engine
    engine.dispose()


@contextmanager
def without_root() -> Iterator[None]:
    """Root may write everything, so as root the test takes off its hat for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can get at; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="perfci-test-") as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path
        path.chmod(0o755)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "mysql://user:secret@host/db",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///",
        "http://[x",
    ],
)
def test_a_url_of_another_kind_is_refused_with_the_right_spelling_and_without_its_password(url: str) -> None:
    with told("write sqlite:////folder/perfci.db or postgresql+psycopg://"):
        try:
            connect(url)
        except StoreError as error:
            assert "secret" not in str(error)
            raise


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'absent' / 'perfci.db'}"
    with told(f"the folder {tmp_path / 'absent'} of the database does not exist; make it"):
        schema.upgrade(url)
    with opened(url) as engine, told(str(tmp_path / "absent")):
        reads.counts(engine)
    assert list(tmp_path.iterdir()) == []


def test_reading_does_not_make_a_database(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path / 'perfci.db'}") as engine:
        with told(f"there is no database at {tmp_path / 'perfci.db'}; run `perfci db upgrade`"):
            schema.check(engine)
        with told("there is no database"):
            writes.ingest(engine, A_SECOND_RUN, path="a")
    assert list(tmp_path.iterdir()) == []


def test_a_path_may_hold_any_character(tmp_path: Path) -> None:
    path = tmp_path / "a b?c=d&e#f%20%41 é" / "perfci;'\".db"
    path.parent.mkdir()
    url = f"sqlite:///{path}"
    schema.upgrade(url)
    with opened(url) as engine:
        writes.ingest(engine, A_SECOND_RUN, path="a")
    with opened(url, read_only=True) as engine:
        assert reads.counts(engine)["run"] == 1
    assert all(found.name.startswith(path.name) for found in path.parent.iterdir())


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no database, but a text that is long enough to be looked at\n" * 50)
    with opened(f"sqlite:///{path}") as engine, told(f"{path} is no SQLite database; name another file"):
        schema.check(engine)
    with told(f"{path} is no SQLite database"):
        schema.upgrade(f"sqlite:///{path}")


def test_a_database_of_another_program_is_named_and_left_as_it_is(empty_database_url: str) -> None:
    engine = connect(empty_database_url, create=True)
    with writing(engine) as connection:
        connection.execute(sa.text("CREATE TABLE run (theirs integer)"))
    with told("'run'", "name another database"):
        schema.upgrade(empty_database_url)
    assert sa.inspect(engine).get_table_names() == ["run"]
    assert [column["name"] for column in sa.inspect(engine).get_columns("run")] == ["theirs"]
    engine.dispose()


def test_a_folder_in_the_place_of_the_file_is_named(tmp_path: Path) -> None:
    with opened(f"sqlite:///{tmp_path}") as engine, told(f"{tmp_path} cannot be opened"):
        schema.check(engine)


def test_a_damaged_database_is_named(tmp_path: Path, new_sqlite: Callable[[Path], str]) -> None:
    path = tmp_path / "perfci.db"
    url = new_sqlite(path)
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    with opened(url) as engine, told(f"{path} is damaged", "ingest the artifacts again"):
        writes.ingest(engine, A_SECOND_RUN, path="a")


def test_a_database_that_another_writer_holds_is_locked_for_writing_only(database_url: str, engine: sa.Engine) -> None:
    writes.ingest(engine, an_artifact(), path="a")
    with opened(database_url) as second:
        with writing(engine) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.text("LOCK TABLE run IN EXCLUSIVE MODE"))
            with told("is locked by another process; stop what writes to it, or try again"):
                writes.ingest(second, A_SECOND_RUN, path="a")
            assert reads.counts(second)["run"] == 1
        assert writes.ingest(second, A_SECOND_RUN, path="a").created


def test_a_database_opened_for_reading_refuses_every_write(database_url: str, engine: sa.Engine) -> None:
    writes.ingest(engine, an_artifact(), path="a")
    with opened(database_url, read_only=True) as reader:
        schema.check(reader)
        with told("is read-only"):
            writes.ingest(reader, A_SECOND_RUN, path="a")
        with told("is read-only"):
            writes.sync_branch(reader, "kernels", [a_commit(2)])
        assert reads.counts(reader)["run"] == 1


def test_a_read_only_file_is_named(open_folder: Path, new_sqlite: Callable[[Path], str]) -> None:
    path = open_folder / "perfci.db"
    url = new_sqlite(path)
    path.chmod(0o444)
    open_folder.chmod(0o777)
    with opened(url) as engine:
        with without_root(), told(f"{path} is read-only; make the file and its folder writable"):
            writes.ingest(engine, A_SECOND_RUN, path="a")
        assert set(reads.counts(engine).values()) == {0}


def test_a_read_only_folder_is_named(open_folder: Path, new_sqlite: Callable[[Path], str]) -> None:
    path = open_folder / "perfci.db"
    url = new_sqlite(path)
    path.chmod(0o666)
    open_folder.chmod(0o555)
    with without_root(), opened(url) as engine, told(str(path), "make"):
        writes.ingest(engine, A_SECOND_RUN, path="a")
    with without_root(), told(f"{open_folder / 'new.db'} cannot be made; make {open_folder} a folder"):
        schema.upgrade(f"sqlite:///{open_folder / 'new.db'}")
    open_folder.chmod(0o755)
    with opened(url) as engine:
        assert set(reads.counts(engine).values()) == {0}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    if os.geteuid() != 0:
        assert not CI, "a small file system can be mounted by root alone; run CI as root"
        pytest.skip("only root can mount a small file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def a_big_artifact(index: int) -> Artifact:
    samples = tuple(1e-3 + 1e-9 * number for number in range(25_000))  # 200 kB
    return an_artifact(a_run([a_measurement(samples=samples)], index=index, commit=a_commit(index + 1)))


def test_a_full_disk_is_named_and_what_was_stored_before_stays(
    small_disk: Path, new_sqlite: Callable[[Path], str]
) -> None:
    with opened(new_sqlite(small_disk / "perfci.db")) as engine:
        stored = 0
        with told(f"the disk of {small_disk / 'perfci.db'} is full; free some space and try again"):
            for index in range(10):
                writes.ingest(engine, a_big_artifact(index), path="a")
                stored += 1
        assert 0 < stored < 10
        counts = reads.counts(engine)
        assert (counts["run"], counts["measurement"], counts["commit"]) == (stored, stored, stored)
        with told("is full"):
            writes.ingest(engine, a_big_artifact(stored), path="a")
        with engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"


def test_a_database_is_made_whole_on_a_full_disk_or_not_at_all(small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(b"x" * (2**20 - 32_768))
    path = small_disk / "perfci.db"
    with told(f"the disk of {path} is full"):
        schema.upgrade(f"sqlite:///{path}")
    (small_disk / "filler").unlink()
    schema.upgrade(f"sqlite:///{path}")
    with opened(f"sqlite:///{path}") as engine:
        schema.check(engine)


def test_a_server_that_is_not_there_is_named_without_its_password(free_port: int) -> None:
    with (
        opened(f"postgresql://ada:secret@127.0.0.1:{free_port}/perfci") as engine,
        told(f"postgresql+psycopg://ada:***@127.0.0.1:{free_port}/perfci cannot be reached", "start the server"),
    ):
        schema.check(engine)


@pytest.fixture
def free_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_a_server_that_has_vanished_behind_a_network_is_noticed(postgresql_server: sa.URL) -> None:
    """Without a word a connection would live for hours; the kernel is told how long it may be silent."""
    engine = connect(postgresql_server.render_as_string(hide_password=False))
    with engine.connect() as connection:
        told = connection.connection.driver_connection.info.get_parameters()  # type: ignore[union-attr]
    engine.dispose()
    idle, interval, count = (int(told[f"keepalives_{name}"]) for name in ("idle", "interval", "count"))
    assert idle + interval * count <= 120
    assert int(told["tcp_user_timeout"]) <= 120_000


def test_a_database_that_the_server_does_not_have_is_named(postgresql_server: sa.URL) -> None:
    url = postgresql_server.set(database="absent").render_as_string(hide_password=False)
    with opened(url) as engine, told('absent" does not exist'):
        schema.check(engine)


def test_a_user_without_rights_is_told_what_is_lacking(
    postgresql_server: sa.URL, postgresql_template: str, engine_of: Callable[[sa.URL], sa.Engine]
) -> None:
    name = f"perfci_reader_{os.getpid()}"
    server = engine_of(postgresql_server)
    with server.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
    try:
        url = postgresql_server.set(database=postgresql_template, username=name, password="secret")
        with (
            opened(url.render_as_string(hide_password=False)) as engine,
            told("refuses this user", "permission denied"),
        ):
            reads.counts(engine)
    finally:
        with server.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            connection.exec_driver_sql(f"DROP ROLE {name}")


@pytest.fixture
def engine_of() -> Iterator[Callable[[sa.URL], sa.Engine]]:
    engines: list[sa.Engine] = []

    def make(url: sa.URL) -> sa.Engine:
        engines.append(sa.create_engine(url))
        return engines[-1]

    yield make
    for engine in engines:
        engine.dispose()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_server_that_breaks_off_in_the_middle_leaves_nothing_half_written(
    database_url: str, engine: sa.Engine
) -> None:
    with opened(database_url) as second:

        def end_it(connection: sa.Connection, *_: object) -> None:
            with engine.connect() as administrator:
                pid = connection.connection.driver_connection.info.backend_pid  # type: ignore[union-attr]
                administrator.execute(sa.select(sa.func.pg_terminate_backend(pid)))

        sa.event.listen(second, "commit", end_it)
        with told("terminating connection"):
            writes.ingest(second, A_SECOND_RUN, path="a")
        sa.event.remove(second, "commit", end_it)
        assert set(reads.counts(engine).values()) == {0}
        assert writes.ingest(second, A_SECOND_RUN, path="a").created


def killed_before_its_commit(url: str) -> None:
    engine = connect(url)
    sa.event.listen(engine, "commit", lambda _: os.kill(os.getpid(), signal.SIGKILL))
    writes.ingest(engine, A_SECOND_RUN, path="a")


def test_a_writer_that_is_killed_leaves_nothing_half_written(database_url: str, engine: sa.Engine) -> None:
    writes.ingest(engine, an_artifact(), path="a")
    writer = SPAWN.Process(target=killed_before_its_commit, args=(database_url,))
    writer.start()
    writer.join(60)
    assert writer.exitcode == -signal.SIGKILL
    counts = reads.counts(engine)
    assert (counts["run"], counts["measurement"]) == (1, 1)
    assert writes.ingest(engine, A_SECOND_RUN, path="a").created
    assert reads.counts(engine)["measurement"] == 2


def test_an_old_database_asks_for_an_upgrade_when_a_table_or_column_is_missing(engine: sa.Engine) -> None:
    with writing(engine) as connection:
        connection.execute(sa.text("ALTER TABLE run RENAME COLUMN harness TO harness_before"))
    with told("is of another schema", "run `perfci db upgrade`"):
        writes.ingest(engine, A_SECOND_RUN, path="a")
    with writing(engine) as connection:
        tables.measurement.drop(connection)
    with told("is of another schema", "run `perfci db upgrade`"):
        reads.counts(engine)
