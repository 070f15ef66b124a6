"""What a client is told when it does not get what it asked for: {"error", "next_step"}, as a PerfciError has them."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse

from perfci import logs
from perfci.errors import PerfciError, StoreError

NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))


class Refusal(Exception):
    """close: what the client still sends is not read."""

    def __init__(
        self,
        status: int,
        error: str,
        *,
        next_step: str,
        headers: Mapping[str, str] | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(f"{error}; {next_step}")
        self.status, self.error, self.next_step, self.close = status, error, next_step, close
        self.headers = dict(headers or {})


def of_disk(error: OSError, folder: Path) -> Refusal:
    place = error.filename or folder
    if error.errno in NO_ROOM:
        return Refusal(507, "the server's disk is full", next_step="keep the file and try again later", close=True)
    logs.event("unwritable", place=place, problem=error.strerror)
    return Refusal(500, "the server cannot write its files", next_step="read the server's log", close=True)


async def refused(request: Request, refusal: Exception) -> JSONResponse:
    assert isinstance(refusal, Refusal)
    headers = refusal.headers | ({"Connection": "close"} if refusal.close else {})
    return _told(refusal.status, refusal.error, refusal.next_step, headers)


async def failed(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PerfciError)
    status = 503 if isinstance(error, StoreError) else 500
    return _told(status, error.message, error.next_step)


async def unknown(request: Request, error: Exception) -> JSONResponse:
    """No such path, or not with this method."""
    status = getattr(error, "status_code", 404)
    return _told(status, f"{getattr(error, 'detail', 'Not Found')}", "read docs/serving.md")


async def crashed(request: Request, error: Exception) -> JSONResponse:
    return _told(500, "the server failed", "read the server's log")


def _told(status: int, error: str, next_step: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": error, "next_step": next_step}, status_code=status, headers=dict(headers or {}))
