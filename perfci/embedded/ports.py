"""Ports on 127.0.0.1, or on the address that the settings name."""

from __future__ import annotations

import ipaddress
import socket

import psutil

from perfci.errors import ServiceError

LOOPBACK = "127.0.0.1"


def free(address: str = LOOPBACK) -> int:
    """A port that nobody listens on now."""
    with socket.socket(_family(address)) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def usable(port: int, address: str = LOOPBACK) -> bool:
    with socket.socket(_family(address)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an old connection in TIME_WAIT is no obstacle
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def check_address(address: str) -> None:
    """Raises ServiceError when this machine has no such address."""
    try:
        free(address)
    except OSError as error:
        raise ServiceError(
            f"service.bind = {address!r} cannot be listened on ({error.strerror})",
            next_step="name one of this machine's",
        ) from error


def wanted(port: int, *, setting: str, address: str = LOOPBACK) -> int:
    """`port`, or a free one for 0. Raises ServiceError when somebody else has it."""
    if port == 0:
        return free(address)
    if not 0 < port < 65536:
        raise ServiceError(f"{setting} = {port} is no port", next_step="use 1 to 65535, or 0 for any free one")
    if usable(port, address):
        return port
    raise ServiceError(
        f"port {port} is in use{_by_whom(port)}",
        next_step=f"end that, or set another {setting} in perfci.toml (0: any)",
    )


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET


def _by_whom(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and tuple(connection.laddr)[1:2] == (port,)
            if listens and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (process {connection.pid})"
    except (psutil.Error, OSError):
        return ""  # another user's
    return ""
