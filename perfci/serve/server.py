"""The application behind a socket."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from datetime import datetime

import uvicorn
from sqlalchemy import Engine
from uvicorn.protocols.http.h11_impl import H11Protocol

from perfci import logs
from perfci.config import Settings
from perfci.errors import ServiceError
from perfci.serve.app import application
from perfci.serve.uploads import Pace

# Nobody needs longer for a request line and its headers.
HEADERS_S = 20.0
_CONNECTIONS = 512
_PORT_STEP = "end what uses it, or set another server_port in perfci.toml (0: any)"


class Protocol(H11Protocol):
    """uvicorn's, for callers who may be hostile: a request whose headers do not come, or whose refused body does not
    end, holds its connection for HEADERS_S at most."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._end_wait()

    def on_response_complete(self) -> None:
        before = self.cycle
        super().on_response_complete()
        if self.cycle is before:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._end_wait()
        self._patience = self.loop.call_later(HEADERS_S, self.transport.abort)

    def _end_wait(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def listening(bind: str, port: int) -> socket.socket:
    """A socket that nobody else has. Raises ServiceError."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((bind, port))
        made.listen(1024)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            raise ServiceError(f"port {port} of {bind} is in use", next_step=_PORT_STEP) from error
        if error.errno == errno.EADDRNOTAVAIL:
            raise ServiceError(
                f"service.bind = {bind!r} is no address of this machine", next_step="mend it in perfci.toml"
            ) from error
        raise ServiceError(f"port {port} of {bind}: {os.strerror(error.errno or 0)}", next_step=_PORT_STEP) from error
    return made


def address(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(
    settings: Settings, engine: Engine, sock: socket.socket, *, now: Callable[[], datetime], pace: Pace | None = None
) -> None:
    """Until SIGTERM or SIGINT; uploads that are under way then have some seconds to end. Raises ServiceError."""
    config = uvicorn.Config(
        application(settings, engine, now=now, pace=pace),
        http=Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        # An address that a header tells is anybody's word.
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        h11_max_incomplete_event_size=32 * 1024,
        timeout_graceful_shutdown=10,
        timeout_keep_alive=15,
    )
    logs.event("listening", address=address(sock))
    uvicorn.Server(config).run(sockets=[sock])
