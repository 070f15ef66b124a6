from __future__ import annotations

from pathlib import Path

from perfci import queues
from perfci.config import HardwareRule, Service, Settings, Suite
from perfci.queues import Place

H200 = HardwareRule("h200", queue="h200", slots=8)
EDGE = "EdgeExecutor"


def settings(*suites: Suite, hardware: tuple[HardwareRule, ...] = (H200,), runner: str = "") -> Settings:
    return Settings(
        Path("/"),
        {suite.name: suite for suite in suites},
        {rule.name: rule for rule in hardware},
        Service(executor=EDGE, runner=runner),
    )


def suite(name: str, devices: int) -> Suite:
    return Suite(name, repo=".", run="pytest", devices=devices)


def test_there_is_a_place_for_each_size_that_a_suite_needs() -> None:
    places = queues.places(settings(suite("a", 1), suite("b", 4), suite("c", 4)))
    assert places == (Place("", 1, EDGE), Place("h200", 1, EDGE), Place("h200", 4, EDGE))
    assert [place.name for place in places] == ["device", "h200", "h200-x4"]


def test_a_node_has_the_same_places_as_far_as_its_devices_go_whatever_suites_it_has() -> None:
    box = HardwareRule("h200", queue="h200", slots=2)
    for node in (settings(hardware=(box,)), settings(suite("own", 1), hardware=(box,), runner="/opt/python")):
        assert [place.name for place in queues.places(node)] == ["device", "h200", "h200-x2"]


def test_every_job_waits_in_one_place() -> None:
    team = settings(suite("a", 1), suite("b", 4))
    jobs = [{"queue": queue, "devices": n} for queue, n in (("h200", 1), ("h200", 4), ("", 1), ("", 4))]
    waiting = [queues.waiting(jobs, place.queue, place.devices) for place in queues.places(team)]
    assert waiting == [jobs[2:], jobs[:1], jobs[1:2]]


def test_a_pool_is_as_large_as_all_hardware_of_its_queue() -> None:
    low = HardwareRule("h200-low", queue="h200", slots=2)
    assert queues.slots(settings(hardware=(H200, low, HardwareRule("other")))) == {"device": 1, "h200": 10}
