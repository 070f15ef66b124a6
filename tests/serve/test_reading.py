"""What is stored, as other programs read it: the same on both databases, and while the database is away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from perfci import __version__
from perfci.store.engine import connect
from perfci.store.writes import ingest, raise_alerts
from tests.build import a_commit, a_measurement, a_run, an_artifact
from tests.serve.place import Served


@pytest.fixture
def reader(tmp_path: Path, database_url: str) -> Iterator[httpx.Client]:
    """Two nights of two series, on SQLite and on PostgreSQL."""
    from perfci.model import ChangeKind
    from perfci.store.rows import NewAlert

    engine = connect(database_url)
    for position in (1, 2):
        both = (a_measurement("torch-eager"), a_measurement("triton"))
        run = a_run(both, commit=a_commit(position), session=f"night-{position}")
        ingest(engine, an_artifact(run), path=f"artifacts/{position}")
    raise_alerts(engine, [NewAlert(1, a_commit(2).sha, ChangeKind.REGRESSION, 1.1, 1.05, 1.2, {"found": True})])
    engine.dispose()
    served = Served(tmp_path)
    served.start(PERFCI_DATABASE_URL=database_url)
    with served.client("") as client:
        yield client
    served.stop()


def test_other_programs_read_what_is_stored(reader: httpx.Client) -> None:
    def read(path: str) -> Any:
        answer = reader.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    results = read("/v1/results")
    assert [(row["implementation"], row["commit"], row["status"]) for row in results] == [
        ("torch-eager", a_commit(2).sha, "ok"),
        ("triton", a_commit(2).sha, "ok"),
    ]
    assert read("/v1/results?suite=other") == read("/v1/series?hardware=other") == []
    series = read("/v1/series?suite=kernels")
    assert [row["implementation"] for row in series] == ["torch-eager", "triton"]
    points = read(f"/v1/series/{series[0]['series']}/points")
    assert [point["commit"]["position"] for point in points] == [1, 2]
    assert read(f"/v1/series/{series[0]['series']}/points?last=1") == points[-1:]
    (alert,) = read("/v1/alerts")
    assert (alert["kind"], alert["state"], alert["series"]["implementation"]) == ("regression", "new", "torch-eager")
    night = read("/v1/sessions/night-1")
    assert [(p["implementation"], p["commit"]["position"]) for p in night["points"]] == [
        ("torch-eager", 1),
        ("triton", 1),
    ]
    assert read("/health") == {"status": "ok", "version": __version__, "database": "ok"}
    assert "perfci_build_info" in reader.get("/metrics").text
    for path, status in (
        ("/v1/series/999/points", 404),
        (f"/v1/series/{10**30}/points", 404),
        ("/v1/series/x/points", 404),
        (f"/v1/series/{series[0]['series']}/points?last=-1", 400),
        ("/v1/sessions/none", 404),
        ("/v1/sessions/%00", 404),
        ("/v1/series?suite=%00", 400),
        ("/", 404),
        ("/docs", 404),
    ):
        answer = reader.get(path)
        assert (path, answer.status_code, sorted(answer.json())) == (path, status, ["error", "next_step"])
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert reader.request(method, "/v1/alerts").status_code == 405
    through_a_proxy = {"X-Forwarded-For": "192.0.2.7"}
    for path in ("/v1/results", "/v1/series", "/v1/alerts", "/v1/sessions/night-1", "/metrics"):
        assert reader.get(path, headers=through_a_proxy).status_code == 401
    assert reader.get("/health", headers=through_a_proxy).status_code == 200


def test_results_are_taken_while_the_database_is_away(served: Served) -> None:
    from tests.serve.place import a_result, put

    served.start()
    (served.settings.state / "perfci.db").rename(served.folder / "away.db")
    job = served.job()
    with served.client(job["token"]) as client:
        assert put(client, a_result(job)).status_code == 201
    with served.client("") as client:
        assert client.get("/health").json()["database"] == "unusable"
        answer = client.get("/v1/results")
        assert (answer.status_code, sorted(answer.json())) == (503, ["error", "next_step"])
        (served.folder / "away.db").rename(served.settings.state / "perfci.db")
        assert client.get("/v1/results").json() == []


def test_what_the_server_says_of_itself_has_no_secret(served: Served) -> None:
    from tests.serve.place import a_result, put

    served.start(PERFCI_LOG="json")
    job = served.job()
    with served.client(job["token"]) as client:
        put(client, a_result(job))
        put(client, b"{}")
        client.get("/v1/results")
    lines = [json.loads(line) for line in served.stop().splitlines()]
    events = [line["event"] for line in lines]
    assert {"listening", "delivered", "refused"} <= set(events)
    told = next(line for line in lines if line["event"] == "delivered")
    assert (told["session"], told["suite"]) == (job["session"], "kernels")
    assert job["token"] not in json.dumps(lines)
