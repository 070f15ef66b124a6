"""As much of Airflow's API as tells which edge workers there are."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PASSWORD = "kept-secret"


def a_worker(name: str, state: str, queues: Sequence[str] | None, seen_at: datetime | None) -> dict[str, Any]:
    """A row as the edge provider 5.1 gives it."""
    return {
        "worker_name": name,
        "queues": None if queues is None else list(queues),
        "state": state,
        "jobs_active": 0,
        "sysinfo": {},
        "maintenance_comments": None,
        "first_online": None,
        "last_heartbeat": seen_at.isoformat() if seen_at else None,
    }


@contextmanager
def serving(workers: Sequence[dict[str, Any]]) -> Iterator[int]:
    """On a loopback port, which is what the block gets."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            fine = self.path == "/auth/token" and asked["password"] == PASSWORD
            self._answer(201 if fine else 401, {"access_token": "token-of-the-test"})

        def do_GET(self) -> None:
            signed_in = self.headers.get("Authorization") == "Bearer token-of-the-test"
            known = self.path.partition("?")[0] == "/edge_worker/ui/worker"
            code = 200 if known and signed_in else 404 if signed_in else 401
            self._answer(code, {"workers": list(workers), "total_entries": len(workers)})

        def _answer(self, code: int, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def password(state: Path) -> None:
    """Where the embedded Airflow keeps it."""
    (state / "airflow").mkdir(parents=True, exist_ok=True)
    (state / "airflow" / "password.json").write_text(json.dumps({"admin": PASSWORD}), "utf-8")
