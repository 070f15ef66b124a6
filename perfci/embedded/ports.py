"""Ports on 127.0.0.1."""

from __future__ import annotations

import socket

import psutil

from perfci.errors import ServiceError

LOOPBACK = "127.0.0.1"


def free() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def usable(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an old connection in TIME_WAIT is no obstacle
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def wanted(port: int, *, setting: str) -> int:
    """`port`, or a free one for 0. Raises ServiceError when somebody else has it."""
    if port == 0:
        return free()
    if not 0 < port < 65536:
        raise ServiceError(f"{setting} = {port} is no port", next_step="use 1 to 65535, or 0 for any free one")
    if usable(port):
        return port
    raise ServiceError(
        f"port {port} is in use{_by_whom(port)}",
        next_step=f"end that, or set another {setting} in perfci.toml (0: any)",
    )


def _by_whom(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and tuple(connection.laddr)[1:2] == (port,)
            if listens and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (process {connection.pid})"
    except (psutil.Error, OSError):
        return ""  # another user's
    return ""
