"""The control plane loses parts of itself while a node measures: they come back, the night completes, nothing twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from perfci.airflow import DagRun
from perfci.runner import installed, keys
from tests.team.place import Command, Node, Team, team, until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.airflow, pytest.mark.timeout(1200)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Team]:
    with team(tmp_path) as place:
        place.repository(sleep_s=20)
        yield place


def measuring(place: Team) -> tuple[Command, DagRun, Command]:
    """The service, the run, and `perfci nightly`, which follows it."""
    service = place.control.start()
    place.node("gpu-a").start()
    night = place.control.begin("nightly")
    night.wait_for("plan: running")
    with place.control.airflow() as airflow:
        (run,) = airflow.unfinished("nightly")
    place.control.wait_for_task(run, "cpubox.measure[0]", "running")
    return service, run, night


def assert_complete(place: Team, run: DagRun) -> None:
    assert place.control.wait_for_end(run, limit_s=900) == "success", place.control.logs()
    assert [r.index for r in place.control.runs()] == [0, 1]


@pytest.mark.parametrize("component", ["scheduler", "api-server", "dag-processor", "serve"])
def test_a_killed_component_comes_back_and_the_night_completes(place: Team, component: str) -> None:
    service, run, night = measuring(place)
    before = place.control.component(component)
    before.kill()
    service.wait_for(f"{component}: started again")
    assert_complete(place, run)
    assert night.process.wait(60) == 0, night.output()
    assert place.control.component(component) != before


def test_the_whole_service_is_killed_and_started_again_and_the_night_goes_on(place: Team) -> None:
    service, run, night = measuring(place)
    service.kill()
    assert night.process.wait(60) == 2
    assert "has ended meanwhile" in night.output()
    place.control.start()
    assert_complete(place, run)


def test_postgresql_is_down_for_two_minutes(place: Team) -> None:
    service, run, night = measuring(place)
    with place.without_database():
        time.sleep(120)
    until(lambda: service.process.poll() is None and place.control.state(run), "an answer of Airflow", service.output)
    assert_complete(place, run)
    assert service.process.poll() is None, service.output()
    assert night.process.wait(60) == 0, night.output()


def test_a_job_that_is_lost_on_its_way_to_the_node_is_given_out_again(place: Team) -> None:
    service = place.control.start()
    settings = place.control.settings.state / "airflow" / "airflow.cfg"
    half_an_hour = "task_queued_timeout = 1800"
    assert half_an_hour in settings.read_text()
    soon = "task_queued_timeout = 20\ntask_queued_timeout_check_interval = 10"
    settings.write_text(settings.read_text().replace(half_an_hour, soon))
    place.control.component("scheduler").kill()
    service.wait_for("scheduler: started again")
    node = place.node("gpu-a")
    node.start()
    node.worker().suspend()
    run = place.control.trigger()
    place.control.wait_for_task(run, "cpubox.build[0]", "queued")
    assert fetched(node)["task_id"] == "cpubox.build"
    assert fetched(node) is None
    node.worker().resume()
    assert_complete(place, run)


def fetched(node: Node) -> dict[str, object] | None:
    """What its worker would have been given, had the answer not been lost."""
    where = f"jobs/fetch/{node.name}"
    key = installed.key_file(node.settings).read_bytes()
    token = keys.sign(key, kid=node.name, place=where, now=datetime.now(UTC), lifetime_s=30)
    answer = httpx.post(
        f"{node.control.airflow_url}/edge_worker/v1/{where}",
        headers={"Authorization": token},
        json={"queues": [node.identity.queue], "free_concurrency": 1, "supports_task_instance_uuid": True},
        trust_env=False,
    )
    return answer.raise_for_status().json()
