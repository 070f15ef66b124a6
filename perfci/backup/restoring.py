"""Put a backup into a database that has no rows: all of it, or nothing changes."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from perfci import artifact
from perfci.backup import archive
from perfci.backup.archive import Member, refused
from perfci.store import portable


@dataclass(frozen=True, slots=True)
class Restored:
    """rows by table; artifacts: result files that were not there before."""

    rows: Mapping[str, int]
    artifacts: int
    made_at: str


@dataclass(frozen=True, slots=True)
class _Manifest:
    made: portable.Shape
    rows: Mapping[str, int]
    members: Mapping[str, Member]
    artifacts: int
    made_at: str


def restore(
    url: str,
    source: Path,
    *,
    artifacts: Path | None,
    echo: Callable[[str], None],
    leave_out: Collection[str] = (),
) -> Restored:
    """The file is read twice: whether it is whole, and only then what is in it.

    artifacts: the folder that its result files go to; None leaves them. leave_out: tables whose rows are not wanted;
    what refers to them must be among them. Raises StoreError.
    """
    placed: list[Path] = []
    try:
        with archive.opened(source) as stream:
            manifest = _checked(stream, name=str(source))
            echo(f"{source} is whole: made at {manifest.made_at}, schema {manifest.made.revision}")
            found = _parts(stream, manifest, placed, artifacts=artifacts, name=str(source))
            wanted = (part for part in found if part.table not in leave_out)
            rows = portable.restore(url, manifest.made, wanted, name=str(source))
    except BaseException:
        for path in placed:
            path.unlink(missing_ok=True)
        raise
    return Restored(rows, len(placed), manifest.made_at)


def _checked(stream: BinaryIO, *, name: str) -> _Manifest:
    found: dict[str, Member] = {}
    rows: Counter[str] = Counter()
    kept, last = 0, b""
    for member, data in archive.members(stream, name=name):
        last = data
        if archive.ARTIFACT.fullmatch(member):
            _check_artifact(member, data, name=name)
            kept += 1
        elif member != archive.MANIFEST:
            found[member] = Member(member, len(data), hashlib.sha256(data).hexdigest())
            rows[member.split("/")[1]] += data.count(b"\n")
    manifest = _manifest(last, name=name)
    told = (manifest.members, list(manifest.members), manifest.artifacts, +Counter(manifest.rows))
    if told != (found, list(found), kept, rows):
        raise refused(name, "its manifest tells of other contents")
    return manifest


def _manifest(data: bytes, *, name: str) -> _Manifest:
    try:
        body: dict[str, Any] = json.loads(data)
        if body["format"] != archive.FORMAT or body["version"] != archive.VERSION:
            raise ValueError(f"it is version {body['version']!r} of {body['format']!r}")
        tables: dict[str, Any] = body["tables"]
        members = [Member(str(m["name"]), int(m["bytes"]), str(m["sha256"])) for m in body["members"]]
        return _Manifest(
            made=portable.Shape(
                str(body["schema"]), {t: tuple(map(str, told["columns"])) for t, told in tables.items()}
            ),
            rows={t: int(told["rows"]) for t, told in tables.items()},
            members={member.name: member for member in members},
            artifacts=int(body["artifacts"]),
            made_at=str(body["made_at"])[:40],
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise refused(name, f"its manifest cannot be read ({error})") from error


def _parts(
    stream: BinaryIO, manifest: _Manifest, placed: list[Path], *, artifacts: Path | None, name: str
) -> Iterator[portable.Part]:
    """Rows, and on the way the result files into their place; `placed` takes those that were not there."""
    for member, data in archive.members(stream, name=name):
        if member == archive.MANIFEST:
            return
        if (kept := archive.ARTIFACT.fullmatch(member)) is not None:
            _check_artifact(member, data, name=name)
            if artifacts is not None:
                _place(data, artifacts / kept[1] / f"{kept[2]}{artifact.SUFFIX}", placed)
            continue
        told = manifest.members.get(member)
        table = archive.TABLE.fullmatch(member)
        if told is None or table is None or told.sha256 != hashlib.sha256(data).hexdigest():
            raise refused(name, "it changed while it was read")
        yield portable.Part(table[1], data.count(b"\n"), data)


def _check_artifact(member: str, data: bytes, *, name: str) -> None:
    kept = archive.ARTIFACT.fullmatch(member)
    if kept is None or hashlib.sha256(data).hexdigest() != kept[2]:
        raise refused(name, f"{member} has other contents than its name says")


def _place(data: bytes, path: Path, placed: list[Path]) -> None:
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    placed.append(path)
    artifact.write_whole(data, path)
