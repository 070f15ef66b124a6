"""A slow or broken line between a node and the control plane: a TCP proxy on loopback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_CHUNK = 4096


class Line:
    """`rate`: bytes a second in each direction of a connection, None for as fast as it goes. While `silent`, what is
    sent goes nowhere and no connection ends, as with a cable that was pulled out."""

    def __init__(self, port: int) -> None:
        self.port, self.rate, self.silent, self.forwarded = 0, None, False, 0
        self._target = port
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()

    rate: float | None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def break_off(self) -> None:
        """Every connection ends at once."""
        self._loop.call_soon_threadsafe(lambda: [writer.transport.abort() for writer in self._writers])

    async def _serve(self, ready: threading.Event) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        with suppress(asyncio.CancelledError):
            await server.serve_forever()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.wait(others)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        await asyncio.gather(self._pumped(reader, back), self._pumped(there, writer))
        self._writers -= {writer, back}

    async def _pumped(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(_CHUNK):
                while self.silent:
                    await asyncio.sleep(0.05)
                if self.rate:
                    await asyncio.sleep(len(data) / self.rate)
                self.forwarded += len(data)
                target.write(data)
                await target.drain()
        with suppress(OSError, RuntimeError):
            target.close()


@contextmanager
def line(port: int) -> Iterator[Line]:
    """To a port of this machine."""
    made = Line(port)
    ready = threading.Event()
    task = made._loop.create_task(made._serve(ready))
    thread = threading.Thread(target=made._loop.run_until_complete, args=(task,))
    thread.start()
    ready.wait()
    try:
        yield made
    finally:
        made.break_off()
        made._loop.call_soon_threadsafe(task.cancel)
        thread.join()
        made._loop.run_until_complete(made._loop.shutdown_default_executor())
        made._loop.close()
