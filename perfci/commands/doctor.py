"""`perfci doctor`: on a node and on the control plane."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from perfci import config


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(as_json: Annotated[bool, typer.Option("--json", help="JSON instead of lines.")] = False) -> None:
    """Say what is wrong on this side, a node's or the control plane's, and what to do about it.

    It looks at settings, database, disk, devices, ports, the other side, clock, key, worker and versions, and changes
    nothing. Exit code: 0, or 2 where something has to be mended.
    """
    from perfci.runner import doctor as looking
    from perfci.runner.findings import failed

    found = looking.examine(config.load(config.find(Path.cwd())))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in found], indent=1))
    else:
        for finding in found:
            typer.echo(str(finding))
    raise typer.Exit(2 if failed(found) else 0)
