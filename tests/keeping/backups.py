"""Backups for tests: taken and restored without a word, taken apart and put together again."""

from __future__ import annotations

import json
import tarfile
from dataclasses import asdict
from pathlib import Path

import sqlalchemy as sa

from perfci import backup
from perfci.backup import archive
from tests.build import EPOCH


def quiet(line: str) -> None:
    pass


def taken(engine: sa.Engine, target: Path, *, artifacts: Path | None = None) -> backup.Taken:
    return backup.take(engine, target, artifacts=artifacts, now=EPOCH, echo=quiet)


def restored(url: str, file: Path, *, artifacts: Path | None = None) -> backup.Restored:
    return backup.restore(url, file, artifacts=artifacts, echo=quiet)


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
