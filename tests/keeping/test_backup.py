"""A backup is one moment of the database; restored, it is that moment again, on either database."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import stat
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from perfci import artifact
from perfci.errors import StoreError
from perfci.store import portable, reads, schema, writes
from perfci.store.engine import connect
from tests.build import a_commit, a_measurement, a_run, an_artifact
from tests.databases import _database
from tests.keeping.backups import contents, pack, restored, taken
from tests.keeping.contents import tables_of
from tests.keeping.freeze import fill
from tests.keeping.test_upgrades import RELEASES, load
from tests.store.processes import SPAWN


@pytest.fixture(params=["sqlite", "postgresql"])
def other_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without tables, of each kind for each kind that `database_url` has."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'other.db'}"
        return
    with _database(request.getfixturevalue("postgresql_server"), "template0") as url:
        yield url.render_as_string(hide_password=False)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:  # only root can mount one; others get a folder that they may not write to
        (folder / "all.tar").write_bytes(b"the one before")
        folder.chmod(0o500)
        yield folder
        folder.chmod(0o700)
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(folder)], check=True)
    (folder / "all.tar").write_bytes(b"the one before")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


# ------------------------------------------------------------------------------------------------ there and back


def test_each_database_comes_back_on_each_database(
    database_url: str, engine: sa.Engine, other_url: str, small: Path, tmp_path: Path
) -> None:
    restored(database_url, small)
    name = "all.tar.gz" if "sqlite" in other_url else "all.tar"
    told = taken(engine, tmp_path / name)
    back = restored(other_url, tmp_path / name)
    other = connect(other_url)
    assert tables_of(other) == tables_of(engine)
    schema.check(other)
    assert told.rows == sum(back.rows.values()) == sum(map(len, tables_of(engine).values()))
    other.dispose()


def test_numbers_go_on_after_a_restore(empty_database_url: str, small: Path) -> None:
    restored(empty_database_url, small)
    other = connect(empty_database_url)
    greatest = max(run["id"] for run in tables_of(other)["run"])
    new = a_run([a_measurement("new")], suite="new", session="new", commit=a_commit(99))
    assert writes.ingest(other, an_artifact(new), path="p").run_id == greatest + 1
    other.dispose()


def test_equal_databases_give_equal_backups(small: Path, tmp_path: Path) -> None:
    for number in "12":
        restored(f"sqlite:///{tmp_path / number}.db", small)
        taken(connect(f"sqlite:///{tmp_path / number}.db"), tmp_path / f"{number}.tar.gz")
    assert (tmp_path / "1.tar.gz").read_bytes() == (tmp_path / "2.tar.gz").read_bytes()
    taken(connect(f"sqlite:///{tmp_path / '1.db'}"), tmp_path / "1.tar")
    assert (tmp_path / "1.tar").read_bytes() == small.read_bytes()


@pytest.mark.parametrize("revision", RELEASES)
def test_a_backup_of_a_released_schema_is_taken_as_it_is_and_comes_back_upgraded(
    empty_database_url: str, other_url: str, tmp_path: Path, revision: str
) -> None:
    schema.upgrade(other_url)  # `perfci up` has made its tables, of the newest schema
    engine = load(empty_database_url, revision)
    taken(engine, tmp_path / "old.tar")
    restored(other_url, tmp_path / "old.tar")
    schema.upgrade(empty_database_url)
    other = connect(other_url)
    theirs, ours = tables_of(other), tables_of(engine)
    for row in (*theirs["run"], *ours["run"]):
        row["device_seconds"] = round(row["device_seconds"], 3)  # SQLite's arithmetic on times is no finer
    assert theirs == ours
    for each in (engine, other):
        schema.check(each)
        each.dispose()


def test_many_rows_are_several_members_and_come_back_whole(
    empty_database_url: str, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored(empty_database_url, small)
    engine = connect(empty_database_url)
    monkeypatch.setattr(portable, "PART_BYTES", 1000)
    many, other_url = small.with_name("many.tar"), f"sqlite:///{small.with_name('other.db')}"
    taken(engine, many)
    with tarfile.open(many) as tar:
        assert sum(name.startswith("tables/measurement/") for name in tar.getnames()) > 5
    restored(other_url, many)
    assert tables_of(connect(other_url)) == tables_of(engine)
    engine.dispose()


# ------------------------------------------------------------------------------------------------ one moment


def test_a_backup_beside_a_night_that_is_being_stored_is_one_moment(
    database_url: str, engine: sa.Engine, tmp_path: Path
) -> None:
    """Runs are stored all the while; what is taken has each of its runs whole, and is a beginning of what came."""
    store_some(database_url, 0, 10)
    writer = SPAWN.Process(target=store_some, args=(database_url, 10, 60))
    writer.start()
    counts = []
    for number in range(2):
        taken(engine, tmp_path / f"{number}.tar")
        url = f"sqlite:///{tmp_path / f'{number}.db'}"
        restored(url, tmp_path / f"{number}.tar")
        found = tables_of(connect(url))
        runs = [run["id"] for run in found["run"]]
        assert sorted(row["run_id"] for row in found["measurement"]) == sorted(runs * 2)
        assert {run["commit_id"] for run in found["run"]} == {commit["id"] for commit in found["commit"]}
        counts.append(len(runs))
    writer.join(timeout=120)
    assert writer.exitcode == 0
    assert counts == sorted(counts) and reads.counts(engine)["run"] == 60


def store_some(url: str, start: int, end: int) -> None:
    engine = connect(url)
    for number in range(start, end):
        run = a_run([a_measurement("a"), a_measurement("b")], commit=a_commit(number + 1), session=f"night-{number}")
        writes.ingest(engine, an_artifact(run), path="p")
    engine.dispose()


# ------------------------------------------------------------------------------------------------ the file


def test_a_backup_can_be_read_by_its_owner_alone_and_by_tar(new_sqlite: Callable[[Path], str], tmp_path: Path) -> None:
    small = tmp_path / "small.tar"
    taken(connect(new_sqlite(tmp_path / "small.db")), small)
    assert stat.S_IMODE(small.stat().st_mode) == 0o600
    with tarfile.open(small) as tar:
        assert tar.getnames()[-1] == "manifest.json"
        body = json.load(tar.extractfile("manifest.json") or io.BytesIO())
    assert (body["format"], body["version"], body["schema"]) == ("perfci-backup", 1, schema.newest())


def test_a_backup_that_cannot_be_finished_leaves_the_one_before(engine: sa.Engine, tmp_path: Path) -> None:
    target = tmp_path / "all.tar"
    target.write_bytes(b"the one before")
    with pytest.raises(StoreError):
        taken(connect(f"sqlite:///{tmp_path / 'absent.db'}"), target)
    assert target.read_bytes() == b"the one before"
    assert [path.name for path in tmp_path.glob(".writing-*")] == []


def test_a_full_disk_leaves_the_backup_before_and_no_half_one(small_disk: Path, engine: sa.Engine) -> None:
    fill(engine)
    target = small_disk / "all.tar"
    with pytest.raises(StoreError, match=r"No space left|Permission denied"):
        taken(engine, target)
    assert [path.name for path in small_disk.iterdir()] == ["all.tar"]
    assert target.read_bytes() == b"the one before"


def test_a_restore_onto_a_full_disk_says_so(small_disk: Path, small: Path) -> None:
    with pytest.raises(StoreError, match=r"the disk of .* is full|cannot be made"):
        restored(f"sqlite:///{small_disk / 'r.db'}", small)


@pytest.mark.parametrize("name", ["perfci.toml", "backup", "backup.zip"])
def test_only_a_name_of_a_backup_is_written(engine: sa.Engine, tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match="is no name of a backup; end it in"):
        taken(engine, tmp_path / name)
    assert not (tmp_path / name).exists()


def test_what_a_killed_backup_left_is_removed_by_the_next_one(engine: sa.Engine, tmp_path: Path) -> None:
    for name, age in ((".writing-1-all.tar", 9000), (".writing-2-all.tar", 10), (".writing-1-other.tar", 9000)):
        half = tmp_path / name
        half.touch()
        os.utime(half, (half.stat().st_mtime - age,) * 2)
    taken(engine, tmp_path / "all.tar")
    assert sorted(path.name for path in tmp_path.glob(".writing-*")) == [".writing-1-other.tar", ".writing-2-all.tar"]


# ------------------------------------------------------------------------------------------------ result files


def kept(engine: sa.Engine, folder: Path, *, count: int) -> list[Path]:
    """Runs stored, their files in the folder of artifacts."""
    paths = []
    for number in range(count):
        data = artifact.encode(a_run(commit=a_commit(number + 1), session=f"night-{number}"))
        body = artifact.decode(data, name="x")
        path = folder / body.sha256[:2] / f"{body.sha256}{artifact.SUFFIX}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        writes.ingest(engine, body, path=str(path))
        paths.append(path)
    return paths


def test_result_files_go_along_when_they_are_asked_for(database_url: str, engine: sa.Engine, tmp_path: Path) -> None:
    other_url = f"sqlite:///{tmp_path / 'other.db'}"
    paths = kept(engine, tmp_path / "artifacts", count=4)
    (tmp_path / "artifacts" / "ab").mkdir(exist_ok=True)
    (tmp_path / "artifacts" / "ab" / f"later{artifact.SUFFIX}").touch()  # the database knows nothing of it
    told = taken(engine, tmp_path / "all.tar.gz", artifacts=tmp_path / "artifacts")
    assert (told.artifacts, told.missing) == (4, ())
    back = restored(other_url, tmp_path / "all.tar.gz", artifacts=tmp_path / "elsewhere")
    assert back.artifacts == 4
    for path in paths:
        assert (tmp_path / "elsewhere" / path.parent.name / path.name).read_bytes() == path.read_bytes()


def test_a_result_file_that_is_gone_or_damaged_is_told_by_name(engine: sa.Engine, tmp_path: Path) -> None:
    gone, damaged, whole = kept(engine, tmp_path / "artifacts", count=3)
    gone.unlink()
    damaged.write_bytes(whole.read_bytes())
    told = taken(engine, tmp_path / "all.tar", artifacts=tmp_path / "artifacts")
    assert told.artifacts == 1
    assert set(told.missing) == {path.name.removesuffix(artifact.SUFFIX) for path in (gone, damaged)}


def test_result_files_of_a_restore_that_fails_are_taken_back(
    engine: sa.Engine, new_sqlite: Callable[[Path], str], tmp_path: Path
) -> None:
    kept(engine, tmp_path / "artifacts", count=3)
    taken(engine, tmp_path / "all.tar", artifacts=tmp_path / "artifacts")
    members = contents(tmp_path / "all.tar")
    # The last thing that is stored contradicts the schema: the manifest is right about it.
    rows = members["tables/measurement/00000.jsonl"].replace(b'"ok"', b'"no"')
    pack(tmp_path / "all.tar", members | {"tables/measurement/00000.jsonl": rows})
    with pytest.raises(StoreError, match="rows of measurement that cannot be stored"):
        restored(new_sqlite(tmp_path / "r.db"), tmp_path / "all.tar", artifacts=tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere").rglob("*.json")) == []


def test_a_restore_that_is_killed_has_stored_nothing(tmp_path: Path, small: Path) -> None:
    url = f"sqlite:///{tmp_path / 'r.db'}"
    process = SPAWN.Process(target=die_in_a_restore, args=(url, small))
    process.start()
    process.join(timeout=60)
    assert process.exitcode == 9
    assert not any(tables_of(connect(url)).values())
    restored(url, small)
    with closing(sqlite3.connect(tmp_path / "r.db")) as connection:
        assert connection.execute("SELECT count(*) FROM run").fetchone() == (19,)


def die_in_a_restore(url: str, file: Path) -> None:
    def dying(*_: object) -> None:
        os._exit(9)

    portable.number_on = dying  # type: ignore[assignment]  # the last step before the end
    restored(url, file)
