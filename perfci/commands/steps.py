"""The steps of a night as commands, and measuring by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from perfci.commands.arguments import Hardware, Last, Revs, Suites, as_text, complain, config_path, progress, settings
from perfci.errors import SettingsError

Plan = Annotated[
    str, typer.Argument(metavar="PLAN", help="File with the output of `perfci plan`, or with one job of it.")
]
Session = Annotated[
    str, typer.Option(metavar="NAME", help="The night's name, as `perfci nightly` or `perfci plan` tells it.")
]


def register(app: typer.Typer) -> None:
    for command in (run, plan, build, measure_, ingest, detect):
        app.command(name=command.__name__.rstrip("_"))(command)


def run(
    suite: Annotated[str, typer.Option(metavar="NAME", help="Suite of perfci.toml. Default: the only one.")] = "",
    revs: Revs = None,
    last: Annotated[int, typer.Option(metavar="N", help="The newest N commits of the tracked branch.")] = 1,
    repo: Annotated[
        str, typer.Option(metavar="SOURCE", help="Path, URL or git bundle instead of the suite's repo.")
    ] = "",
    runs: Annotated[
        int | None, typer.Option(metavar="N", help="Fresh processes a commit. Default: the suite's.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where results go. Default: .perfci/incoming.")
    ] = None,
    hardware: Annotated[str, typer.Option(metavar="NAME", help="Refuse to run on anything else.")] = "",
    gpu: Annotated[bool, typer.Option("--gpu", help="Refuse to run without a GPU.")] = False,
) -> None:
    """Measure commits here, into result files; needs no database.

    Each fresh process leaves one file. Where the database is, `perfci ingest` stores them.
    """
    from perfci import measure

    here = settings()
    if gpu:
        measure.check_gpu(here)
    jobs = measure.jobs_by_hand(here, suite, hardware=hardware, repository=repo, revs=revs or (), last=last, runs=runs)
    paths = [path for job in jobs for path in measure.measure(config_path(), job, out=out, echo=progress)]
    for line in paths:
        typer.echo(line)
    raise typer.Exit(measure.exit_code(map(Path, paths)))


def plan(
    revs: Revs = None,
    last: Last = 1,
    suites: Suites = None,
    hardware: Hardware = None,
    session: Annotated[str, typer.Option(metavar="NAME", help="Name of the night. Default: made from the time.")] = "",
) -> None:
    """Step 1 of a night: what is to be measured, as JSON."""
    from perfci import nightly

    planned = nightly.plan(
        config_path(),
        revs=revs or (),
        last=last,
        session=session or None,
        suites=suites or (),
        hardware=hardware or (),
    )
    typer.echo(as_text(planned))


def build(plan_file: Plan = "-") -> None:
    """Step 2 of a night: environment and build of each job of a plan."""
    from perfci import node

    told = [node.build(config_path(), job, echo=progress) for job in _jobs(plan_file)]
    typer.echo(as_text(told))


def measure_(plan_file: Plan = "-") -> None:
    """Step 3: run each job of a plan, into result files."""
    from perfci import measure, node

    told: list[str] = []
    for job in _jobs(plan_file):
        if "server" in job:
            told += node.measure(config_path(), job, echo=progress)["results"]
        else:
            told += measure.measure(config_path(), job, echo=progress)
    typer.echo(as_text(told))


def ingest(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE", help="Default: all results that wait.")] = None,
    recorded: Annotated[bool, typer.Option("--recorded", help="They were measured elsewhere and delivered.")] = False,
) -> None:
    """Step 4: store result files in the database, each only once."""
    from perfci import nightly

    told = nightly.ingest(config_path(), [str(file) for file in files or ()] or None, recorded=recorded)
    typer.echo(as_text(told))
    for refused in told["refused"]:
        complain(refused["reason"])
    raise typer.Exit(2 if told["refused"] else 0)


def detect(
    session: Session,
    synthetic: Annotated[bool, typer.Option("--synthetic", help="Generated series too.")] = False,
) -> None:
    """Step 5: look for changes in what a night touched; raise alerts."""
    from perfci import nightly

    typer.echo(as_text(nightly.detect(config_path(), session, synthetic=synthetic)))


def _jobs(plan_file: str) -> list[dict[str, Any]]:
    try:
        text = sys.stdin.read() if plan_file == "-" else Path(plan_file).read_text("utf-8")
        body = json.loads(text)
    except OSError as error:
        raise SettingsError(f"{plan_file}: {error.strerror}", next_step="name a file, or - for the input") from error
    except ValueError as error:
        raise SettingsError(
            f"{plan_file} is no plan ({error})", next_step="give it the output of `perfci plan`"
        ) from error
    jobs = body.get("jobs", [body]) if isinstance(body, dict) else None
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise SettingsError(f"{plan_file} holds no jobs", next_step="give it the output of `perfci plan`")
    return jobs
