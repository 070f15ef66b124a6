"""Every schema that was ever released, with data in it, becomes the newest one and loses nothing.

`released/` holds a frozen dump of each, for both databases (`freeze.py` writes them). A migration without the dump of
the version before it fails here.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command

from perfci.errors import StoreError
from perfci.model import AlertState
from perfci.store import reads, schema, tables, writes
from perfci.store.engine import connect, writing
from tests.build import a_commit, a_run, an_artifact
from tests.keeping.contents import tables_of
from tests.keeping.freeze import RELEASED, fill

RELEASES = sorted({path.name.split(".")[0] for path in RELEASED.glob("*.sql")})


def load(url: str, revision: str) -> sa.Engine:
    """The frozen database of that revision, at this URL."""
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.executescript((RELEASED / f"{revision}.sqlite.sql").read_text("utf-8"))
        return connect(url)
    engine = connect(url)
    with writing(engine) as connection:
        # No parameters, so that the driver takes several statements at once and a % as it stands.
        connection.connection.cursor().execute((RELEASED / f"{revision}.postgresql.sql").read_bytes())
    return engine


def test_each_migration_has_a_frozen_database_of_the_version_before_it() -> None:
    wanted = {
        RELEASED / f"{revision}.{dialect}.sql"
        for revision in schema.known()[1:]
        for dialect in ("sqlite", "postgresql")
    }
    missing = sorted(path.name for path in wanted if not path.is_file())
    assert not missing, f"{', '.join(missing)}: freeze that version, see tests/keeping/freeze.py"


@pytest.mark.parametrize("revision", RELEASES)
def test_every_row_of_a_released_database_survives_the_upgrade_as_it_was(
    empty_database_url: str, revision: str
) -> None:
    engine = load(empty_database_url, revision)
    before = tables_of(engine)
    assert all(before.values()), "a table of the frozen database is empty"
    schema.upgrade(empty_database_url)
    schema.check(engine)
    after = tables_of(engine)
    for name, rows in before.items():
        kept = [{column: row[column] for column in old} for old, row in zip(rows, after[name], strict=True)]
        assert kept == rows
    engine.dispose()


@pytest.mark.parametrize("revision", RELEASES)
def test_an_upgraded_database_has_the_schema_of_a_new_one(empty_database_url: str, revision: str) -> None:
    engine = load(empty_database_url, revision)
    schema.upgrade(empty_database_url)
    with writing(engine) as connection:
        config = schema._config()
        config.attributes["connection"] = connection
        command.check(config)
    if engine.dialect.name == "sqlite":
        with writing(engine) as connection:
            assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
    for table in tables.metadata.sorted_tables:
        assert {check["name"] for check in sa.inspect(engine).get_check_constraints(table.name)} >= {
            check.name for check in table.constraints if isinstance(check, sa.CheckConstraint)
        }
    engine.dispose()


@pytest.mark.parametrize("revision", RELEASES)
def test_work_goes_on_in_an_upgraded_database(empty_database_url: str, revision: str) -> None:
    engine = load(empty_database_url, revision)
    schema.upgrade(empty_database_url)
    known = reads.counts(engine)
    made = writes.ingest(engine, an_artifact(a_run(commit=a_commit(10), session="after")), path="after")
    assert made.created and reads.counts(engine)["run"] == known["run"] + 1
    series = reads.all_series(engine, suite="kernels", hardware="cpu-test-2c")[0]
    assert [point.commit.position for point in reads.history(engine, series.id)][-1] == 10
    decided = [alert for alert in reads.alerts(engine, open_only=False) if alert.state is AlertState.ACCEPTED]
    assert [(alert.assignee, alert.note) for alert in decided] == [("someone", "traded for 10 %")]
    engine.dispose()


def test_device_seconds_of_older_runs_are_what_they_said_themselves(empty_database_url: str) -> None:
    engine = load(empty_database_url, "0001")
    schema.upgrade(empty_database_url)
    runs = tables_of(engine)["run"]
    for run in runs:
        held = (run["finished_at"] - run["started_at"]).total_seconds()
        assert run["device_seconds"] == pytest.approx(held, abs=1e-4)
    assert len(runs) == 19
    engine.dispose()


def test_an_upgrade_that_breaks_a_reference_is_refused_whole(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'perfci.db'}"
    load(url, "0001").dispose()
    with closing(sqlite3.connect(tmp_path / "perfci.db")) as connection:
        connection.execute("DELETE FROM node WHERE id = 1")
        connection.commit()
    engine = connect(url)
    before = tables_of(engine)
    with pytest.raises(StoreError, match="has a row of run that refers to no node; nothing was changed"):
        schema.upgrade(url)
    assert tables_of(engine) == before
    engine.dispose()


def test_a_full_database_can_be_taken_back_a_version_and_forward_again(database_url: str, engine: sa.Engine) -> None:
    """No command of perfci does it: an older perfci gets the backup that was made before the upgrade."""
    fill(engine)
    before = tables_of(engine)
    with schema.changing(database_url) as connection:
        config = schema._config()
        config.attributes["connection"] = connection
        command.downgrade(config, "-1")
        schema.check_references(connection)
    schema.upgrade(database_url)
    after = tables_of(engine)
    for name in ("run", "measurement", "control", "commit", "series", "alert"):
        for row, old in zip(after[name], before[name], strict=True):
            assert row.pop("device_seconds", 0) == pytest.approx(old.pop("device_seconds", 0), abs=1e-4)
            assert row == old
