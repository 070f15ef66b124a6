"""`perfci runner`: on a node."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from perfci import config

Server = Annotated[str, typer.Option(metavar="URL", help="Of `perfci serve` on the control plane.")]
AirflowUrl = Annotated[str, typer.Option("--airflow", metavar="URL", help="Of Airflow's API server there.")]
Name = Annotated[str, typer.Option(metavar="NAME", help="This node's name; its key is bound to it.")]
Hardware = Annotated[str, typer.Option(metavar="NAME", help="What class of device it has, e.g. h200.")]
Folder = Annotated[str, typer.Option(metavar="PATH", help="Where it lives; default /opt/perfci, or ~/perfci.")]
Queue = Annotated[str, typer.Option(metavar="NAME", help="Airflow queue; default: the hardware's name.")]
Slots = Annotated[int, typer.Option(metavar="N", min=0, help="Devices to use; default: all that are there.")]
Wheel = Annotated[str, typer.Option(metavar="WHAT", help="perfci as pip takes it; default: what is running now.")]
Runner = Annotated[str, typer.Option(metavar="PYTHON", help="Measure with this Python, which has torch and triton.")]
Pip = Annotated[list[str] | None, typer.Option(metavar="URL", help="As pip has it.")]
File = Annotated[list[str] | None, typer.Option(metavar="FILE", help="As pip has it; default: perfci's own versions.")]
NoIndex = Annotated[bool, typer.Option("--no-index", help="As pip has it.")]
WithUsers = Annotated[bool, typer.Option("--users", help="As root: make the users perfci-worker and perfci-subject.")]
Systemd = Annotated[bool, typer.Option("--systemd", help="Write a systemd unit for the worker.")]
CheckOnly = Annotated[bool, typer.Option("--check-only", help="Look at the box and change nothing.")]


def register(app: typer.Typer) -> None:
    runner = typer.Typer(help="A node that measures: set it up, check it, run its worker.", rich_markup_mode=None)
    runner.command()(setup)
    runner.command()(start)
    runner.command()(check)
    app.add_typer(runner, name="runner")


def setup(
    server: Server,
    airflow: AirflowUrl,
    name: Name,
    hardware: Hardware,
    folder: Folder = "",
    queue: Queue = "",
    slots: Slots = 0,
    wheel: Wheel = "",
    runner: Runner = "",
    index_url: Pip = None,
    extra_index_url: Pip = None,
    find_links: Pip = None,
    constraint: File = None,
    no_index: NoIndex = False,
    users: WithUsers = False,
    systemd: Systemd = False,
    check_only: CheckOnly = False,
) -> None:
    """Check this box and make it a node: two environments, a key of its own, settings.

    May be killed and run again. Says what it did and what comes next. Exit code: 0, or 2 where something has to be
    mended first.
    """
    from perfci.runner import setup as steps
    from perfci.runner import units as unit_files
    from perfci.runner import users as accounts
    from perfci.runner.environments import Source, this_perfci
    from perfci.runner.findings import failed

    given = {
        "--index-url": index_url,
        "--extra-index-url": extra_index_url,
        "--find-links": find_links,
        "--constraint": constraint,
    }
    options = [word for option, values in given.items() for value in values or () for word in (option, _place(value))]
    place = Path(folder).expanduser().resolve() if folder else steps.default_folder()
    wish = steps.Wish(
        server=steps.checked_url("--server", server),
        airflow=steps.checked_url("--airflow", airflow),
        name=name,
        hardware=hardware,
        folder=place,
        source=Source(
            _place(wheel) or this_perfci(), steps.pip_options((*options, *(("--no-index",) if no_index else ())))
        ),
        queue=queue,
        slots=slots,
        runner=runner,
        users=accounts.Users(accounts.WORKER, accounts.SUBJECT) if users else None,
        units=unit_files.folder_of(system=os.geteuid() == 0) if systemd else None,
    )
    if not steps.check(wish, echo=typer.echo):
        raise typer.Exit(2)
    if check_only:
        return
    found = steps.make(wish, echo=typer.echo)
    for finding in found:
        typer.echo(str(finding))
    typer.echo("\n".join(("", f"node {name} is set up in {place}. Next:", *steps.next_steps(wish))))
    raise typer.Exit(2 if failed(found) else 0)


def _place(value: str) -> str:
    """A file or folder by its whole path: pip runs elsewhere."""
    return str(Path(value).resolve()) if value and Path(value).exists() else value


def start() -> None:
    """Take jobs from the control plane until Ctrl-C or SIGTERM.

    Needs outbound HTTP alone; starts again by itself when the server was away.
    """
    from perfci.runner import worker

    path = config.find(Path.cwd())
    worker.run(config.load(path), path, echo=typer.echo)


def check(as_json: Annotated[bool, typer.Option("--json", help="JSON instead of lines.")] = False) -> None:
    """Like `perfci doctor`, for this node."""
    from perfci.commands import doctor

    doctor.doctor(as_json=as_json)
