"""`perfci db …`: keep a database. What is old is thinned, what was lost is made anew, all of it is taken away and
brought back."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfci import config
from perfci.config import Settings
from perfci.errors import SettingsError

if TYPE_CHECKING:
    import sqlalchemy as sa

    from perfci.keeping import Rebuilt
    from perfci.store.decisions import Decisions

Into = Annotated[
    str, typer.Option("--into", metavar="URL", help="An empty database instead of the one of perfci.toml.")
]


def register(app: typer.Typer) -> None:
    for command in (backup, restore, rebuild, thin):
        app.command()(command)


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to: NAME.tar, or NAME.tar.gz to pack it.")],
    with_artifacts: Annotated[bool, typer.Option("--with-artifacts", help="The result files too.")] = False,
) -> None:
    """The whole database as one file, at one moment, while others write to it.

    Decisions and measurements; not secrets (docs/keeping.md says what else to keep). A file of that name is replaced
    once the new one is whole. Exit code 2 when result files were asked for and some are not there.
    """
    from perfci import backup as backups
    from perfci.store import engine as database

    settings = _settings()
    engine = database.connect(settings.database_url, read_only=True)
    folder = settings.artifacts if with_artifacts else None
    taken = backups.take(engine, file, artifacts=folder, now=datetime.now(UTC), echo=_progress)
    typer.echo(f"{file}: {taken.rows} rows, {taken.artifacts} result files, {_size(taken.bytes)}")
    _complain_of(f"no whole file of the result {sha256} is in {folder}" for sha256 in taken.missing)
    raise typer.Exit(2 if taken.missing else 0)


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `perfci db backup` has written.")],
    into: Into = "",
) -> None:
    """A backup into a database without rows, all of it or nothing.

    From SQLite to PostgreSQL and back, and from an older schema, which is upgraded. Result files in it go to the state
    folder.
    """
    from perfci import backup as backups
    from perfci import measure

    settings = _settings()
    measure.prepare(settings)
    told = backups.restore(into or settings.database_url, file, artifacts=settings.artifacts, echo=_progress)
    typer.echo(f"{sum(told.rows.values())} rows and {told.artifacts} new result files, as of {told.made_at}")


def rebuild(
    into: Into = "",
    decisions: Annotated[
        Path | None,
        typer.Option("--decisions", metavar="FILE", help="A backup. Default with --into: the present database."),
    ] = None,
    without_decisions: Annotated[
        bool, typer.Option("--without-decisions", help="Measurements alone; what people said is forgotten.")
    ] = False,
) -> None:
    """The database anew from the result files.

    The files hold what was measured. What people said of alerts, and where the repository says that commits stand,
    comes from a backup or from the present database. Started again after it was killed, it goes on. Exit code 2 when
    a file is damaged or missing; the rest is stored.
    """
    from perfci import keeping, measure, nightly

    settings = _settings()
    measure.prepare(settings)
    said = None if without_decisions else _decisions(settings, decisions, elsewhere=bool(into))

    def detect(engine: sa.Engine, session: str) -> int:
        return int(nightly.detect_in(engine, session, policy=settings.policy, synthetic=True)["new_alerts"])

    told = keeping.rebuild(settings, into or settings.database_url, said=said, detect=detect, echo=_progress)
    typer.echo(
        f"{told.stored} results stored, {told.known} were there; {told.alerts} alerts as they were, "
        f"{told.new_alerts} new ones"
    )
    if said is None:
        typer.echo("no decisions were given: every alert is new, and positions are the ones of the result files")
    _complain_of(_problems(told))
    raise typer.Exit(0 if told.whole else 2)


def thin(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how much it would be.")] = False,
    vacuum: Annotated[
        bool, typer.Option("--vacuum", help="Give the space back too; SQLite's file is written anew for it.")
    ] = False,
) -> None:
    """Drop raw samples older than `raw_samples_days`, and sources that no node asks for.

    Summaries stay, and so do the result files, from which `perfci db rebuild` gets the samples again.
    """
    from perfci import keeping, nightly
    from perfci.store import keeping as store

    settings, now = _settings(), datetime.now(UTC)
    engine = nightly.opened(settings, read_only=dry_run)
    thinned = keeping.thin(settings, engine, now=now, echo=_progress, dry_run=dry_run)
    if thinned is None:
        typer.echo("raw samples are kept: perfci.toml sets no policy.raw_samples_days")
    else:
        would = "would lose" if dry_run else "lost"
        days = f"{settings.policy.raw_samples_days} days"
        typer.echo(f"{thinned.measurements} measurements older than {days} {would} {_size(thinned.bytes)} of samples")
    if dry_run:
        return
    typer.echo(f"{len(keeping.trim(settings, now=now))} source bundles removed")
    if vacuum:
        store.vacuum(engine)
        typer.echo("space was given back")


def _decisions(settings: Settings, file: Path | None, *, elsewhere: bool) -> Decisions:
    from perfci import keeping
    from perfci.store import decisions, schema
    from perfci.store import engine as database

    if file is not None:
        return keeping.decisions_of(file, settings.state, echo=_progress)
    if not elsewhere:
        raise SettingsError(
            "the result files do not hold what people said of alerts",
            next_step="add --decisions with a backup, or --without-decisions",
        )
    engine = database.connect(settings.database_url, read_only=True)
    schema.check(engine)
    return decisions.read(engine)


def _problems(told: Rebuilt) -> list[str]:
    return [
        *told.refused,
        *(f"the file of the result {sha256} is missing" for sha256 in told.missing),
        *(f"nothing was measured for {alert}" for alert in told.left),
    ]


def _settings() -> Settings:
    return config.load(config.find(Path.cwd()))


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _progress(line: str) -> None:
    """Beside the result, so that what a command prints can be piped on."""
    typer.echo(line, err=True)


def _complain_of(problems: Iterable[str]) -> None:
    for problem in problems:
        typer.echo(f"perfci: {' '.join(problem.split())}", err=True)
