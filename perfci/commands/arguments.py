"""Arguments and answers that many commands share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from perfci import config
from perfci.config import Settings

Revs = Annotated[
    list[str] | None, typer.Option("--rev", metavar="REV", help="Commit, tag or branch to measure; repeatable.")
]
Last = Annotated[
    int, typer.Option(metavar="N", help="The newest N commits of the tracked branch, where not measured yet.")
]
Suites = Annotated[
    list[str] | None, typer.Option("--suite", metavar="NAME", help="Suite of perfci.toml; repeatable. Default: all.")
]
Hardware = Annotated[
    list[str] | None,
    typer.Option("--hardware", metavar="NAME", help="Hardware of perfci.toml; repeatable. Default: all."),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


def config_path() -> str:
    return str(config.find(Path.cwd()))


def settings() -> Settings:
    return config.load(Path(config_path()))


def as_text(body: object) -> str:
    return json.dumps(body, indent=1, allow_nan=False, ensure_ascii=False)


def progress(line: str) -> None:
    """Beside the result, so that what a command prints can be piped on."""
    typer.echo(line, err=True)


def complain(text: str) -> None:
    typer.echo(f"perfci: {' '.join(text.split())}", err=True)
