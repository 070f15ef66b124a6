"""Two networks of a test's own, joined by one cable: the control plane lives in one, a node in the other.

Each is a kernel namespace that a sleeping process holds (with one for mounts, see `machines`), so that nothing is left
of it when the test dies; making one needs root. A thread moves between them, and what it starts begins where it is.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

CONTROL, NODE = "10.77.0.1", "10.77.0.2"
_CLONE_NEWNET = 0x40000000
_LIBRARY = ctypes.CDLL(None, use_errno=True)


class Network:
    def __init__(self, holder: int) -> None:
        self.holder = holder

    @contextmanager
    def inside(self) -> Iterator[None]:
        """This thread, and every process that it starts."""
        with Path("/proc/thread-self/ns/net").open() as before, Path(f"/proc/{self.holder}/ns/net").open() as here:
            _enter(here.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    def ip(self, *words: str) -> None:
        with self.inside():
            subprocess.run(["ip", *words], check=True, capture_output=True)


class Cable:
    """Between the two."""

    def __init__(self, control: Network, node: Network) -> None:
        self.control, self.node = control, node

    def cut(self) -> None:
        """Nothing gets through, and the node is not told: it is the other end that is down."""
        self.control.ip("link", "set", "cable", "down")

    def mend(self) -> None:
        self.control.ip("link", "set", "cable", "up")


@contextmanager
def joined() -> Iterator[Cable]:
    with ExitStack() as stack:
        control, node = (stack.enter_context(_network()) for _ in range(2))
        control.ip("link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", str(node.holder))
        for network, address in ((control, CONTROL), (node, NODE)):
            network.ip("link", "set", "lo", "up")
            network.ip("address", "add", f"{address}/24", "dev", "cable")
            network.ip("link", "set", "cable", "up")
        yield Cable(control, node)


@contextmanager
def _network() -> Iterator[Network]:
    words = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        "--net",
        "--mount",
        "sh",
        "-c",
        "echo ready; exec sleep infinity",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "ready\n", "network namespaces need root"
            yield Network(holder.pid)
        finally:
            os.killpg(holder.pid, signal.SIGKILL)


def _enter(namespace: int) -> None:
    if _LIBRARY.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
