"""Take a backup: one moment of the database, while others go on writing to it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa

from perfci import __version__, artifact
from perfci.backup import archive
from perfci.store import keeping, portable

_TOLD = 1000  # result files between two lines of progress


@dataclass(frozen=True, slots=True)
class Taken:
    """missing: runs of which no whole result file was there (asked for alone)."""

    rows: int
    artifacts: int
    missing: tuple[str, ...]
    bytes: int


def take(
    engine: sa.Engine, target: Path, *, artifacts: Path | None, now: datetime, echo: Callable[[str], None]
) -> Taken:
    """Write the database into `target` (its suffix says whether gzipped), in one step: whole or not at all.

    artifacts: the folder of result files, to be taken along; None for the database alone. Raises StoreError.
    """
    with archive.whole(target) as stream, portable.snapshot(engine) as connection:
        writer = archive.Writer(stream, at=now.timestamp())
        made = portable.shape(connection)
        members, rows = _add_tables(writer, connection, made, echo=echo)
        kept, missing = _add_artifacts(writer, keeping.artifacts(connection), artifacts, echo=echo)
        manifest = {
            "format": archive.FORMAT,
            "version": archive.VERSION,
            "perfci": __version__,
            "made_at": now.isoformat(),
            "schema": made.revision,
            "tables": {name: {"columns": columns, "rows": rows[name]} for name, columns in made.columns.items()},
            "members": [asdict(member) for member in members],
            "artifacts": kept,
            "missing": missing,
        }
        writer.add(archive.MANIFEST, json.dumps(manifest, indent=1).encode())
        writer.close()
    return Taken(sum(rows.values()), kept, tuple(missing), target.stat().st_size)


def _add_tables(
    writer: archive.Writer, connection: sa.Connection, made: portable.Shape, *, echo: Callable[[str], None]
) -> tuple[list[archive.Member], dict[str, int]]:
    members: list[archive.Member] = []
    rows = dict.fromkeys(made.columns, 0)
    for table in made.columns:
        for number, part in enumerate(portable.parts(connection, table)):
            members.append(writer.add(f"tables/{table}/{number:05d}.jsonl", part.lines))
            rows[table] += part.rows
        echo(f"{table}: {rows[table]} rows")
    return members, rows


def _add_artifacts(
    writer: archive.Writer, wanted: Iterable[str], folder: Path | None, *, echo: Callable[[str], None]
) -> tuple[int, list[str]]:
    kept = 0
    missing: list[str] = []
    for sha256, data in _contents(list(wanted), folder) if folder else ():
        if data is None:
            missing.append(sha256)
            continue
        writer.add(f"artifacts/{sha256[:2]}/{sha256}{artifact.SUFFIX}", data)
        kept += 1
        if kept % _TOLD == 0:
            echo(f"{kept} result files")
    return kept, missing


def _contents(wanted: list[str], folder: Path) -> Iterator[tuple[str, bytes | None]]:
    """A file is put there just after the database has it: what is not there yet is looked for once more at the end."""
    late: list[str] = []
    for sha256 in wanted:
        if (data := _content(sha256, folder)) is None:
            late.append(sha256)
        else:
            yield sha256, data
    for sha256 in late:
        yield sha256, _content(sha256, folder)


def _content(sha256: str, folder: Path) -> bytes | None:
    try:
        data = artifact.contents(folder / sha256[:2] / f"{sha256}{artifact.SUFFIX}", limit=artifact.MAX_BYTES)
    except OSError:
        return None
    return data if hashlib.sha256(data).hexdigest() == sha256 else None
