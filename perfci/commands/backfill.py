"""`perfci backfill`: commits of the past, measured afterwards."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfci import config
from perfci.errors import ServiceError

if TYPE_CHECKING:
    from perfci.config import Settings

DAG = "backfill"


def register(app: typer.Typer) -> None:
    app.command()(backfill)


def backfill(
    span: Annotated[str, typer.Argument(metavar="OLDER..NEWER", help="Two commits of the tracked branch.")],
    *,
    hardware: Annotated[str, typer.Option(metavar="NAME", help="Where they are measured.")],
    suite: Annotated[str, typer.Option(metavar="NAME", help="Suite of perfci.toml. Default: the only one.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would do and cost; do nothing.")] = False,
    minutes: Annotated[
        float | None,
        typer.Option(metavar="N", help="Device minutes it may take. Default: what the hardware's night has left."),
    ] = None,
) -> None:
    """Find where a range of commits changed its speed.

    Measures both ends, then the middle of each stretch over which the level changed, until every change lies between
    two neighbours. Under an Airflow that runs (perfci up) it goes on there, after everything more urgent; otherwise
    here, until it is settled. Started again, it goes on where it stopped.

    Exit code: 0 all well, 1 a regression or an incorrect output, 2 something could not be measured.
    """
    from perfci import backfill as steps
    from perfci import tonight

    path = str(config.find(Path.cwd()))
    settings = config.load(Path(path))
    request = steps.Request(span=span, hardware=hardware, suite=suite, minutes=minutes)
    planned = steps.plan(path, request, dry_run=True)
    for line in (*tonight.announced(planned), *([steps.estimated(planned)] if planned["jobs"] else [])):
        _progress(line)
    if dry_run or not planned["jobs"]:
        raise typer.Exit(0 if dry_run or not (planned["absences"] or planned["problems"]) else 2)
    request = steps.Request(**asdict(request) | {"suite": planned["jobs"][0]["suite"], "session": planned["session"]})
    if _handed_to_airflow(settings, asdict(request)):
        return
    _here(path, settings, request)


def _handed_to_airflow(settings: Settings, conf: dict[str, Any]) -> bool:
    """Raises ServiceError where only Airflow could reach the nodes, and it is not there."""
    from perfci import workers

    airflow = workers.of(settings)
    if airflow is not None:
        with airflow:
            if airflow.alive():
                run = airflow.trigger(DAG, conf=conf | {"asked": list(conf["asked"])})
                typer.echo(f"{conf['session']} goes on in Airflow at {airflow.url} ({run.id})")
                typer.echo(f"What it has found: perfci report --session {conf['session']}")
                return True
    if settings.service.executor:
        raise ServiceError(
            f"the nodes are reached through Airflow ({settings.service.executor}), and none runs here",
            next_step="start `perfci up`, or set PERFCI_AIRFLOW_PASSWORD and service.airflow_url to reach your own",
        )
    return False


def _here(path: str, settings: Settings, request: Any) -> None:
    """Step by step, with the device for itself: no night of this state folder runs beside it."""
    from perfci import backfill as steps
    from perfci import nightly, node, report, tonight
    from perfci.bench import ownership
    from perfci.embedded import lock
    from perfci.embedded.night import sigterm_interrupts

    with sigterm_interrupts(), lock.hold(settings.state / "nightly.lock", command="perfci backfill"):
        ownership.prune(settings.worktrees)
        nightly.ingest(path)  # what a killed one has left
        following: Any = request
        try:
            while following is not None:
                planned = steps.plan(path, following)
                for line in tonight.announced(planned):
                    _progress(line)
                for job in planned["jobs"]:
                    node.build(path, job, echo=_progress)
                    node.measure(path, job, echo=_progress)
                nightly.ingest(path)
                nightly.detect(path, planned["session"], planned["jobs"])
                following = planned["next"]
        finally:
            ownership.prune(settings.worktrees)
    night = tonight.after(settings, planned)
    typer.echo(f"\n{report.night_table(night)}")
    raise typer.Exit(report.exit_code(night))


def _progress(line: str) -> None:
    typer.echo(line, err=True)
