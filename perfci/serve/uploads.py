"""PUT and HEAD of a result: the body's way from the network to `deliveries`.

A request's body is what is left of the file, or the next part of it where `Upload-Length` says how long the whole is.
Sizes are judged before anything is read, a body that comes too slowly is let go, and what came of it stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from perfci import artifact, logs
from perfci.config import Settings
from perfci.grants import Grant
from perfci.serve import deliveries
from perfci.serve.access import Access
from perfci.serve.deliveries import Part
from perfci.serve.refusals import Refusal, of_disk

T = TypeVar("T")
# Written to the disk in one go; a thread for each 64 KiB that the network gives would cost more than the writing.
_BLOCK = 1024 * 1024
# A refusal reads a body of this size to its end: a client that is still sending may else never see why.
_DRAINED = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Pace:
    """idle_s: longest silence in a body. least_rate: bytes a second that it must come with after the first minute."""

    idle_s: float = 30.0
    first_s: float = 60.0
    least_rate: float = 4096.0

    def limit_s(self, length: int) -> float:
        return self.first_s + length / self.least_rate


@dataclass(frozen=True, slots=True)
class Announced:
    """What a request says of its body. total: bytes of the whole file."""

    length: int
    offset: int
    total: int


class Uploads:
    def __init__(self, settings: Settings, access: Access, *, now: Callable[[], datetime], pace: Pace) -> None:
        self._settings, self._access, self._now, self._pace = settings, access, now, pace
        self._threads = CapacityLimiter(16)
        # A file of 32 MiB becomes several hundred in memory while it is checked.
        self._checking = CapacityLimiter(2)

    async def head(self, request: Request) -> Response:
        grant, sha256 = self._asked(request)
        if await self._on_disk(deliveries.known, self._settings, grant, sha256):
            return Response(headers={"Upload-Complete": "?1"})
        offset = await self._on_disk(deliveries.arrived, self._settings, grant, sha256)
        return Response(headers={"Upload-Complete": "?0", "Upload-Offset": str(offset)})

    async def received(self, request: Request) -> Response:
        """What the job has given so far: a node that takes it over measures the rest."""
        grant = self._access.job(request)
        found = await self._on_disk(deliveries.received, self._settings, grant)
        return JSONResponse({"artifacts": [{"index": each.index, "sha256": each.sha256} for each in found]})

    async def put(self, request: Request) -> Response:
        try:
            grant, sha256 = self._asked(request)
            announced = _announced(request)
            with logs.context(suite=grant.suite, hardware=grant.hardware, session=grant.session):
                return await self._put(request, grant, sha256, announced)
        except Refusal as refusal:
            refusal.close = refusal.close or not await _drained(request, self._pace)
            logs.event("refused", status=refusal.status, problem=refusal.error)
            raise

    async def _put(self, request: Request, grant: Grant, sha256: str, announced: Announced) -> Response:
        if await self._on_disk(deliveries.known, self._settings, grant, sha256):
            await _drained(request, self._pace)
            return _answer("known", sha256)
        part = await self._on_disk(deliveries.opened, self._settings, grant, sha256)
        try:
            await self._receive(request, part, announced)
            if part.length < announced.total:
                return Response(status_code=202, headers={"Upload-Offset": str(part.length)})
            state = await self._on_disk(
                lambda: deliveries.finish(self._settings, grant, sha256, part, now=self._now()), limiter=self._checking
            )
        finally:
            part.close()
        logs.event("delivered", state=state, artifact=sha256, bytes=announced.total)
        return _answer(state, sha256)

    async def _receive(self, request: Request, part: Part, announced: Announced) -> None:
        """The body's bytes, from the offset on. Raises Refusal; what came until then is in the part."""
        there = part.length
        if announced.offset > there:
            raise Refusal(
                409,
                f"{there} bytes of the file are here, and the body begins at {announced.offset}",
                next_step="go on from Upload-Offset",
                headers={"Upload-Offset": str(there)},
            )
        await self._on_disk(part.rewind, announced.offset)
        block = bytearray()
        body = request.stream()
        until = asyncio.get_running_loop().time() + self._pace.limit_s(announced.length)
        try:
            while True:
                async with asyncio.timeout(self._pace.idle_s), asyncio.timeout_at(until):
                    chunk = await anext(body, b"")
                block += chunk
                if len(block) >= _BLOCK or not chunk:
                    await self._on_disk(part.append, bytes(block))
                    block.clear()
                if not chunk:
                    return
        except (TimeoutError, ClientDisconnect) as error:
            if block:
                await self._on_disk(part.append, bytes(block))
            slow = isinstance(error, TimeoutError)
            raise Refusal(
                408 if slow else 400,
                "the body came too slowly" if slow else "the body broke off",
                next_step="ask by HEAD what has arrived, and go on from there",
                close=True,
            ) from error

    def _asked(self, request: Request) -> tuple[Grant, str]:
        grant = self._access.job(request)
        sha256 = request.path_params["sha256"]
        if not is_sha256(sha256):
            raise Refusal(404, "an artifact is named by its sha256", next_step="use 64 hexadecimal digits")
        return grant, sha256

    async def _on_disk(self, work: Callable[..., T], *arguments: object, limiter: CapacityLimiter | None = None) -> T:
        thread = asyncio.ensure_future(run_sync(work, *arguments, limiter=limiter or self._threads))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            await asyncio.wait((thread,))  # a thread cannot be stopped, and has the file open
            raise
        except OSError as error:
            raise of_disk(error, self._settings.state) from error


def is_sha256(text: str) -> bool:
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


def _announced(request: Request) -> Announced:
    """Raises Refusal: what the headers say decides before a byte of the body is read."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(415, "an encoded body is not taken", next_step="send the file as it is", close=True)
    length = _number(request, "content-length")
    if length is None:
        raise Refusal(411, "the body's length is not told", next_step="send Content-Length", close=True)
    offset = _number(request, "upload-offset") or 0
    total = _number(request, "upload-length")
    total = offset + length if total is None else total
    if max(total, offset + length) > artifact.MAX_BYTES:
        raise Refusal(
            413,
            f"{max(total, offset + length)} bytes are no result's",
            next_step=f"{artifact.MAX_BYTES} are the most",
            close=True,
        )
    if offset + length > total or not total:
        raise Refusal(400, "the body goes beyond Upload-Length, or is empty", next_step="send the file's own length")
    return Announced(length, offset, total)


def _number(request: Request, header: str) -> int | None:
    text = request.headers.get(header)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise Refusal(400, f"{header} is {text[:40]!r}", next_step="send a number of bytes", close=True)
    return int(text)


async def _drained(request: Request, pace: Pace) -> bool:
    """Read what is left of a small body, so that its sender comes to read the answer. False: it was not."""
    length = request.headers.get("content-length", "")
    if not (length.isascii() and length.isdigit() and len(length) <= 15 and int(length) <= _DRAINED):
        return False
    try:
        async with asyncio.timeout(pace.idle_s):
            async for _ in request.stream():
                pass
    except (TimeoutError, ClientDisconnect):
        return False
    except RuntimeError:  # it was read before
        return True
    return True


def _answer(state: str, sha256: str) -> JSONResponse:
    return JSONResponse({"sha256": sha256, "state": state}, status_code=201 if state == "stored" else 200)
