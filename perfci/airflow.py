"""A client of Airflow's REST API, version 2: as much of it as perfci needs.

Errors are ServiceError with the address that was asked.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import httpx

from perfci.errors import ServiceError

# A page of Airflow's lists is 100 rows long, whatever is asked for.
_PAGE = 100
# A busy machine or a locked SQLite file passes; asking twice is harmless, except for a new run.
_ATTEMPTS = 4
_PAUSE_S = 0.5
# States of the edge provider; one that was not heard of for five heartbeats becomes "unknown".
_LIVE = ("starting", "running", "idle")


@dataclass(frozen=True, slots=True)
class TaskInstance:
    """map_index: -1 for a task that is not mapped. state: "" while Airflow has not looked at it."""

    task: str
    map_index: int
    label: str
    state: str
    attempt: int
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class DagRun:
    id: str
    state: str

    @property
    def finished(self) -> bool:
        return self.state in ("success", "failed")


@dataclass(frozen=True, slots=True)
class Worker:
    """A node's edge worker as Airflow knows it; seen_at: when it was heard of last."""

    name: str
    state: str
    queues: tuple[str, ...]
    seen_at: datetime | None

    @property
    def alive(self) -> bool:
        """It takes jobs, or would when it has finished those that it has."""
        return self.state in _LIVE


class Airflow:
    """A session with the server at `url`, signed in when the first call needs it."""

    def __init__(self, url: str, *, user: str, password: str) -> None:
        self.url = url.rstrip("/")
        self._user, self._password = user, password
        # A proxy of the environment has no business between two processes of one machine.
        self._http = httpx.Client(base_url=self.url, timeout=30.0, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._http.close()

    def alive(self) -> bool:
        """The server answers; says nothing about the scheduler."""
        try:
            return self._http.get("/api/v2/version", timeout=5.0).is_success
        except httpx.HTTPError:
            return False

    def health(self) -> Mapping[str, str]:
        """The state of each component ("healthy", "unhealthy", or "" for one that never was)."""
        body = self._call("GET", "/monitor/health")
        return {name: part.get("status") or "" for name, part in body.items() if isinstance(part, dict)}

    def has_dag(self, dag: str, *, since: datetime | None = None) -> bool:
        """The DAG was read, after `since`. Raises ServiceError when its file, `<dag>.py`, could not be imported."""
        row = self._call("GET", f"/dags/{dag}", absent_is_none=True)
        if row is not None and _is_after(row["last_parsed_time"], since):
            return True
        for problem in self._call("GET", "/importErrors")["import_errors"]:
            if problem["filename"].endswith(f"{dag}.py") and _is_after(problem["timestamp"], since):
                last = str(problem["stack_trace"]).strip().splitlines()[-1]
                raise ServiceError(f"{problem['filename']} cannot be imported: {last}", next_step="mend what it says")
        return False

    def unpause(self, dag: str) -> None:
        self._call("PATCH", f"/dags/{dag}", json={"is_paused": False})

    def set_pool(self, name: str, *, slots: int, description: str) -> None:
        body = {"name": name, "slots": slots, "description": description, "include_deferred": False}
        if self._call("PATCH", f"/pools/{name}", json=body, absent_is_none=True) is None:
            self._call("POST", "/pools", json=body)

    def workers(self) -> tuple[Worker, ...]:
        """The nodes that have ever signed in; none where Airflow has no edge provider, or does not use it."""
        answer = self._ask("GET", "/edge_worker/ui/worker", absent_is_fine=True)
        # Without the provider Airflow answers every address with its pages.
        if not answer.headers.get("content-type", "").startswith("application/json") or not answer.is_success:
            return ()
        return tuple(
            Worker(row["worker_name"], row["state"] or "", tuple(row["queues"] or ()), _time(row["last_heartbeat"]))
            for row in answer.json()["workers"]
        )

    def trigger(self, dag: str, *, conf: Mapping[str, object], note: str = "") -> DagRun:
        """A new run. Raises ServiceError when Airflow refuses `conf` against the DAG's params."""
        body = {"logical_date": None, "conf": dict(conf), "note": note or None}
        return _dag_run(self._call("POST", f"/dags/{dag}/dagRuns", json=body))

    def dag_run(self, dag: str, run: str) -> DagRun:
        return _dag_run(self._call("GET", f"/dags/{dag}/dagRuns/{run}"))

    def unfinished(self, dag: str) -> tuple[DagRun, ...]:
        """Runs that are running or wait to be."""
        query = {"state": ["running", "queued"], "limit": _PAGE}
        rows = self._call("GET", f"/dags/{dag}/dagRuns", params=query)["dag_runs"]
        return tuple(_dag_run(row) for row in rows)

    def fail(self, dag: str, run: str) -> None:
        """End a run now; its tasks are stopped."""
        self._call("PATCH", f"/dags/{dag}/dagRuns/{run}", json={"state": "failed"})

    def task_instances(self, dag: str, run: str) -> tuple[TaskInstance, ...]:
        found: list[TaskInstance] = []
        while True:
            query = {"limit": _PAGE, "offset": len(found), "order_by": ["start_date", "id"]}
            page = self._call("GET", f"/dags/{dag}/dagRuns/{run}/taskInstances", params=query)
            found += [_task_instance(row) for row in page["task_instances"]]
            if len(found) >= page["total_entries"] or not page["task_instances"]:
                return tuple(found)

    def fail_task(self, dag: str, run: str, task: TaskInstance) -> None:
        """End a task for good; it is not tried again."""
        path = f"/dags/{dag}/dagRuns/{run}/taskInstances/{task.task}"
        place = path if task.map_index < 0 else f"{path}/{task.map_index}"
        self._call("PATCH", place, json={"new_state": "failed"})

    def result(self, dag: str, run: str, task: str) -> object:
        """What a task that is not mapped has returned; None when it has not."""
        path = f"/dags/{dag}/dagRuns/{run}/taskInstances/{task}/xcomEntries/return_value"
        body = self._call("GET", path, params={"stringify": False}, absent_is_none=True)
        return None if body is None else body["value"]

    def log(self, dag: str, run: str, task: TaskInstance) -> tuple[str, ...]:
        """The lines of a task's last attempt; empty when there is no log."""
        path = f"/dags/{dag}/dagRuns/{run}/taskInstances/{task.task}/logs/{max(1, task.attempt)}"
        query = {"map_index": task.map_index, "full_content": True}
        body = self._call("GET", path, params=query, absent_is_none=True)
        entries = [] if body is None else body["content"]
        return tuple(line for entry in entries for line in _lines(entry) if not line.startswith("::"))

    def _call(self, method: str, path: str, *, absent_is_none: bool = False, **options: Any) -> Any:
        answer = self._ask(method, f"/api/v2{path}", absent_is_fine=absent_is_none, **options)
        return None if answer.status_code == httpx.codes.NOT_FOUND else answer.json()

    def _ask(self, method: str, path: str, *, absent_is_fine: bool, **options: Any) -> httpx.Response:
        if "Authorization" not in self._http.headers:
            body = self._send("POST", "/auth/token", json={"username": self._user, "password": self._password}).json()
            self._http.headers["Authorization"] = f"Bearer {body['access_token']}"
        return self._send(method, path, absent_is_fine=absent_is_fine, **options)

    def _send(self, method: str, path: str, *, absent_is_fine: bool = False, **options: Any) -> httpx.Response:
        attempts = 1 if (method, path.rsplit("/", 1)[-1]) == ("POST", "dagRuns") else _ATTEMPTS
        while True:
            attempts -= 1
            try:
                answer = self._http.request(method, path, **options)
            except httpx.HTTPError as error:
                if attempts and isinstance(error, httpx.TimeoutException):
                    continue
                reason = str(error) or type(error).__name__
                raise ServiceError(
                    f"{self.url}{path} does not answer ({reason})", next_step="is Airflow running there?"
                ) from error
            if answer.is_success or (absent_is_fine and answer.status_code == httpx.codes.NOT_FOUND):
                return answer
            if not attempts or not answer.is_server_error:
                what = f"{method} {self.url}{path} was refused"
                raise ServiceError(f"{what}: {_reason(answer)}", next_step=_next_step(answer))
            time.sleep(_PAUSE_S)


def _reason(answer: httpx.Response) -> str:
    try:
        detail = answer.json().get("detail", answer.text)
    except (ValueError, AttributeError):
        detail = answer.text
    return f"{answer.status_code} {' '.join(str(detail).split())[:300]}"


def _next_step(answer: httpx.Response) -> str:
    if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        return "check the user and the password"
    if answer.is_server_error:
        return "read the API server's log"
    return "check what was asked for"


def _dag_run(row: Mapping[str, Any]) -> DagRun:
    return DagRun(id=row["dag_run_id"], state=row["state"] or "")


def _task_instance(row: Mapping[str, Any]) -> TaskInstance:
    label = row["rendered_map_index"] or ""
    return TaskInstance(
        task=row["task_id"],
        map_index=row["map_index"],
        label="" if label == str(row["map_index"]) else label,  # Airflow gives the number until there is a name
        state=row["state"] or "",
        attempt=row["try_number"],
        started_at=_time(row["start_date"]),
        finished_at=_time(row["end_date"]),
    )


def _lines(entry: Mapping[str, Any]) -> list[str]:
    """An entry of a structured log as a person reads it; of a traceback without the frames of Airflow itself."""
    lines = str(entry.get("event", "")).splitlines()
    for problem in entry.get("error_detail") or ():
        for frame in problem.get("frames") or ():
            if "/airflow/" not in frame["filename"]:
                lines.append(f'  File "{frame["filename"]}", line {frame["lineno"]}, in {frame["name"]}')
        lines.append(f"{problem['exc_type']}: {problem['exc_value']}")
    return lines


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _is_after(text: str | None, since: datetime | None) -> bool:
    found = _time(text)
    return found is not None and (since is None or found >= since)
