"""In front of Airflow's edge API: a node speaks for itself alone.

    node ── token, signed by its own key ──▶ Bound ── token, signed by the gateway's key ──▶ edge API

Airflow takes any key of its key set for any worker, and reads the set once. So the set holds one key, the gateway's,
which never leaves this machine. `Bound` looks the node's own key up at each request, refuses a node that names
another, and vouches for the rest. Where Bound is not installed, nobody's token is taken.

A node's clock may be wrong by a quarter of an hour: its tokens are read by this machine's clock with that much
leeway, and what Airflow gets has this machine's time. Over TLS nobody else sees a token in the meantime.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from perfci import __version__
from perfci.runner import keys, roster
from perfci.runner.roster import KEYS_FILE

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PREFIX = "/edge_worker/v1/"
# Answered here: a node asks whether its key is known. GET PREFIX + WHO + name.
WHO = "perfci/"
LEEWAY_S = 900.0
_GATEWAY = "perfci-gateway"
_LIFETIME_S = 60.0


class Bound:
    """ASGI middleware. nodes: the folder of public keys; `jwks.json` in it is what Airflow is to trust.

    secrets: where the gateway's key lies; by default the folder `secrets` beside `nodes`.
    """

    def __init__(self, app: App, nodes: Path, secrets: Path | None = None) -> None:
        self._app, self._nodes = app, Path(nodes)
        self._key = trust(self._nodes, secrets or self._nodes.parent / "secrets")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        place = _place(scope)
        if place is None or place == "health":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})  # the edge API has none
            return
        node, refused = self._speaker(scope, place)
        if refused:
            await _answer(send, 403, {"detail": refused})
        elif place.startswith(WHO):
            await _answer(send, 200, {"node": node, "version": __version__})
        else:
            token = keys.sign(
                self._key, kid=_GATEWAY, place=place, now=datetime.now(UTC), lifetime_s=_LIFETIME_S, subject=node
            )
            others = [(key, value) for key, value in scope["headers"] if key.lower() != b"authorization"]
            await self._app({**scope, "headers": [*others, (b"authorization", token.encode())]}, receive, send)

    def _speaker(self, scope: Scope, place: str) -> tuple[str, str]:
        """The node that has signed this request, or why it is refused."""
        given = [value for key, value in scope["headers"] if key.lower() == b"authorization"]
        token = given[0].decode("latin-1").removeprefix("Bearer ").strip() if len(given) == 1 else ""
        name = keys.key_id(token)
        if not name:
            return "", "no token with a node's name in it"
        node = roster.find(self._nodes, name)
        if node is None:
            return "", f"no node named {name[:63]!r} is known here; add its key with `perfci nodes add`"
        claims = keys.checked(token, node.jwk, leeway_s=LEEWAY_S)
        if claims is None:
            return "", f"this token is not node {name}'s, or its clock is more than {LEEWAY_S / 60:.0f} minutes off"
        if place not in (claims.get("method"), unquote(str(claims.get("method")))):
            return "", "this token is for another request"
        spoken_for = _worker(place)
        if spoken_for is not None and spoken_for != name:
            return "", f"node {name} speaks for itself, not for {spoken_for[:63]!r}"
        return name, ""


def trust(nodes: Path, secrets: Path) -> bytes:
    """The gateway's private key, made once, and the key file for Airflow that goes with it. Raises ServiceError."""
    key = keys.private(secrets / "gateway.pem")
    text = keys.keys_file_text(key, _GATEWAY)
    path = nodes / KEYS_FILE
    if not path.is_file() or path.read_text("utf-8") != text:
        roster.write(path, text)
    return key


def _place(scope: Scope) -> str | None:
    """What is asked of the edge API, as its router reads it; None for anything else."""
    if scope["type"] not in ("http", "websocket"):
        return None
    _, found, place = scope["path"].partition(PREFIX)
    return place if found else None


def _worker(place: str) -> str | None:
    """The worker that a path of edge3's API names, if it names one."""
    match place.split("/"):
        case ["worker", "queues", name, *_] | ["worker", name, *_] | ["jobs", "fetch", name, *_] | ["perfci", name, *_]:
            return name
        case _:
            return None


async def _answer(send: Send, status: int, body: dict[str, str]) -> None:
    data = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
