"""Results from files into the database; the files are kept.

A file is moved only after the database has it: killed in between, the next ingest finds it again, and storing the
same bytes twice changes nothing.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from perfci import artifact, logs
from perfci.config import Settings
from perfci.errors import ArtifactError
from perfci.model import Origin, Run
from perfci.store import writes
from perfci.store.rows import Ingested

# A half-written file of a process that was killed; no writer takes an hour.
STALE_S = 3600.0
HALF_WRITTEN = ".writing-"
_NAME_BYTES = 240


def store_files(
    engine: Engine, settings: Settings, paths: Sequence[Path] | None = None, *, origin: Origin | None = None
) -> dict[str, Any]:
    """Store the named files, or all that wait in the incoming folder, and keep each below `settings.artifacts`.

    A file of the incoming folder is moved, one from elsewhere is copied. A file that is no result is put into the
    folder `refused` with its reason beside it (one from elsewhere stays where it is) and the others go on.
    Returns {"stored", "known", "sessions", "refused": [{"file", "reason"}]}. Raises StoreError: what is left stays.
    """
    told: dict[str, Any] = {"stored": 0, "known": 0, "sessions": [], "refused": []}
    for path in waiting(settings.incoming) if paths is None else paths:
        ours = path.parent.resolve() == settings.incoming.resolve()
        try:
            body = artifact.read(path)
            kept = settings.artifacts / body.sha256[:2] / f"{body.sha256}{artifact.SUFFIX}"
            stored_at = str(kept.relative_to(settings.state))
            stored = writes.ingest(engine, body, path=stored_at, name=str(path), origin=origin)
        except ArtifactError as error:
            there = os.path.lexists(path)
            if paths is None and not there:
                continue  # another ingest was quicker
            aside = _refuse(path, error, settings) if ours and there else str(path)
            told["refused"].append({"file": aside, "reason": str(error)})
            logs.event("refused", level=logging.WARNING, file=aside, reason=str(error))
            continue
        _keep(path, kept, settings, move=ours)
        told["stored" if stored.created else "known"] += 1
        told["sessions"] = sorted({*told["sessions"], body.run.session})
        _log(body.run, stored, path)
    return told


def waiting(folder: Path) -> tuple[Path, ...]:
    """Results in the folder, by name; what a killed writer left half-written is removed."""
    for half in folder.glob(f"{HALF_WRITTEN}*"):
        with suppress(FileNotFoundError):  # its writer has finished
            if time.time() - half.stat().st_mtime > STALE_S:
                half.unlink()
    return tuple(sorted(path for path in folder.glob(f"*{artifact.SUFFIX}") if not path.name.startswith(".")))


def _log(run: Run, stored: Ingested, path: Path) -> None:
    logs.event(
        "stored" if stored.created else "known",
        session=run.session,
        run=stored.run_id,
        suite=run.suite,
        hardware=run.hardware.name,
        commit=run.commit.sha,
        status=run.status.value,
        file=path.name,
    )


def _keep(path: Path, kept: Path, settings: Settings, *, move: bool) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    if move:
        _move(path, kept)
    elif not kept.exists():
        # Whole or not at all: a copy that a full disk broke off must not pass for the file. A part of its own for each
        # ingest that copies the same file, in the folder where a killed one's is removed.
        handle, name = tempfile.mkstemp(dir=settings.incoming, prefix=HALF_WRITTEN)
        os.close(handle)
        part = Path(name)
        try:
            shutil.copyfile(path, part)
            part.replace(kept)
        except BaseException:
            part.unlink()
            raise


def _move(path: Path, place: Path) -> None:
    with suppress(FileNotFoundError):  # another ingest of the same file was quicker
        shutil.move(path, place)


def _refuse(path: Path, error: ArtifactError, settings: Settings) -> str:
    folder = settings.state / "refused"
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / path.name
    _move(path, aside)
    # A name has 255 bytes, and they need be no text.
    start = os.fsdecode(os.fsencode(path.name)[:_NAME_BYTES])
    aside.with_name(f"{start}.reason.txt").write_text(f"{error}\n", "utf-8", errors="backslashreplace")
    return str(aside)
