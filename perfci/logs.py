"""What perfci says of its work, a line an event: JSON for programs where PERFCI_LOG=json, else words.

    with logs.context(session="nightly-1", suite="kernels"):
        logs.event("stored", run=17)

Standard logging carries it, so that under Airflow, which brings handlers of its own, the lines land in a task's log.
Secrets are taken out of every line: those that `conceal` was told, and whatever looks like one.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

from perfci.errors import SettingsError

VARIABLE = "PERFCI_LOG"
FORMATS = ("json", "plain")
HIDDEN = "***"
_LOGGER = logging.getLogger("perfci")
# Else Python writes warnings of a program that has configured nothing to its standard error.
_LOGGER.addHandler(logging.NullHandler())
_EVENT = "perfci_event"
# A shorter "secret" would be found in the middle of ordinary words.
_SHORTEST = 4

_context: ContextVar[Mapping[str, object]] = ContextVar("perfci_log_context")
_concealed: set[str] = set()
_LOOKS_SECRET = re.compile(
    r"""
      (?P<url>[a-z][a-z0-9+.-]*://[^\s:/@]*):[^\s/@]+@      # user:password@ in a URL
    | (?P<scheme>\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}         # an Authorization header
    | \beyJ[\w-]{5,}\.[\w-]+\.[\w-]*                           # a signed token
    | (?P<hook>hooks\.slack\.com/)(?:services|workflows|triggers)/[\w/-]+
    """,
    re.VERBOSE | re.IGNORECASE,
)


def configure(
    *, environ: Mapping[str, str] = os.environ, stream: TextIO | None = None, level: int = logging.INFO
) -> None:
    """Send the events of this process to `stream`, by default the standard error. Once more replaces the first.

    level: of plain lines where PERFCI_LOG is not set; a command that prints its outcome need not say it twice.
    Raises SettingsError for a PERFCI_LOG that is neither json nor plain.
    """
    wanted = environ.get(VARIABLE, "")
    if wanted not in ("", *FORMATS):
        raise SettingsError(f"{VARIABLE}={wanted}", next_step=f"use {' or '.join(FORMATS)}, or unset it")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Json() if wanted == "json" else _Plain())
    handler.set_name("perfci")
    root = logging.getLogger()
    for known in [h for h in root.handlers if h.get_name() == "perfci"]:
        root.removeHandler(known)
    root.addHandler(handler)
    root.setLevel(logging.INFO if wanted else level)
    # httpx tells each URL at INFO, and a webhook's URL is a secret.
    for talkative in ("alembic", "httpcore", "httpx"):
        logging.getLogger(talkative).setLevel(logging.WARNING)


@contextmanager
def context(**fields: object) -> Iterator[None]:
    """Every event inside tells these too: session, run, suite, hardware."""
    token = _context.set({**_context.get({}), **fields})
    try:
        yield
    finally:
        _context.reset(token)


def event(name: str, /, *, level: int = logging.INFO, **fields: object) -> None:
    """Something happened; `name` is a word or two that never varies, the rest goes into fields."""
    if not _LOGGER.isEnabledFor(level):
        return
    told = {key: _clean(value) for key, value in {**_context.get({}), **fields}.items() if value is not None}
    text = " ".join((name, *(f"{key}={_shown(value)}" for key, value in told.items())))
    _LOGGER.log(level, "%s", text, extra={_EVENT: {**told, "event": name}})


def conceal(secret: str) -> None:
    """Take this text out of every line from now on."""
    if len(secret) >= _SHORTEST:
        _concealed.add(secret)


def without_secrets(text: str) -> str:
    for secret in sorted(_concealed, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _LOOKS_SECRET.sub(_hidden, text)


def _hidden(found: re.Match[str]) -> str:
    if found["url"]:
        return f"{found['url']}:{HIDDEN}@"
    return f"{found['scheme'] or found['hook'] or ''}{HIDDEN}"


def _clean(value: object) -> object:
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean(each) for each in value]
    return without_secrets(str(value))


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    plain = text.isprintable() and text and not any(c in text for c in ' "=')
    # Escaped, so that a name cannot begin a line of its own or move the cursor.
    return text if plain else json.dumps(text) if isinstance(value, str) else text


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told = getattr(record, _EVENT, None)
        if told is None:
            told = {"event": "message", "logger": record.name, "message": without_secrets(record.getMessage())}
        body = {**told, "time": _time(record), "level": record.levelname.lower()}
        if record.exc_info:
            body["exception"] = without_secrets(self.formatException(record.exc_info))
        # The three that every line has come first.
        head = {key: body.pop(key) for key in ("time", "level", "event")}
        return json.dumps({**head, **body}, default=str)


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told = getattr(record, _EVENT, None)
        text = record.getMessage() if told else f"{record.name}: {record.getMessage()}"
        lines = [f"{_time(record)} {record.levelname.lower()} {text}"]
        if record.exc_info:
            lines.append(self.formatException(record.exc_info))
        return without_secrets("\n".join(lines))


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
