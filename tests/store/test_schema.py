"""The schema: migrations and tables say the same, on both databases, and the database keeps its own rules."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from sqlalchemy.exc import IntegrityError

from perfci.errors import StoreError
from perfci.model import Clock, Status
from perfci.store import schema, tables, writes
from perfci.store.engine import connect, reading, writing
from tests.build import an_artifact
from tests.store.processes import at_once


@pytest.fixture
def empty_engine(empty_database_url: str) -> Iterator[sa.Engine]:
    opened = connect(empty_database_url, create=True)
    yield opened
    opened.dispose()


def test_migrations_make_exactly_the_tables_that_the_code_uses(engine: sa.Engine) -> None:
    with writing(engine) as connection:
        config = schema._config()
        config.attributes["connection"] = connection
        command.check(config)  # raises when autogenerate finds a difference


def test_every_check_and_key_of_the_tables_is_in_the_migrated_database(engine: sa.Engine) -> None:
    def names(inspector: sa.Inspector, table: str) -> set[str | None]:
        found = {check["name"] for check in inspector.get_check_constraints(table)}
        found |= {key["name"] for key in inspector.get_unique_constraints(table)}
        found |= {key["name"] for key in inspector.get_foreign_keys(table)}
        found |= {index["name"] for index in inspector.get_indexes(table) if not index.get("duplicates_constraint")}
        return found | {inspector.get_pk_constraint(table)["name"]}

    bare = sa.create_engine("sqlite://")
    tables.metadata.create_all(bare)
    wanted, found = sa.inspect(bare), sa.inspect(engine)
    assert {t: names(found, t) for t in tables.metadata.tables} == {t: names(wanted, t) for t in tables.metadata.tables}
    bare.dispose()


def test_an_upgrade_can_be_repeated_and_keeps_the_rows(database_url: str, engine: sa.Engine) -> None:
    writes.ingest(engine, an_artifact(), path="a")
    schema.upgrade(database_url)
    schema.check(engine)
    with reading(engine) as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(tables.run)) == 1


def test_eight_processes_may_upgrade_one_empty_database_at_once(empty_database_url: str) -> None:
    at_once(schema.upgrade, [(empty_database_url,)] * 8)
    engine = connect(empty_database_url)
    schema.check(engine)
    engine.dispose()


def test_what_was_upgraded_can_be_taken_back_to_nothing(engine: sa.Engine) -> None:
    with writing(engine) as connection:
        config = schema._config()
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert sa.inspect(engine).get_table_names() == ["alembic_version"]


def test_a_database_without_tables_asks_for_an_upgrade(empty_engine: sa.Engine) -> None:
    with pytest.raises(StoreError, match="is not there, not 0002; run `perfci db upgrade`"):
        schema.check(empty_engine)


def test_a_schema_from_the_future_is_left_alone(database_url: str, engine: sa.Engine) -> None:
    with writing(engine) as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    for attempt in (lambda: schema.check(engine), lambda: schema.upgrade(database_url)):
        with pytest.raises(StoreError, match="'9999', which this perfci does not know; update perfci"):
            attempt()


def test_an_upgrade_that_fails_leaves_nothing_behind(empty_database_url: str, empty_engine: sa.Engine) -> None:
    with writing(empty_engine) as connection:
        # In the way of the migration's last table but one.
        connection.exec_driver_sql("CREATE VIEW measurement AS SELECT 1 AS id")
    with pytest.raises(sa.exc.DBAPIError, match="measurement"):
        schema.upgrade(empty_database_url)
    assert sa.inspect(empty_engine).get_table_names() == []


def test_sqlite_keeps_a_write_ahead_log_so_that_readers_do_not_wait(tmp_path: Path) -> None:
    schema.upgrade(f"sqlite:///{tmp_path / 'perfci.db'}")
    engine = connect(f"sqlite:///{tmp_path / 'perfci.db'}")
    with reading(engine) as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    engine.dispose()


TIMED = {"n": 1, "median": 1.0, "mad": 0.0, "p10": 1.0, "p90": 1.0, "clock": Clock.FOREIGN, "iterations": 1}


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ({"status": Status.OK, "n": 0}, "ok_if_timed"),
        ({"status": Status.ERROR} | TIMED, "ok_if_timed"),
        ({"status": Status.OK} | TIMED | {"p90": None}, "timing_whole"),
        ({"status": Status.OK} | TIMED | {"clock": None}, "timing_whole"),
        ({"status": Status.ERROR, "n": 0, "samples": b"12345678"}, "timing_whole"),
        ({"status": Status.OK} | TIMED | {"median": 0.0}, "median"),
        ({"status": Status.MISSING, "n": 0, "flops": -1}, "workload_sizes"),
        ({"status": Status.MISSING, "n": 0, "series_id": 77}, "(?i)foreign key"),
    ],
)
def test_the_database_refuses_a_measurement_that_contradicts_itself(
    engine: sa.Engine, row: dict[str, object], rule: str
) -> None:
    run_id = writes.ingest(engine, an_artifact(), path="a").run_id
    sizes = dict.fromkeys(("tokens", "bytes_moved", "flops", "working_set_bytes"), 0)
    rest = {"series_id": 1, "run_id": run_id, "verified": False, "resolution": 0.0, "reason": "", "extras": {}}
    with writing(engine) as connection:
        connection.execute(sa.delete(tables.measurement))
    with pytest.raises(IntegrityError, match=rule), writing(engine) as connection:
        connection.execute(sa.insert(tables.measurement).values(rest | sizes | row))


def test_the_database_refuses_a_status_that_perfci_does_not_know(engine: sa.Engine) -> None:
    writes.ingest(engine, an_artifact(), path="a")
    with pytest.raises(IntegrityError, match="ck_run_status"), writing(engine) as connection:
        connection.exec_driver_sql("UPDATE run SET status = 'fine'")


def test_reading_a_dag_file_does_not_pay_for_migrations() -> None:
    code = "import sys, perfci.measure, perfci.nightly; print('alembic' in sys.modules, 'sqlalchemy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
