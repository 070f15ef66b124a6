"""Servers on loopback that take messages, well or badly."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Web:
    """A webhook's other end. `status` and `headers` are what it answers; `hold` keeps it from answering."""

    url: str = ""
    status: int = 200
    answer: bytes = b"ok"
    headers: dict[str, str] = field(default_factory=dict)
    received: list[Received] = field(default_factory=list)
    hold: threading.Event | None = None
    drip_s: float = 0.0


@contextmanager
def web() -> Iterator[Web]:
    told = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.received.append(Received(self.path, dict(self.headers), body))
            if told.hold:
                told.hold.wait(60)
            status, content = told.status, told.answer
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **told.headers}.items():
                self.send_header(name, value)
            for part in range(round(told.drip_s * 20)):
                self.send_header(f"Drip-{part}", "x")
                self.flush_headers()
                time.sleep(0.05)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that was killed
    told.url = f"http://127.0.0.1:{server.server_address[1]}/hook/s3cret-path"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield told
    finally:
        if told.hold:
            told.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Mail:
    """An SMTP server: what it was told, and how it answers a verb, e.g. {"RCPT": "550 no such user"}."""

    port: int = 0
    answers: dict[str, str] = field(default_factory=dict)
    verbs: list[str] = field(default_factory=list)
    letters: list[bytes] = field(default_factory=list)
    tls: ssl.SSLContext | None = None
    tls_first: bool = False  # as on port 465
    silent: bool = False
    hang_up_at: str = ""
    encrypted: bool = False

    def letter(self) -> EmailMessage:
        [content] = self.letters
        return cast(EmailMessage, message_from_bytes(content, policy=policy.default))

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = writer.transport
        try:
            await (asyncio.sleep(60) if self.silent else self._talk(reader, writer))
        except (ConnectionError, ssl.SSLError):
            wire.abort()  # the client has had enough
        finally:
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 test ready\r\n")
        while text := (await reader.readline()).decode():
            verb = text[:4].strip().upper()
            self.verbs.append(text[:4].upper() + text[4:].rstrip())
            if verb == self.hang_up_at:
                return
            answer = self.answers.get(verb) or self._usual(verb)
            writer.write(f"{answer}\r\n".encode())
            await writer.drain()
            if verb == "STAR" and self.tls:
                await writer.start_tls(self.tls)
                self.encrypted = True
            elif verb == "DATA" and answer.startswith("354"):
                content = await reader.readuntil(b"\r\n.\r\n")
                if self.hang_up_at == "END":
                    return
                self.letters.append(content[:-3])
                writer.write((self.answers.get("END", "250 taken") + "\r\n").encode())
            elif verb == "QUIT":
                return

    def _usual(self, verb: str) -> str:
        offered = [
            "250-test",
            *(["250-STARTTLS"] if self.tls and not (self.tls_first or self.encrypted) else []),
            "250 AUTH PLAIN",
        ]
        usual = {"EHLO": "\r\n".join(offered), "DATA": "354 go on", "STAR": "220 go on", "AUTH": "235 welcome"}
        return usual.get(verb, "250 fine" if verb != "QUIT" else "221 bye")


@contextmanager
def mail(kind: type[Mail] = Mail, **how: Any) -> Iterator[Mail]:
    told = kind(**how)
    loop = asyncio.new_event_loop()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(told.talk, "127.0.0.1", 0, ssl=told.tls if told.tls_first else None)

    server = loop.run_until_complete(start())
    told.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield told
    finally:
        loop.call_soon_threadsafe(_end, loop, server)
        thread.join()
        loop.close()


def _end(loop: asyncio.AbstractEventLoop, server: asyncio.Server) -> None:
    server.close()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.call_later(0.05, loop.stop)  # connections are closed in turns of the loop
