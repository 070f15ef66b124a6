"""How the control plane looks from a node: does it answer, which version, what time, does it know this node's key?"""

from __future__ import annotations

import email.utils
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from perfci.runner import keys
from perfci.runner.binding import PREFIX, WHO

_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """problem: why there is no usable answer; empty: all well. skew_s: this clock less the server's, where it said."""

    url: str
    problem: str = ""
    version: str = ""
    skew_s: float | None = None
    refused: bool = False  # it answered, and said no
    body: Mapping[str, Any] = field(default_factory=dict)


def answer(url: str) -> Answer:
    """Of anything that speaks JSON."""
    return _asked(url, {})


def health(url: str) -> Answer:
    """Of `perfci serve`."""
    return _asked(f"{url.rstrip('/')}/health", {})


def edge(airflow_url: str) -> Answer:
    """Of Airflow's edge API."""
    return _asked(f"{airflow_url.rstrip('/')}{PREFIX}health", {})


def known(airflow_url: str, name: str, key_file: Path, *, now: datetime) -> Answer:
    """Whether this node's key opens the edge API under its name. Raises ServiceError when there is no key here."""
    place = f"{WHO}{name}"
    token = keys.sign(keys.private(key_file), kid=name, place=place, now=now, lifetime_s=60)
    return _asked(f"{airflow_url.rstrip('/')}{PREFIX}{place}", {"Authorization": token})


def _asked(url: str, headers: dict[str, str]) -> Answer:
    try:
        answer = httpx.get(url, headers=headers, timeout=_TIMEOUT_S)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Answer(url, problem=f"{url} does not answer ({str(error) or type(error).__name__})")
    skew = _skew(answer.headers.get("Date", ""))
    try:
        body = answer.json()
    except (json.JSONDecodeError, UnicodeDecodeError):
        body = {}
    body = body if isinstance(body, dict) else {}
    if not answer.is_success:
        said = str(body.get("detail") or body.get("error") or answer.reason_phrase)[:300]
        refused = answer.status_code in (401, 403)
        return Answer(url, f"{url} answers {answer.status_code}: {said}", skew_s=skew, refused=refused)
    return Answer(url, version=str(body.get("version", "")), skew_s=skew, body=body)


def _skew(date: str) -> float | None:
    """To the second, as the header is."""
    try:
        there = email.utils.parsedate_to_datetime(date)
    except (TypeError, ValueError):
        return None
    return (datetime.now(UTC) - there.astimezone(UTC)).total_seconds()
