"""From a channel's settings to one attempt to tell it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from datetime import datetime
from urllib.parse import urlsplit

from perfci import logs
from perfci.config import Channel
from perfci.errors import SettingsError
from perfci.notify import email, http, slack, webhook
from perfci.notify.attempt import Answer, Attempt
from perfci.notify.message import Message

_FROM_ENVIRONMENT = "env:"
_PLAIN_PORT = 25


def opened(channel: Channel, message: Message, *, delivery: str, at: datetime) -> Callable[[Attempt], Answer]:
    """What tells the message when it is called. Raises SettingsError for a channel that cannot work."""
    if channel.kind == "email":
        return _email(channel, message, delivery=delivery, at=at)
    url = _url(channel)
    if channel.kind == "slack":
        content, headers = slack.body(message), slack.HEADERS
    else:
        content = webhook.body(message, delivery=delivery)
        headers = webhook.headers(content, delivery=delivery, key=revealed(channel, "key"), at=at)
    return lambda attempt: http.post(attempt, url, content, headers=headers)


def delivery_of(channel: str, keys: Iterable[str]) -> str:
    """A name for a message that is the same for the same content."""
    return hashlib.sha256("\n".join((channel, *sorted(keys))).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def revealed(channel: Channel, key: str) -> str:
    """A setting, or the environment variable that it names; no log shows it from then on. Raises SettingsError."""
    value: str = getattr(channel, key)
    where = f"notify.{channel.name}.{key}"
    if value.startswith(_FROM_ENVIRONMENT):
        name = value.removeprefix(_FROM_ENVIRONMENT)
        value = os.environ.get(name, "").strip()
        if not value:
            raise SettingsError(f"{where} names the variable {name}, which is not set", next_step="set it")
        if not value.isprintable():
            raise SettingsError(
                f"{where} names the variable {name}, which has a control character", next_step="set it without"
            )
    if key != "user":
        logs.conceal(value)
    return value


def _url(channel: Channel) -> str:
    """Not shown when it is wrong: it is a secret."""
    url = revealed(channel, "url")
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise SettingsError(
            f"notify.{channel.name}.url is no URL", next_step="write http:// or https://, host, and a path"
        )
    return url


def _email(channel: Channel, message: Message, *, delivery: str, at: datetime) -> Callable[[Attempt], Answer]:
    for address in (channel.sender, *channel.to):
        if not email.is_address(address):
            raise SettingsError(
                f"notify.{channel.name} has the address {address!r}", next_step="write it as name@example.org"
            )
    server = email.Server(
        *_host_and_port(channel),
        user=revealed(channel, "user"),
        password=revealed(channel, "password"),
    )
    made = email.letter(message, sender=channel.sender, to=channel.to, delivery=delivery, at=at)
    return lambda attempt: email.hand_over(attempt, server, made, sender=channel.sender, to=channel.to)


def _host_and_port(channel: Channel) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{channel.smtp}")
        host, port = parts.hostname, _PLAIN_PORT if parts.port is None else parts.port
        fine = bool(host) and port > 0 and not parts.username and not parts.path
    except ValueError:
        fine = False
    if not fine or host is None:
        raise SettingsError(
            f"notify.{channel.name}.smtp = {channel.smtp!r}", next_step="write host:port, e.g. mail.example.org:587"
        )
    return host, port
