"""`perfci serve`: the hand-over for nodes in other networks."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from perfci import config
from perfci.errors import ServiceError


def register(app: typer.Typer) -> None:
    app.command()(serve)


def serve(
    check: Annotated[bool, typer.Option("--check", help="See whether it could run, and return.")] = False,
) -> None:
    """Sources out to nodes and results in, over HTTP, until Ctrl-C.

    Listens on `bind` and `server_port` of perfci.toml. What nodes hand over waits for `perfci ingest`; what is stored
    is there as JSON for other programs. docs/serving.md has the protocol.
    """
    try:
        from perfci.serve import app, server
    except ModuleNotFoundError as error:
        raise ServiceError(f"{error.name} is not installed", next_step="pip install 'perfci[serve]'") from error
    from perfci import logs, nightly

    settings = config.load(config.find(Path.cwd()))
    logs.configure()
    nightly.opened(settings).dispose()
    engine = nightly.opened(settings, read_only=True)
    with server.listening(settings.service.bind, settings.service.server_port) as sock:
        if check:
            app.application(settings, engine, now=_now)
            typer.echo(f"perfci serve can run at {server.address(sock)}")
            return
        typer.echo(f"hand-over at {server.address(sock)}; Ctrl-C ends it")
        server.run(settings, engine, sock, now=_now)


def _now() -> datetime:
    return datetime.now(UTC)
