"""`perfci units`: the control plane as a service of the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfci import config


def register(app: typer.Typer) -> None:
    app.command()(units)


def units(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where the unit is written, e.g. /etc/systemd/system; - shows it.")
    ],
    user: Annotated[
        str,
        typer.Option(metavar="NAME", help="Whom it runs as. Empty: a unit of your own (systemctl --user)."),
    ] = "perfci",
    environment: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="NAME=VALUE lines: database URLs, and what `env:` means in perfci.toml."),
    ] = None,
) -> None:
    """A systemd unit that keeps `perfci up` running."""
    from perfci.embedded import unit

    path = config.find(Path.cwd())
    config.load(path)
    text = unit.text(path, user=user, environment=environment)
    if str(folder) == "-":
        typer.echo(text, nl=False)
        return
    written = unit.write(folder, text)
    own = "" if user else " --user"
    typer.echo(f"{written} is written; start it now and at every boot with")
    typer.echo(f"  systemctl{own} daemon-reload && systemctl{own} enable --now {unit.NAME}")
