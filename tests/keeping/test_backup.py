"""A backup is one moment of the database; restored, it is that moment again, on either database."""

from __future__ import annotations

import gzip
import io
import json
import os
import sqlite3
import stat
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest
import sqlalchemy as sa

from perfci import artifact, backup
from perfci.backup import archive
from perfci.errors import StoreError
from perfci.store import portable, reads, schema, writes
from perfci.store.engine import connect
from tests.build import EPOCH, a_commit, a_measurement, a_run, an_artifact
from tests.databases import _database
from tests.keeping.contents import tables_of
from tests.keeping.freeze import fill
from tests.keeping.test_upgrades import RELEASES, load
from tests.store.processes import SPAWN


def quiet(line: str) -> None:
    pass


def taken(engine: sa.Engine, target: Path, *, artifacts: Path | None = None) -> backup.Taken:
    return backup.take(engine, target, artifacts=artifacts, now=EPOCH, echo=quiet)


@pytest.fixture(params=["sqlite", "postgresql"])
def other_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without tables, of each kind for each kind that `database_url` has."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'other.db'}"
        return
    with _database(request.getfixturevalue("postgresql_server"), "template0") as url:
        yield url.render_as_string(hide_password=False)


@pytest.fixture(scope="module")
def small_once(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("small")
    schema.upgrade(f"sqlite:///{folder / 'small.db'}")
    engine = connect(f"sqlite:///{folder / 'small.db'}")
    fill(engine)
    taken(engine, folder / "small.tar")
    return (folder / "small.tar").read_bytes()


@pytest.fixture
def small(small_once: bytes, tmp_path: Path) -> Path:
    """A backup with a few rows of everything."""
    path = tmp_path / "small.tar"
    path.write_bytes(small_once)
    return path


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


def restored(url: str, file: Path, *, artifacts: Path | None = None) -> backup.Restored:
    return backup.restore(url, file, artifacts=artifacts, echo=quiet)


# ------------------------------------------------------------------------------------------------ there and back


@pytest.mark.parametrize("name", ["all.tar", "all.tar.gz"])
def test_each_database_comes_back_on_each_database(
    engine: sa.Engine, other_url: str, tmp_path: Path, name: str
) -> None:
    fill(engine)
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


def test_equal_databases_give_equal_backups(new_sqlite: Callable[[Path], str], tmp_path: Path) -> None:
    for number in "12":
        engine = connect(new_sqlite(tmp_path / f"{number}.db"))
        fill(engine)
        taken(engine, tmp_path / f"{number}.tar.gz")
    assert (tmp_path / "1.tar.gz").read_bytes() == (tmp_path / "2.tar.gz").read_bytes()


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
    for number in range(3):
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


# ------------------------------------------------------------------------------------------------ refused whole


def contents(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as tar:
        found = {info.name: tar.extractfile(info) for info in tar}
        return {name: stream.read() for name, stream in found.items() if stream is not None}


def pack(file: Path, contained: dict[str, bytes], **changed: object) -> None:
    """A backup of these members, by default with a manifest that fits them."""
    body = json.loads(contained["manifest.json"])
    body["members"] = []
    with file.open("wb") as stream:
        writer = archive.Writer(stream, at=0)
        for name, data in contained.items():
            if name != "manifest.json":
                member = writer.add(name, data)
            if name.startswith("tables/"):
                body["members"].append(asdict(member))
        for table in body["tables"]:
            lines = [data.count(b"\n") for name, data in contained.items() if name.startswith(f"tables/{table}/")]
            body["tables"][table]["rows"] = sum(lines)
        writer.add("manifest.json", json.dumps(body | changed).encode())
        writer.close()


def refuse(url: str, file: Path, match: str) -> None:
    engine = connect(url, create=True)
    with pytest.raises(StoreError, match=match):
        restored(url, file, artifacts=file.parent / "artifacts")
    names = sa.inspect(engine).get_table_names()
    assert names == [] or not any(tables_of(engine).values())
    assert not (file.parent / "artifacts").exists()
    engine.dispose()


def test_a_database_with_rows_is_left_alone(engine: sa.Engine, database_url: str, small: Path) -> None:
    writes.ingest(engine, an_artifact(), path="p")
    before = tables_of(engine)
    with pytest.raises(StoreError, match=r"has rows already \(in commit\); name a database without any"):
        restored(database_url, small)
    assert tables_of(engine) == before


def test_another_program_s_database_is_left_alone(empty_database_url: str, small: Path) -> None:
    engine = connect(empty_database_url, create=True)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE session (id INTEGER)")
    with pytest.raises(StoreError, match="has a table 'session' that is not perfci's"):
        restored(empty_database_url, small)
    assert sa.inspect(engine).get_table_names() == ["session"]
    engine.dispose()


def test_a_backup_of_a_schema_to_come_is_refused(empty_database_url: str, small: Path) -> None:
    pack(small, contents(small), schema="9999")
    refuse(empty_database_url, small, "is of the schema '9999', which is newer; update perfci")


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"version": 2}, "it is version 2 of 'perfci-backup'"),
        ({"format": "other"}, "of 'other'"),
        ({"tables": []}, "manifest cannot be read"),
        ({"members": [{}]}, "manifest cannot be read"),
        ({"artifacts": 3}, "tells of other contents"),
        ({"members": []}, "tells of other contents"),
        ({"schema": None}, "is of the schema 'None'"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(
    tmp_path: Path, small: Path, changed: dict[str, object], match: str
) -> None:
    pack(small, contents(small), **changed)
    refuse(f"sqlite:///{tmp_path / 'r.db'}", small, match)


def test_every_cut_off_end_and_every_flipped_bit_is_refused(
    new_sqlite: Callable[[Path], str], tmp_path: Path, small: Path
) -> None:
    data = small.read_bytes()
    url = new_sqlite(tmp_path / "r.db")
    damaged = tmp_path / "damaged.tar"
    for place in range(0, len(data.rstrip(b"\0")), 997):
        for wrong in (data[:place], data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]):
            damaged.write_bytes(wrong)
            try:
                restored(url, damaged)
            except StoreError:
                continue
            # Nobody reads the padding of a member.
            pytest.fail(f"byte {place} of {len(data)}")
    assert not any(tables_of(connect(url)).values())


def test_a_gzipped_backup_that_is_cut_off_or_flipped_is_refused(tmp_path: Path, small: Path) -> None:
    data = gzip.compress(small.read_bytes())
    damaged = tmp_path / "damaged.tar.gz"
    for place in range(1, len(data), len(data) // 40):
        for wrong in (data[:place], data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]):
            damaged.write_bytes(wrong)
            try:
                with archive.opened(damaged) as stream:
                    list(archive.members(stream, name="it"))
            except StoreError:
                continue
            # Flags, time and system of the header say nothing about the contents.
            assert place < 10 and len(wrong) == len(data)


def hostile(name: str, data: bytes = b"x", **more: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in more.items():
        setattr(info, key, value)
    return info


@pytest.mark.parametrize(
    "info",
    [
        hostile("/etc/passwd"),
        hostile("../../outside"),
        hostile("tables/../../outside/00000.jsonl"),
        hostile("artifacts/ab/../../../outside.perfci.json"),
        hostile("tables/run/00000.jsonl", type=tarfile.SYMTYPE, linkname="/etc/passwd", size=0),
        hostile("tables/run/00000.jsonl", type=tarfile.LNKTYPE, linkname="manifest.json", size=0),
        hostile("tables/run/00000.jsonl", type=tarfile.CHRTYPE, size=0),
        hostile("tables/run/00000.jsonl", type=tarfile.DIRTYPE, size=0),
        hostile("tables/run/00000.jsonl", type=tarfile.XHDTYPE, size=2**33),
        hostile("tables/run/00000.jsonl", type=tarfile.GNUTYPE_LONGNAME, size=2**33),
        hostile("tables/run/00000.jsonl", size=2**33),
        hostile(f"artifacts/ab/ab{'0' * 62}.perfci.json", size=artifact.MAX_BYTES + 1),
        hostile("tables/run/00000.jsonl\0/../../x"),
    ],
    ids=lambda info: f"{info.name[:30]!r}-{info.type!r}-{info.size}",
)
def test_a_member_that_no_backup_has_is_refused_before_it_is_read(tmp_path: Path, info: tarfile.TarInfo) -> None:
    file = tmp_path / "hostile.tar"
    file.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + b"x".ljust(512, b"\0") + bytes(1024))
    refuse(f"sqlite:///{tmp_path / 'r.db'}", file, "is no whole backup")
    assert not (tmp_path.parent / "outside").exists()


def test_a_result_file_with_other_contents_than_its_name_says_is_refused(tmp_path: Path, small: Path) -> None:
    members = contents(small)
    name = f"artifacts/ab/ab{'0' * 62}.perfci.json"
    manifest = members.pop("manifest.json")
    pack(small, members | {name: b"{}", "manifest.json": manifest}, artifacts=1)
    refuse(f"sqlite:///{tmp_path / 'r.db'}", small, "has other contents than its name says")


def test_a_file_that_unpacks_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "ALWAYS_FINE", 1_000_000)
    file = tmp_path / "bomb.tar.gz"
    with gzip.open(file, "wb") as packed:
        for number in range(20):
            info = hostile(f"tables/run/{number:05d}.jsonl", size=2**20)
            packed.write(info.tobuf(tarfile.USTAR_FORMAT) + bytes(2**20))
    refuse(f"sqlite:///{tmp_path / 'r.db'}", file, "unpacks to more than it can have held")


@pytest.mark.parametrize(
    ("table", "old", "new", "match"),
    [
        ("run", b'"measured"', b'"measured","more"', "a row of another length"),
        ("run", b'"measured"', b'"invented"', "cannot be stored"),
        ("run", b'"measured"', b"7", "origin: no text"),
        ("run", b'"measured"', b"null", "origin"),
        ("run", b"30.0", b"NaN", "cannot be stored"),
        ("run", b'"2026-12-02T', b'"when', "started_at"),
        ("run", b"[1,", b"[true,", "id: no integer"),
        ("run", b"[1,", b"[1e400,", "id: no integer"),
        ("run", b"[1,", b"[99999999999999999999,", "id: no integer"),
        ("run", b"[1,", b"[" * 100_000, "cannot be stored"),
        ("run", b"[1,", b"[2,", "cannot be stored"),
        ("suite", b"false]", b'"no"]', "synthetic: neither true nor false"),
        ("session", b'"night-1"', b'"night\\u0000"', "name: no text"),
        ("session", b'"night-1"', b'"night\\ud800"', "name"),
        ("series", b'"torch-eager"', b'"triton"', "cannot be stored"),
        ("measurement", b'=="]', b'%%"]', "samples"),
    ],
)
def test_rows_that_the_schema_has_no_place_for_are_refused_and_nothing_is_stored(
    tmp_path: Path, small: Path, table: str, old: bytes, new: bytes, match: str
) -> None:
    """On SQLite, which would take text for a number."""
    members = contents(small)
    name = f"tables/{table}/00000.jsonl"
    place = members[name].find(old)
    assert place >= 0, members[name][:300]
    pack(small, members | {name: members[name][:place] + new + members[name][place + len(old) :]})
    refuse(f"sqlite:///{tmp_path / 'r.db'}", small, match)


def test_rows_that_refer_to_nothing_are_refused(empty_database_url: str, small: Path) -> None:
    members = contents(small)
    members["tables/node/00000.jsonl"] = b"".join(members["tables/node/00000.jsonl"].splitlines(keepends=True)[1:])
    pack(small, members)
    refuse(empty_database_url, small, "node")


def test_columns_and_tables_that_the_schema_does_not_have_are_refused(tmp_path: Path, small: Path) -> None:
    members = contents(small)
    body = json.loads(members["manifest.json"])["tables"]
    body["run"]["columns"].append("id; DROP TABLE run")
    pack(small, members, tables=body)
    refuse(f"sqlite:///{tmp_path / 'r.db'}", small, "has other tables than")


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
