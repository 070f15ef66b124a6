"""Whatever lies in the incoming folder, and however many take it in: each result is stored once and kept whole."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfci import artifact, nightly
from perfci.ingest import STALE_S
from perfci.store import reads
from tests.build import a_run
from tests.nightly.place import Place
from tests.store.processes import at_once

WRITERS = 8
FILES = 12


def a_result(folder: Path, index: int) -> Path:
    return artifact.write(a_run(suite="toy", index=index), folder)


def incoming(place: Place) -> Path:
    folder = place.state / "incoming"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def kept(place: Place) -> list[Path]:
    return sorted(path for path in (place.state / "artifacts").rglob("*") if path.is_file())


def assert_all_there(place: Place, count: int) -> None:
    assert reads.counts(place.engine)["run"] == count
    assert len(kept(place)) == count
    for path in kept(place):
        assert path.name == f"{hashlib.sha256(path.read_bytes()).hexdigest()}{artifact.SUFFIX}"
    assert list(incoming(place).iterdir()) == []


def test_eight_that_take_in_one_folder_at_once_store_each_result_once(place: Place) -> None:
    nightly.plan(place.path)
    for index in range(FILES):
        a_result(incoming(place), index)
    told = at_once(nightly.ingest, [(place.path,)] * WRITERS)
    assert sum(each["stored"] for each in told) == FILES
    assert [each["refused"] for each in told] == [[]] * WRITERS
    assert_all_there(place, FILES)


def test_eight_that_take_in_the_same_named_files_at_once_store_each_result_once(place: Place) -> None:
    nightly.plan(place.path)
    delivered = place.folder / "delivered"
    paths = [str(a_result(delivered, index)) for index in range(FILES)]
    told = at_once(nightly.ingest, [(place.path, paths)] * WRITERS)
    assert sum(each["stored"] for each in told) == FILES
    assert [each["refused"] for each in told] == [[]] * WRITERS
    assert_all_there(place, FILES)


def a_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("/nonexistent")


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, a_link_to_a_device, a_link_to_nothing, Path.touch])
def test_what_is_no_file_at_all_is_set_aside_and_the_others_are_stored(
    place: Place, make: Callable[[Path], None]
) -> None:
    nightly.plan(place.path)
    make(incoming(place) / "it.perfci.json")
    a_result(incoming(place), 0)
    told = nightly.ingest(place.path)
    assert (told["stored"], len(told["refused"])) == (1, 1)
    assert_all_there(place, 1)
    assert nightly.ingest(place.path)["refused"] == []


@pytest.mark.parametrize("name", [b"\xff\xfe", b"n" * 242, "\N{PILE OF POO}".encode() * 60, b"a\nb\x1b[31m"])
def test_a_bad_file_of_any_name_is_set_aside_with_its_reason(place: Place, name: bytes) -> None:
    nightly.plan(place.path)
    path = incoming(place) / os.fsdecode(name + artifact.SUFFIX.encode())
    path.write_text("{}")
    told = nightly.ingest(place.path)
    (refused,) = told["refused"]
    assert Path(refused["file"]).parent == place.state / "refused"
    assert len(list((place.state / "refused").glob("*.reason.txt"))) == 1
    json.dumps(told)
    assert list(incoming(place).iterdir()) == []
    shown = place.perfci("ingest", str(path))
    assert (shown.returncode, shown.stderr.count("\n")) == (2, 1)
    assert "No such file" in shown.stderr


def test_a_half_written_file_of_a_killed_writer_goes_and_that_of_a_living_one_stays(place: Place) -> None:
    nightly.plan(place.path)
    old, new = (incoming(place) / f".writing-{age}" for age in ("old", "new"))
    for path in (old, new):
        path.write_text("{")
    when = old.stat().st_mtime - STALE_S - 1
    os.utime(old, (when, when))
    nightly.ingest(place.path)
    assert list(incoming(place).iterdir()) == [new]


def test_a_copy_that_the_disk_broke_off_leaves_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    nightly.plan(place.path)
    path = a_result(place.folder / "delivered", 0)

    def full(source: Any, target: Any) -> None:
        Path(target).write_text("{")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("perfci.ingest.shutil.copyfile", full)
    with pytest.raises(OSError, match="No space"):
        nightly.ingest(place.path, [str(path)])
    assert kept(place) == []
    assert list(incoming(place).iterdir()) == []
    monkeypatch.undo()
    nightly.ingest(place.path, [str(path)])
    assert_all_there(place, 1)
