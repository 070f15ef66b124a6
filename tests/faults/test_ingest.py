"""Ingest and its database die at the worst moments: nothing is lost, nothing is stored twice."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest
import sqlalchemy as sa

from perfci.store import reads
from perfci.store.engine import connect
from tests.faults import results
from tests.faults.deployment import Deployment, kill, until
from tests.faults.postgresql import Postgresql

NODE = results.SimulatedNode(0, measurements=20, runs=3)


@contextmanager
def held_up(place: Deployment) -> Iterator[subprocess.Popen[bytes]]:
    """`perfci ingest` that has written a run and now waits in the midst of its transaction for the measurements."""
    with closing(psycopg.connect(_plain(place.url))) as lock:  # a database that is gone wants no COMMIT
        lock.execute("LOCK TABLE measurement IN SHARE MODE")
        process = place.start("perfci.cli", "ingest")
        with psycopg.connect(_plain(place.url), autocommit=True) as watcher:
            waits = "SELECT 1 FROM pg_locks WHERE relation = 'measurement'::regclass AND NOT granted"
            until(lambda: watcher.execute(waits).fetchone(), "ingest waits for its table", place.logs)
        yield process


def _plain(url: str) -> str:
    return sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def _counts(place: Deployment) -> dict[str, int]:
    engine = connect(place.url, read_only=True)
    found = dict(reads.counts(engine))
    engine.dispose()
    return {name: found[name] for name in ("run", "measurement", "control")}


def _handed_in(place: Deployment) -> None:
    place.settings.incoming.mkdir(parents=True)
    results.write(NODE, 0, place.settings.incoming)


ALL = {"run": 3, "measurement": 60, "control": 9}
NOTHING = {"run": 0, "measurement": 0, "control": 0}


def test_ingest_killed_in_mid_transaction_leaves_nothing_and_the_next_one_stores_all_once(place: Deployment) -> None:
    _handed_in(place)
    with held_up(place) as process:
        kill(process)
    until(lambda: _counts(place) == NOTHING, "the broken transaction is gone", lambda: _counts(place))
    assert len(place.files("incoming")) == 3
    assert place.perfci("ingest").returncode == 0
    assert (_counts(place), len(place.files("incoming")), len(place.files("artifacts"))) == (ALL, 0, 3)


def test_ingest_killed_after_it_committed_stores_nothing_a_second_time(place: Deployment) -> None:
    """The file still waits, and the database has it."""
    _handed_in(place)
    first = place.files("incoming")[0]
    data = first.read_bytes()
    assert place.perfci("ingest").returncode == 0
    first.write_bytes(data)
    done = place.perfci("ingest")
    assert done.returncode == 0
    assert (_counts(place), len(place.files("incoming")), len(place.files("artifacts"))) == (ALL, 0, 3)


@pytest.mark.parametrize("how", ["power cut", "restart"])
def test_a_database_that_breaks_off_in_mid_transaction_is_named_and_nothing_is_lost(
    place: Deployment, server: Postgresql, how: str
) -> None:
    _handed_in(place)
    with held_up(place) as process:
        if how == "power cut":
            server.kill()
        else:
            server.stop(mode="fast")
        process.wait(60)
    assert process.returncode == 2
    said = place.logs()
    assert "try again" in said or "start the server" in said
    assert "Traceback" not in said
    down = place.perfci("ingest")
    assert down.returncode == 2
    assert "cannot be reached" in down.stderr
    assert len(place.files("incoming")) == 3
    server.start()
    assert _counts(place) == NOTHING
    assert place.perfci("ingest").returncode == 0
    assert (_counts(place), len(place.files("incoming")), len(place.files("artifacts"))) == (ALL, 0, 3)


def test_two_ingests_of_which_one_is_killed_store_everything_once(place: Deployment) -> None:
    _handed_in(place)
    with held_up(place) as killed:
        other = place.start("perfci.cli", "ingest")
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
    assert other.wait(60) == 0, place.logs()
    assert (_counts(place), len(place.files("incoming")), len(place.files("artifacts"))) == (ALL, 0, 3)
