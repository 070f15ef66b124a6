"""`perfci nodes`: which nodes may work here. On the control plane."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from perfci import config
from perfci.errors import SettingsError
from perfci.runner import roster

Name = Annotated[str, typer.Argument(metavar="NAME", help="The node's name, as it was set up with.")]


def register(app: typer.Typer) -> None:
    nodes = typer.Typer(help="Which nodes may work here: add, list, remove.", rich_markup_mode=None)
    nodes.command("add")(add)
    nodes.command("list")(show)
    nodes.command("remove")(remove)
    app.add_typer(nodes, name="nodes")


def add(
    name: Name,
    key_file: Annotated[
        str,
        typer.Argument(metavar="KEYFILE", help="The node's public key file; - reads the input."),
    ],
    replace: Annotated[bool, typer.Option("--replace", help="Take the name from another key.")] = False,
) -> None:
    """Let a node work here; it needs no restart."""
    settings = config.load(config.find(Path.cwd()))
    try:
        text = sys.stdin.read(20_000) if key_file == "-" else Path(key_file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{key_file}: {error}", next_step="name the node's public key file") from error
    node = roster.add(settings.nodes, name, text, replace=replace, now=datetime.now(UTC))
    typer.echo(f"node {node.name} may work here (key {node.x[:12]}…)")


def show(as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False) -> None:
    """The nodes that may work here."""
    found = roster.listed(config.load(config.find(Path.cwd())).nodes)
    if as_json:
        body = [{"name": node.name, "key": node.x, "added_at": node.added_at.isoformat()} for node in found]
        typer.echo(json.dumps(body, indent=1))
        return
    for node in found:
        typer.echo(f"{node.name}  key {node.x[:12]}…  since {node.added_at:%Y-%m-%d %H:%M} UTC")
    if not found:
        typer.echo("no node may work here; add one with `perfci nodes add NAME KEYFILE`")


def remove(name: Name) -> None:
    """Refuse a node from now on. What it measures at this moment is lost; its results so far stay."""
    roster.remove(config.load(config.find(Path.cwd())).nodes, name)
    typer.echo(f"node {name} is refused from now on")
