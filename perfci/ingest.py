"""Results from files into the database; the files are kept.

A file is moved only after the database has it: killed in between, the next ingest finds it again, and storing the
same bytes twice changes nothing.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from perfci import artifact
from perfci.config import Settings
from perfci.errors import ArtifactError
from perfci.model import Origin
from perfci.store import writes

# A half-written file of a process that was killed; no writer takes an hour.
STALE_S = 3600.0


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
        ours = path.resolve().parent == settings.incoming.resolve()
        if ours and not path.exists():
            continue  # another ingest was quicker
        try:
            body = artifact.read(path)
            kept = settings.artifacts / body.sha256[:2] / f"{body.sha256}{artifact.SUFFIX}"
            stored = writes.ingest(engine, body, path=str(kept.relative_to(settings.state)), origin=origin)
        except ArtifactError as error:
            told["refused"].append(
                {"file": _refuse(path, error, settings) if ours else str(path), "reason": str(error)}
            )
            continue
        _keep(path, kept, move=ours)
        told["stored" if stored.created else "known"] += 1
        told["sessions"] = sorted({*told["sessions"], body.run.session})
    return told


def waiting(folder: Path) -> tuple[Path, ...]:
    """Results in the folder, by name; what a killed writer left half-written is removed."""
    for half in folder.glob(".writing-*"):
        if time.time() - half.stat().st_mtime > STALE_S:
            half.unlink(missing_ok=True)
    return tuple(sorted(path for path in folder.glob(f"*{artifact.SUFFIX}") if not path.name.startswith(".")))


def _keep(path: Path, kept: Path, *, move: bool) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    if move:
        shutil.move(path, kept)
    elif not kept.exists():
        # Whole or not at all: a copy that a full disk broke off must not pass for the file.
        part = kept.with_name(f".writing-{kept.name}")
        shutil.copyfile(path, part)
        part.replace(kept)


def _refuse(path: Path, error: ArtifactError, settings: Settings) -> str:
    folder = settings.state / "refused"
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / path.name
    shutil.move(path, aside)
    aside.with_name(f"{path.name}.reason.txt").write_text(f"{error}\n", "utf-8")
    return str(aside)
