"""`perfci db …` as people type it."""

from __future__ import annotations

import signal
import subprocess
import tarfile
import time
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from perfci import artifact
from perfci.errors import StoreError
from perfci.model import AlertState
from perfci.store import reads, writes
from perfci.store.engine import connect
from tests.build import EPOCH, a_commit, a_run
from tests.keeping.contents import tables_of
from tests.nightly.place import Place

SETTINGS = "[policy]\nraw_samples_days = 30\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, SETTINGS)


def measured(place: Place, nights: int) -> None:
    (place.state / "incoming").mkdir(parents=True, exist_ok=True)
    for position in range(1, nights + 1):
        level = 0.0100 if position < 12 else 0.0110
        samples = [level * (1 + 0.0003 * ((position * 7 + n) % 5)) for n in range(5)]
        run = a_run(
            samples=samples,
            commit=a_commit(position),
            session=f"night-{position}",
            started_at=EPOCH - timedelta(days=400 - position),
        )
        (place.state / "incoming" / f"{position}{artifact.SUFFIX}").write_bytes(artifact.encode(run))
    ok(place.perfci("ingest"))
    ok(place.perfci("detect", "--session", f"night-{nights}"))


def ok(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_database_is_taken_away_lost_and_brought_back(place: Place, tmp_path: Path) -> None:
    measured(place, 24)
    (alert,) = reads.alerts(place.engine)
    writes.triage(place.engine, alert.id, state=AlertState.ACCEPTED, assignee="", note="known")
    before = tables_of(place.engine)
    file = tmp_path / "night.tar.gz"
    assert "24 result files" in ok(place.perfci("db", "backup", str(file), "--with-artifacts"))

    again = place.perfci("db", "restore", str(file))
    assert (again.returncode, again.stdout) == (2, "")
    assert "perfci.db has rows already (in alert); name a database without any" in again.stderr

    for path in place.state.glob("perfci.db*"):
        path.unlink()
    for path in list((place.state / "artifacts").rglob("*.json")):
        path.unlink()
    assert "24 new result files" in ok(place.perfci("db", "restore", str(file)))
    assert tables_of(place.engine) == before

    refused = place.perfci("db", "rebuild")
    assert refused.returncode == 2 and "add --decisions with a backup, or --without-decisions" in refused.stderr
    url = f"sqlite:///{tmp_path / 'rebuilt.db'}"
    told = ok(place.perfci("db", "rebuild", "--into", url))
    assert told == "24 results stored, 0 were there; 1 alerts as they were, 0 new ones\n"
    (alert,) = reads.alerts(connect(url), open_only=False)
    assert (alert.state, alert.note) == (AlertState.ACCEPTED, "known")
    url = f"sqlite:///{tmp_path / 'without.db'}"
    told = ok(place.perfci("db", "rebuild", "--into", url, "--without-decisions"))
    assert "0 alerts as they were, 1 new ones\nno decisions were given: every alert is new" in told


def test_a_rebuild_in_place_takes_its_decisions_from_a_backup_and_tells_what_is_gone(
    place: Place, tmp_path: Path
) -> None:
    measured(place, 14)
    file = tmp_path / "night.tar"
    ok(place.perfci("db", "backup", str(file)))
    for path in place.state.glob("perfci.db*"):
        path.unlink()
    gone = sorted((place.state / "artifacts").rglob("*.json"))[0]
    gone.unlink()
    done = place.perfci("db", "rebuild", "--decisions", str(file))
    assert done.returncode == 2
    assert done.stdout.startswith("13 results stored")
    assert f"perfci: the file of the result {gone.name.removesuffix(artifact.SUFFIX)} is missing" in done.stderr
    assert "perfci: " not in done.stdout and "Traceback" not in done.stderr


def test_thinning_tells_how_much_and_what_it_left(place: Place) -> None:
    measured(place, 3)
    assert "3 measurements older than 30 days would lose 0.0 MB" in ok(place.perfci("db", "thin", "--dry-run"))
    told = ok(place.perfci("db", "thin", "--vacuum"))
    assert "3 measurements older than 30 days lost 0.0 MB of samples\n0 source bundles removed\n" in told
    place.config.write_text("")
    assert "raw samples are kept" in ok(place.perfci("db", "thin"))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("backup", "x.zip"), "x.zip is no name of a backup; end it in .tar, .tar.gz, .tgz"),
        (("restore", "absent.tar"), "absent.tar: No such file or directory; name a backup"),
        (("restore", "perfci.toml"), "perfci.toml is no whole backup"),
        (("rebuild", "--into", "sqlite:////nowhere/x.db"), "there is no database at"),
        (("rebuild", "--into", "sqlite:////nowhere/x.db", "--without-decisions"), "/nowhere of the database does not"),
    ],
)
def test_what_cannot_be_done_is_one_line(place: Place, arguments: tuple[str, ...], problem: str) -> None:
    done = place.perfci("db", *arguments)
    assert done.returncode == 2
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1 and done.stdout == ""


@pytest.mark.faults
def test_a_rebuild_killed_ten_times_ends_with_the_same_database(place: Place, tmp_path: Path) -> None:
    """SIGKILL, each time at another place."""
    measured(place, 60)
    url = f"sqlite:///{tmp_path / 'rebuilt.db'}"
    rebuilt = connect(url)
    killed = 0
    for number in range(10):
        process = place.start("db", "rebuild", "--into", url)
        while process.poll() is None and stored(rebuilt) <= number * 5:
            time.sleep(0.02)
        killed += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert killed > 3
    told = ok(place.perfci("db", "rebuild", "--into", url))
    assert "60 results stored" in told or "were there" in told
    ours, theirs = tables_of(place.engine), tables_of(rebuilt)
    for table, key in (("run", "artifact_sha256"), ("commit", "sha")):
        assert sorted(row[key] for row in theirs[table]) == sorted(row[key] for row in ours[table])
    assert len(theirs["measurement"]) == 60 and len(theirs["alert"]) == len(ours["alert"]) == 1
    again = place.perfci("db", "rebuild", "--into", url)
    assert again.returncode == 2 and "has rows already" in again.stderr


def stored(engine: sa.Engine) -> int:
    try:
        return reads.counts(engine)["run"]
    except StoreError:
        return 0


@pytest.mark.faults
def test_a_backup_killed_anywhere_leaves_the_one_before_or_a_whole_new_one(place: Place, tmp_path: Path) -> None:
    measured(place, 60)
    file = tmp_path / "night.tar"
    ok(place.perfci("db", "backup", str(file), "--with-artifacts"))
    before = file.read_bytes()
    for _ in range(10):
        process = place.start("db", "backup", str(file), "--with-artifacts")
        while process.poll() is None and not any(tmp_path.glob(".writing-*")):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        with tarfile.open(file) as tar:
            assert tar.getnames()[-1] == "manifest.json"
    assert file.stat().st_size == len(before)  # the moment in it differs, no more
