"""`perfci notify`: tell people what a night found, or that a channel works."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from perfci import config, logs
from perfci.config import Channel, Settings
from perfci.errors import PerfciError, SettingsError

_BAD = ("failed", "unsure")
Name = Annotated[str, typer.Argument(metavar="[NAME]", help="A channel of perfci.toml. Default: all of them.")]


def register(app: typer.Typer) -> None:
    notify = typer.Typer(help="Tell people: send what is new, test a channel.", rich_markup_mode=None)
    notify.command("send")(send)
    notify.command("test")(test)
    app.add_typer(notify, name="notify")


def send(
    session: Annotated[str, typer.Option(metavar="NAME", help="The night's name. Default: the newest.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be sent; send and note nothing.")] = False,
    unsure: Annotated[bool, typer.Option("--unsure", help="Also what may have been sent: it was cut short.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of lines.")] = False,
) -> None:
    """Tell every channel what it does not know yet: open alerts, and what the night lacks.

    What a channel was told once it is not told again. Exit code: 0 all told, 2 a channel was not.
    """
    from perfci import nightly, notify

    settings = _settings()
    logs.configure(level=logging.ERROR)
    engine = nightly.opened(settings)
    try:
        told = notify.send(
            engine, settings, _session(settings, session), now=datetime.now(UTC), dry_run=dry_run, unsure_too=unsure
        )
    finally:
        engine.dispose()
    if as_json:
        typer.echo(json.dumps(told, indent=1, ensure_ascii=False))
    else:
        for line in map(_sentence, told["channels"]) if told["channels"] else ("perfci.toml names no channel",):
            typer.echo(line)
    for outcome in told["channels"]:
        if outcome["outcome"] in _BAD:
            typer.echo(f"perfci: channel {outcome['channel']}: {outcome['error']}", err=True)
    raise typer.Exit(2 if any(outcome["outcome"] in _BAD for outcome in told["channels"]) else 0)


def test(name: Name = "") -> None:
    """Send a message that says that a channel works. Exit code: 0 it arrived, 2 it did not."""
    settings = _settings()
    logs.configure(level=logging.ERROR)
    fine = [_works(channel) for channel in _channels(settings, name)]
    raise typer.Exit(0 if all(fine) else 2)


def _works(channel: Channel) -> bool:
    from perfci import notify
    from perfci.notify.attempt import Delivery

    try:
        answer = notify.test(channel, now=datetime.now(UTC))
    except PerfciError as error:
        typer.echo(f"perfci: channel {channel.name}: {error}", err=True)
        return False
    if answer.delivery is Delivery.DELIVERED:
        typer.echo(f"{channel.name}: sent a test message" + (f" ({answer.text})" if answer.text else ""))
        return True
    typer.echo(f"perfci: channel {channel.name}: {answer.text}; mend [notify.{channel.name}] and try again", err=True)
    return False


def _sentence(outcome: Mapping[str, Any]) -> str:
    what = f"{len(outcome['alerts'])} alerts" if len(outcome["alerts"]) != 1 else "1 alert"
    if outcome["night"]:
        what += " and what the night lacks"
    told = {"sent": f"sent {what}", "failed": f"not sent: {what}", "unsure": f"maybe sent: {what}"}
    lines = [f"{outcome['channel']}: {told.get(outcome['outcome'], 'nothing new')}"]
    if outcome["outcome"] == "dry run" and outcome["text"]:
        lines = [f"{outcome['channel']}: would send {what}", *(f"  | {line}" for line in outcome["text"].splitlines())]
    return "\n".join((*lines, *(f"  not sent again: {each}; --unsure does it" for each in outcome["unsure"])))


def _session(settings: Settings, name: str) -> str:
    from perfci import nightly, tonight
    from perfci.store import notices

    if not name:
        return tonight.newest(settings)
    if notices.session_id(nightly.opened(settings, read_only=True), name) is None:
        raise SettingsError(f"no night named {name!r} is in the database", next_step="take a name from `perfci report`")
    return name


def _channels(settings: Settings, name: str) -> tuple[Channel, ...]:
    if not settings.channels:
        raise SettingsError("perfci.toml names no channel", next_step="add a [notify.NAME]; see docs/watching.md")
    if name and name not in settings.channels:
        raise SettingsError(f"no channel named {name!r}", next_step=f"known: {', '.join(settings.channels)}")
    return (settings.channels[name],) if name else tuple(settings.channels.values())


def _settings() -> Settings:
    return config.load(config.find(Path.cwd()))
