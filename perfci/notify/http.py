"""A message as the body of one POST. Redirects are not followed: the address was given by a person, not by a server."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from perfci.notify.attempt import Answer, Attempt, Delivery
from perfci.notify.message import line

STEP_S = 10.0  # for a connection, a write, a read; the whole has a limit of its own
_ANSWER_BYTES = 500
# 502 is what a proxy says whose peer is down; with 504 the peer may have taken it.
_UNSURE = frozenset({504})
_AGAIN = frozenset({408, 425, 429, 500, 502, 503})


def post(attempt: Attempt, url: str, body: bytes, *, headers: Mapping[str, str]) -> Answer:
    """No text of the answer names `url`, which may be a secret."""
    with _unlogged():
        try:
            with httpx.Client(timeout=STEP_S, follow_redirects=False) as client:
                extensions = {"trace": lambda name, info: _beginning(attempt, name, info)}
                request = client.build_request("POST", url, content=body, headers=headers, extensions=extensions)
                return _answer(client.send(request, stream=True))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            kind = type(error).__name__
            if attempt.begun:
                return Answer(Delivery.UNSURE, f"the connection broke before an answer came ({kind})")
            invalid = isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol)
            text = "its URL cannot be used" if invalid else f"it cannot be reached ({_cause(error, url)})"
            return Answer(Delivery.REFUSED, text, again=not invalid)


def _beginning(attempt: Attempt, name: str, info: Mapping[str, Any]) -> None:
    # A proxy is asked for its tunnel first, by a CONNECT.
    if name.endswith(".send_request_headers.started") and info["request"].method == b"POST":
        attempt.begin()


def _answer(response: httpx.Response) -> Answer:
    status = response.status_code
    if response.is_success:
        return Answer(Delivery.DELIVERED)
    if response.is_redirect:
        return Answer(Delivery.REFUSED, f"it answers with a redirect ({status}), which is not followed")
    # More would keep us: nobody has said how much it sends.
    body = b""
    for part in response.iter_raw(_ANSWER_BYTES):
        body = (body + part)[:_ANSWER_BYTES]
        break
    said = line(body.decode("utf-8", "replace"), 200)
    text = f"it answers {status}" + (f": {said}" if said else "")
    if status in _UNSURE:
        return Answer(Delivery.UNSURE, text)
    return Answer(Delivery.REFUSED, text, again=status in _AGAIN)


def _cause(error: Exception, url: str) -> str:
    return line(str(error).replace(url, "its URL"), 200) or type(error).__name__


@contextmanager
def _unlogged() -> Iterator[None]:
    """httpx tells each URL at INFO, and Airflow keeps such lines."""
    quiet = logging.Filter()
    quiet.filter = lambda record: False  # type: ignore[method-assign]
    logger = logging.getLogger("httpx")
    logger.addFilter(quiet)
    try:
        yield
    finally:
        logger.removeFilter(quiet)
