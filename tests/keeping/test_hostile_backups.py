"""What is no whole backup, or does not fit its schema, is refused in one line, and nothing is stored."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from perfci import artifact
from perfci.backup import archive
from perfci.errors import StoreError
from perfci.store import writes
from perfci.store.engine import connect
from tests.build import an_artifact
from tests.keeping.backups import contents, pack, restored
from tests.keeping.contents import tables_of


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
    monkeypatch.setattr(archive, "MAX_RATIO", 100)
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
