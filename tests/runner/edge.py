"""An edge API that says what it was asked, and with whose token; Bound stands before it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from perfci.runner import keys, roster
from perfci.runner.binding import Bound

NOW = datetime(2027, 1, 15, 2, 0, tzinfo=UTC)


async def listening(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
    """Answers with what Airflow would see."""
    headers = {key.decode().lower(): value.decode() for key, value in scope["headers"]}
    body = json.dumps({"path": scope["path"], "token": headers.get("authorization", "")}).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})


class Gate:
    """Bound with nodes' keys in a folder, and requests through it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.nodes = folder, folder / "state" / "nodes"
        self.app = Bound(listening, self.nodes)

    def new_key(self, name: str, *, known: bool = True) -> bytes:
        key = keys.private(self.folder / name / "node.pem")
        if known:
            roster.add(self.nodes, name, json.dumps(keys.public_jwk(key)), replace=False, now=NOW)
        return key

    def ask(self, method: str, path: str, *, token: str | None = None) -> httpx.Response:
        headers = {} if token is None else {"Authorization": token}

        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url="http://airflow") as client:
                return await client.request(method, path, headers=headers)

        return asyncio.run(asked())

    def ask_as(self, key: bytes, kid: str, method: str, place: str, **options: Any) -> httpx.Response:
        """As the edge worker does: the token says for which place it is."""
        at = options.pop("now", datetime.now(UTC))
        token = keys.sign(key, kid=kid, place=options.pop("signed_for", place), now=at, lifetime_s=30)
        return self.ask(method, f"/edge_worker/v1/{place}", token=token)
