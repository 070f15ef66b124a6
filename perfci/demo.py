"""What `perfci demo --load` puts into the ordinary database, through the ordinary path: recorded results of a real
device, and a synthetic year. The two never share a series; both are named for what they are wherever they show."""

from __future__ import annotations

import gzip
import tempfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from sqlalchemy import Engine

from perfci import artifact, measure, nightly, share, synthetic
from perfci.config import Settings
from perfci.errors import ArtifactError
from perfci.ingest import store_files
from perfci.model import Origin, Run
from perfci.store import writes

_BATCH = 150  # result files between two lines of progress; about two seconds


@dataclass(frozen=True, slots=True)
class Loaded:
    """Result files that are new, that were there before, and that were refused, each with its reason."""

    new: int = 0
    known: int = 0
    refused: tuple[str, ...] = ()

    def __add__(self, other: Loaded) -> Loaded:
        return Loaded(self.new + other.new, self.known + other.known, self.refused + other.refused)


@dataclass(frozen=True, slots=True)
class LoadedDemo:
    recorded: Loaded
    synthetic: Loaded
    new_alerts: int


def load(
    settings: Settings, *, echo: Callable[[str], None], seed: int = 1, nights: int = synthetic.NIGHTS
) -> LoadedDemo:
    """Safe to repeat and to kill: what is stored already stays as it is. Raises StoreError, or
    ServiceError when the state folder cannot be made.

    nights: length of the synthetic year. Another seed is another year, on commits of its own; load one a database.
    """
    measure.prepare(settings)
    engine = nightly.opened(settings)
    try:
        recorded = _load_recorded(engine, settings, share.folder("dashboard") / "demo", echo=echo)
        generated, last_session = _load_synthetic(engine, settings, echo=echo, seed=seed, nights=nights)
        # Every series of the year was measured in its last night, so that one session touches them all.
        told = nightly.detect_in(engine, last_session, policy=settings.policy, synthetic=True)
    finally:
        engine.dispose()
    found = sum(1 for change in told["changes"] if change["relevant"])
    echo(f"synthetic year: {found} relevant changes found, {told['new_alerts']} new alerts")
    return LoadedDemo(recorded, generated, int(told["new_alerts"]))


def _load_recorded(engine: Engine, settings: Settings, folder: Path, *, echo: Callable[[str], None]) -> Loaded:
    files = sorted(p for p in folder.glob("*") if p.name.endswith((artifact.SUFFIX, f"{artifact.SUFFIX}.gz")))
    with tempfile.TemporaryDirectory(dir=settings.state, prefix="demo-") as scratch:
        refused: list[str] = []
        plain: list[Path] = []
        for path in files:
            try:
                plain.append(_unpacked(path, Path(scratch)))
            except ArtifactError as error:
                refused.append(str(error))
        stored = _stored(engine, settings, plain, origin=Origin.RECORDED) + Loaded(refused=tuple(refused))
    echo(f"recorded results: {stored.new} new, {stored.known} known, {len(stored.refused)} refused")
    for reason in stored.refused:
        echo(f"  {reason}")
    return stored


def _unpacked(path: Path, scratch: Path) -> Path:
    """`path` itself, or its content beside it in `scratch`: never more than a result file may have."""
    if path.suffix != ".gz":
        return path
    target = scratch / path.stem
    try:
        with gzip.open(path) as stream:
            target.write_bytes(stream.read(artifact.MAX_BYTES + 1))
    except (OSError, EOFError, zlib.error) as error:
        raise ArtifactError(f"{path} cannot be unpacked ({error})", next_step="fetch the file again") from error
    return target


def _load_synthetic(
    engine: Engine, settings: Settings, *, echo: Callable[[str], None], seed: int, nights: int
) -> tuple[Loaded, str]:
    """What was stored, and the name of the last night's session."""
    total, session = Loaded(), ""
    runs = synthetic.year(seed, nights=nights)
    while batch := tuple(islice(runs, _BATCH)):
        total += _store_batch(engine, settings, batch)
        session = batch[-1].session
        night = f"{batch[-1].started_at:%Y-%m-%d}"
        echo(f"synthetic year: up to the night of {night}, {total.new} results new, {total.known} known")
    writes.sync_branch(engine, synthetic.SUITE, synthetic.commits(seed)[:nights])
    return total, session


def _store_batch(engine: Engine, settings: Settings, runs: Iterable[Run]) -> Loaded:
    with tempfile.TemporaryDirectory(dir=settings.state, prefix="demo-") as scratch:
        return _stored(engine, settings, [_written(run, Path(scratch)) for run in runs], origin=None)


def _written(run: Run, scratch: Path) -> Path:
    """Not through `artifact.write`, which waits for the disk: a scratch file need not outlive a power cut."""
    path = scratch / f"{run.session}-{run.index}{artifact.SUFFIX}"
    path.write_bytes(artifact.encode(run))
    return path


def _stored(engine: Engine, settings: Settings, paths: Sequence[Path], *, origin: Origin | None) -> Loaded:
    told = store_files(engine, settings, paths, origin=origin)
    return Loaded(told["stored"], told["known"], tuple(entry["reason"] for entry in told["refused"]))
