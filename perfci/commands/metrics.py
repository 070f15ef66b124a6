"""`perfci metrics`: what `perfci serve` tells a Prometheus, on the standard output."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import typer

from perfci import config
from perfci.errors import ServiceError


def register(app: typer.Typer) -> None:
    app.command("metrics")(show)


def show() -> None:
    """Numbers for monitoring, in Prometheus' text form: queues, the newest night, alerts, failures."""
    from perfci.store import engine

    try:
        from perfci import metrics
    except ModuleNotFoundError as error:
        raise ServiceError(f"{error.name} is not installed", next_step="install perfci[serve]") from error
    settings = config.load(config.find(Path.cwd()))
    connection = engine.connect(settings.database_url, read_only=True)
    typer.echo(metrics.text(connection, settings, now=datetime.now(UTC)), nl=False)
