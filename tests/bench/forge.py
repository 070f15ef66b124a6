"""A forge on loopback that gives repositories to those who have its token: git's own server program over HTTP."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Forge:
    """folder: below which its repositories lie. asked: the `Authorization` of each request; empty: none."""

    folder: Path
    token: str
    url: str = ""
    asked: list[str] = field(default_factory=list)


@contextmanager
def serving(folder: Path, token: str) -> Iterator[Forge]:
    """token: empty to let everybody in."""
    forge = Forge(folder, token)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["Content-Length"])))

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, body: bytes) -> None:
            said = self.headers.get("Authorization", "")
            forge.asked.append(said)
            _, _, code = said.partition("Basic ")
            if forge.token and base64.b64decode(code).partition(b":")[2] != forge.token.encode():
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="forge"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            path, _, query = self.path.partition("?")
            environment = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(forge.folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
            }
            done = subprocess.run(
                ["git", "http-backend"], input=body, env=environment, capture_output=True, check=False
            )
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
            self.send_response(int(fields.pop("Status", "200").split()[0]))
            for name, value in (fields | {"Content-Length": str(len(content))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        forge.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield forge
        finally:
            server.shutdown()
            thread.join()
