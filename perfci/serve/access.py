"""Who may ask: a job's token for its sources and results, a reader's token or this machine for what is stored."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from perfci import grants, secrets_file
from perfci.config import Settings
from perfci.grants import Grant, TokenRefused
from perfci.serve.refusals import Refusal

# Not trusted: a request that carries one of them came through a proxy, whatever address it has now.
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="perfci"'}


@dataclass(frozen=True, slots=True)
class Access:
    key: bytes
    reader: bytes
    now: Callable[[], datetime]

    def job(self, connection: HTTPConnection) -> Grant:
        """Raises Refusal 401 for a token that is absent, foreign or too old."""
        token = _bearer(connection)
        if not token:
            raise _unknown("a job's token is needed", "send it as `Authorization: Bearer …`")
        try:
            return grants.verify(self.key, token, now=self.now())
        except TokenRefused as error:
            raise _unknown(error.message, error.next_step) from error

    def check_reader(self, connection: HTTPConnection) -> None:
        """Raises Refusal 401."""
        given = _bearer(connection).encode()
        if given and hmac.compare_digest(given, self.reader):
            return
        if not given and _on_this_machine(connection):
            return
        raise _unknown("a reader's token is needed", "send that of secrets/reader.token as `Authorization: Bearer …`")


def access(settings: Settings, *, now: Callable[[], datetime]) -> Access:
    """Raises ServiceError."""
    reader = secrets_file.kept(settings.secrets / "reader.token", lambda: secrets.token_urlsafe(32).encode())
    return Access(grants.signing_key(settings), reader, now)


def _unknown(error: str, next_step: str) -> Refusal:
    return Refusal(401, error, next_step=next_step, headers=_CHALLENGE)


def _bearer(connection: HTTPConnection) -> str:
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _on_this_machine(connection: HTTPConnection) -> bool:
    if any(header in connection.headers for header in _FORWARDED):
        return False
    # A page of somebody's site whose name was turned to this address (DNS rebinding) asks by that name.
    try:
        asked = urlsplit(f"//{connection.headers.get('host', '')}").hostname or ""
    except ValueError:
        return False
    peer = connection.client.host if connection.client else ""
    return _loopback(peer) and (asked == "localhost" or _loopback(asked))


def _loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
