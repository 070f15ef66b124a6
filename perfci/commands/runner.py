"""`perfci runner`: on a node."""

from __future__ import annotations

from pathlib import Path

import typer

from perfci import config


def register(app: typer.Typer) -> None:
    runner = typer.Typer(help="A node that measures: set it up, check it, run its worker.", rich_markup_mode=None)
    runner.command()(start)
    app.add_typer(runner, name="runner")


def start() -> None:
    """Take jobs from the control plane until Ctrl-C or SIGTERM.

    Needs outbound HTTP alone; starts again by itself when the server was away.
    """
    from perfci.runner import worker

    path = config.find(Path.cwd())
    worker.run(config.load(path), path, echo=typer.echo)
