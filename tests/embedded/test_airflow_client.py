"""The client against servers that are absent, broken or unwilling; against a real Airflow in test_service.py."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from perfci.airflow import Airflow, Worker
from perfci.embedded import ports
from perfci.errors import ServiceError


class Answers(BaseHTTPRequestHandler):
    """Gives a token to everybody, and to each path what the test wants to see."""

    wanted: ClassVar[dict[str, tuple[int, object]]] = {}
    asked: ClassVar[list[str]] = []
    stumbles: ClassVar[int] = 0

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.asked.append(self.path.split("?")[0])
        code, body = self.wanted.get(self.path.split("?")[0], (404, {"detail": "not found"}))
        if Answers.stumbles and not self.path.startswith("/auth"):
            Answers.stumbles -= 1
            code = 503
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/html" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_PATCH = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    Answers.wanted = {"/auth/token": (201, {"access_token": "x"})}
    Answers.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_server_that_is_not_there_is_told_with_its_address() -> None:
    url = f"http://127.0.0.1:{ports.free()}"
    with Airflow(url, user="a", password="b") as airflow:
        assert not airflow.alive()
        with pytest.raises(ServiceError, match=rf"{url}/auth/token does not answer .*; is Airflow running there\?"):
            airflow.dag_run("nightly", "x")


def test_a_wrong_password_is_told(url: str) -> None:
    Answers.wanted["/auth/token"] = (401, {"detail": "Invalid credentials"})
    expected = "401 Invalid credentials; check the user and the password"
    with Airflow(url, user="a", password="b") as airflow, pytest.raises(ServiceError, match=expected):
        airflow.dag_run("nightly", "x")


def test_a_server_that_stumbles_once_is_asked_again(url: str) -> None:
    run = {"dag_run_id": "x", "state": "running"}
    Answers.wanted["/api/v2/dags/nightly/dagRuns/x"] = (200, run)
    Answers.stumbles = 2
    with Airflow(url, user="a", password="b") as airflow:
        assert airflow.dag_run("nightly", "x").state == "running"
    assert Answers.stumbles == 0


def test_a_new_run_is_asked_for_once_only(url: str) -> None:
    Answers.wanted["/api/v2/dags/nightly/dagRuns"] = (500, "database is locked")
    with Airflow(url, user="a", password="b") as airflow, pytest.raises(ServiceError, match="database is locked"):
        airflow.trigger("nightly", conf={})
    assert Answers.asked.count("/api/v2/dags/nightly/dagRuns") == 1


def test_a_broken_server_is_told_in_one_line(url: str) -> None:
    Answers.wanted["/api/v2/dags/nightly/dagRuns/x"] = (500, "Internal\nServer\nError")
    with Airflow(url, user="a", password="b") as airflow, pytest.raises(ServiceError) as caught:
        airflow.dag_run("nightly", "x")
    assert "500 Internal Server Error; read the API server's log" in str(caught.value)


def test_a_conf_that_the_dag_does_not_take_is_told_with_the_reason(url: str) -> None:
    Answers.wanted["/api/v2/dags/nightly/dagRuns"] = (400, {"detail": "Invalid input for param last: 0 is less than 1"})
    with Airflow(url, user="a", password="b") as airflow, pytest.raises(ServiceError, match="0 is less than 1"):
        airflow.trigger("nightly", conf={"last": 0})


def test_a_dag_file_that_cannot_be_imported_is_told_with_its_last_line(url: str) -> None:
    stack = "Traceback (most recent call last):\nSettingsError: service.schedule = 'x'; use cron\n"
    error = {"filename": "dags/nightly.py", "stack_trace": stack, "timestamp": "2026-12-01T02:00:00Z"}
    Answers.wanted["/api/v2/importErrors"] = (200, {"import_errors": [error]})
    with Airflow(url, user="a", password="b") as airflow, pytest.raises(ServiceError, match=r"nightly\.py .* use cron"):
        airflow.has_dag("nightly")


def test_an_import_error_of_another_dag_is_no_obstacle(url: str) -> None:
    error = {"filename": "dags/other.py", "stack_trace": "x", "timestamp": "2026-12-01T02:00:00Z"}
    Answers.wanted["/api/v2/importErrors"] = (200, {"import_errors": [error]})
    with Airflow(url, user="a", password="b") as airflow:
        assert not airflow.has_dag("nightly")


def test_nodes_are_told_with_their_queues_and_whether_they_work(url: str) -> None:
    rows = [
        {"worker_name": "a", "state": "idle", "queues": ["h200"], "last_heartbeat": "2026-12-01T02:00:00Z"},
        {"worker_name": "b", "state": "unknown", "queues": None, "last_heartbeat": None},
    ]
    Answers.wanted["/edge_worker/ui/worker"] = (200, {"workers": rows, "total_entries": 2})
    with Airflow(url, user="a", password="b") as airflow:
        first, second = airflow.workers()
    assert first == Worker("a", "idle", ("h200",), datetime(2026, 12, 1, 2, tzinfo=UTC))
    assert (first.alive, second.alive, second.queues) == (True, False, ())


@pytest.mark.parametrize("answer", [(404, {"detail": "not found"}), (200, "<html>the pages of Airflow</html>")])
def test_an_airflow_without_nodes_has_none(url: str, answer: tuple[int, object]) -> None:
    Answers.wanted["/edge_worker/ui/worker"] = answer
    with Airflow(url, user="a", password="b") as airflow:
        assert airflow.workers() == ()
