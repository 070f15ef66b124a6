"""The ASGI application: which path is answered by what."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime

from anyio.to_thread import run_sync
from sqlalchemy import Engine
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from perfci import __version__
from perfci.config import Settings
from perfci.errors import PerfciError, StoreError
from perfci.serve import deliveries, refusals
from perfci.serve.access import Access, access
from perfci.serve.reading import Reading
from perfci.serve.refusals import Refusal
from perfci.serve.uploads import Pace, Uploads, is_sha256
from perfci.store import schema

_TRIM_EVERY_S = 6 * 3600.0
# Anybody may ask for /health; the database is looked at so often at most.
_HEALTH_S = 5.0


def application(
    settings: Settings, engine: Engine, *, now: Callable[[], datetime], pace: Pace | None = None
) -> Starlette:
    """Raises ServiceError when a secret cannot be read or made."""
    rights = access(settings, now=now)
    uploads = Uploads(settings, rights, now=now, pace=pace or Pace())
    reading = Reading(settings, engine, rights, now)
    bundles = Bundles(settings, rights)
    return Starlette(
        routes=[
            Route("/v1/bundles/{sha256}", bundles.get, methods=["GET"]),
            Route("/v1/artifacts", uploads.received, methods=["GET"]),
            Route("/v1/artifacts/{sha256}", uploads.put, methods=["PUT"]),
            Route("/v1/artifacts/{sha256}", uploads.head, methods=["HEAD"]),
            Route("/v1/results", reading.results, methods=["GET"]),
            Route("/v1/series", reading.series, methods=["GET"]),
            Route("/v1/series/{id:int}/points", reading.points, methods=["GET"]),
            Route("/v1/alerts", reading.alerts, methods=["GET"]),
            Route("/v1/sessions/{name:path}", reading.session, methods=["GET"]),
            Route("/health", Health(engine).get, methods=["GET"]),
            Route("/metrics", reading.metrics, methods=["GET"]),
        ],
        exception_handlers={
            Refusal: refusals.refused,
            PerfciError: refusals.failed,
            HTTPException: refusals.unknown,
            Exception: refusals.crashed,
        },
        lifespan=_trimming(settings, now=now),
    )


class Bundles:
    """Sources of a job, for its token; a part of the file by `Range`."""

    def __init__(self, settings: Settings, rights: Access) -> None:
        self._folder, self._access = settings.bundles, rights

    async def get(self, request: Request) -> Response:
        grant = self._access.job(request)
        sha256 = request.path_params["sha256"]
        if not is_sha256(sha256):
            raise Refusal(404, "a bundle is named by its sha256", next_step="use 64 hexadecimal digits")
        if sha256 != grant.bundle:
            raise Refusal(403, "the token is of a job with another bundle", next_step="use that job's token")
        path = self._folder / f"{sha256}.bundle"
        if not await run_sync(path.is_file):
            raise Refusal(404, "the bundle is not here any more", next_step="plan the job again")
        # Its name is its content's hash: it never changes.
        return FileResponse(path, media_type="application/octet-stream", headers={"ETag": f'"{sha256}"'})


class Health:
    """That the server lives, and which perfci it is. Results are taken while the database is away."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._until, self._database = engine, 0.0, ""
        self._lock = asyncio.Lock()

    async def get(self, request: Request) -> Response:
        async with self._lock:
            if time.monotonic() > self._until:
                self._database = await run_sync(self._look)
                self._until = time.monotonic() + _HEALTH_S
        return JSONResponse({"status": "ok", "version": __version__, "database": self._database})

    def _look(self) -> str:
        try:
            schema.check(self._engine)
        except StoreError:
            return "unusable"
        return "ok"


def _trimming(
    settings: Settings, *, now: Callable[[], datetime]
) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(_trim(settings, now=now))
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    return lifespan


async def _trim(settings: Settings, *, now: Callable[[], datetime]) -> None:
    while True:
        with suppress(OSError):
            await run_sync(lambda: deliveries.trim(settings, now=now()))
        await asyncio.sleep(_TRIM_EVERY_S)
