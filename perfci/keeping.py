"""Keep a database: thin what is old, make it anew from the result files.

The result files are the truth about what was measured; what they do not hold are decisions (`store.decisions`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from perfci import artifact, backup
from perfci.bench import bundle
from perfci.config import Settings
from perfci.errors import ArtifactError
from perfci.store import decisions, keeping, writes
from perfci.store.decisions import Decisions
from perfci.store.engine import connect, reading
from perfci.store.keeping import Thinned

Echo = Callable[[str], None]
_TOLD = 500  # result files between two lines of progress


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """known: were there before, from a rebuild that was killed. refused: files that are no results any more, each with
    its reason. missing: sha256 of runs that the decisions tell of and no file is there for. left: alerts whose series
    or commit is in no file."""

    stored: int
    known: int
    alerts: int
    new_alerts: int
    refused: tuple[str, ...]
    missing: tuple[str, ...]
    left: tuple[str, ...]

    @property
    def whole(self) -> bool:
        return not (self.refused or self.missing or self.left)


def thin(settings: Settings, engine: sa.Engine, *, now: datetime, echo: Echo, dry_run: bool = False) -> Thinned | None:
    """Drop raw samples that are older than the policy says; None where it says to keep them. Raises StoreError."""
    days = settings.policy.raw_samples_days
    if days is None:
        return None
    total, told = Thinned(0, 0), 0
    for part in keeping.thin(engine, before=now - timedelta(days=days), dry_run=dry_run):
        total += part
        if total.measurements - told >= 100_000:
            told = total.measurements
            echo(f"{told} measurements so far")
    return total


def rebuild(
    settings: Settings,
    url: str,
    *,
    said: Decisions | None,
    detect: Callable[[sa.Engine, str], int],
    echo: Echo,
) -> Rebuilt:
    """Make a database from the result files in `settings.artifacts`; a killed one goes on when it is started again, and
    two at once do no harm.

    said: what the files do not hold; without it the repository tells positions again on the next plan, and no alert is
    answered. detect: looks for changes in the series that a session touched, returns how many alerts are new.
    Raises StoreError for a database that has rows.
    """
    if keeping.begin_rebuild(url):
        echo("going on with a rebuild that was not finished")
    engine = keeping.hurried(url)
    try:
        stored = _store(engine, settings, said, echo=echo)
        laid = decisions.lay(engine, said) if said else decisions.Laid(0, ())
        new_alerts = sum(detect(engine, session) for session in keeping.sessions_of_all_series(engine))
    finally:
        engine.dispose()
    keeping.end_rebuild(url)
    missing = sorted(said.origins.keys() - stored.there) if said else []
    return Rebuilt(
        *(stored.new, stored.known, laid.alerts, new_alerts), tuple(stored.refused), tuple(missing), laid.left
    )


def decisions_of(backup_file: Path, scratch: Path, *, echo: Echo) -> Decisions:
    """What a backup holds of them, of whatever schema it is. scratch: a folder with room for all but its samples.

    Raises StoreError.
    """
    with tempfile.TemporaryDirectory(dir=scratch, prefix="decisions-") as folder:
        url = f"sqlite:///{folder}/perfci.db"
        backup.restore(url, backup_file, artifacts=None, echo=echo, leave_out=("measurement", "control"))
        return decisions.read(connect(url))


@dataclass
class _Stored:
    new: int
    known: int
    refused: list[str]
    there: set[str]


def _store(engine: sa.Engine, settings: Settings, said: Decisions | None, *, echo: Echo) -> _Stored:
    with reading(engine) as connection:
        before = frozenset(keeping.artifacts(connection))
    done = _Stored(0, 0, [], set())
    paths = result_files(settings.artifacts)
    began = time.monotonic()
    for number, path in enumerate(paths, start=1):
        if (sha256 := path.name.removesuffix(artifact.SUFFIX)) in before:
            done.known += 1
            done.there.add(sha256)
        else:
            _store_file(engine, path, done, settings=settings, said=said)
        if number % _TOLD == 0 or number == len(paths):
            echo(f"{number} of {len(paths)} result files, {number / (time.monotonic() - began):.0f} a second")
    return done


def _store_file(engine: sa.Engine, path: Path, done: _Stored, *, settings: Settings, said: Decisions | None) -> None:
    try:
        body = artifact.read(path)
        if path.name != f"{body.sha256}{artifact.SUFFIX}":
            raise ArtifactError(f"{path} has other contents than its name says", next_step="restore it from a copy")
        origin = said.origins.get(body.sha256) if said else None
        kept = str(path.relative_to(settings.state))
        made = writes.ingest(engine, body, path=kept, name=str(path), origin=origin)
    except ArtifactError as error:
        done.refused.append(str(error))
        return
    done.there.add(body.sha256)
    done.new += made.created
    done.known += not made.created


def result_files(folder: Path) -> list[Path]:
    """In the order in which they were written, which is about that in which they were stored: of a commit or a device
    the first one that is stored tells the facts."""
    found: list[tuple[int, str, Path]] = []
    for path in folder.glob(f"??/*{artifact.SUFFIX}"):
        with suppress(FileNotFoundError):
            found.append((path.stat().st_mtime_ns, path.name, path))
    return [path for _, _, path in sorted(found)]


def trim(settings: Settings, *, now: datetime) -> tuple[Path, ...]:
    """Remove source bundles that nobody asked for lately; they are made again when somebody does. Those removed."""
    return bundle.trim(settings.bundles, now=now.timestamp())
