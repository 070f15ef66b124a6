"""`perfci up` and what is asked of it: ports, a night in its Airflow, two nights at once, a broken job, the end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from perfci.airflow import Airflow
from perfci.embedded import home as homes
from perfci.embedded.home import USER
from perfci.supervisor import marked
from tests.embedded.nights import LIMIT_S, ROOT, Command, Place, listening

pytestmark = [pytest.mark.slow, pytest.mark.airflow, pytest.mark.timeout(900)]

# The first suite's command takes the second one's repository and its mirror away: the second job cannot be done.
SETTINGS = """
[suite.spoiler]
repo = "spoiler"
paths = ["bench"]
run = "sh -c 'rm -rf {folder}/victim {folder}/.perfci/cache/repositories/*victim*; exec pytest bench'"
runs = 1
[suite.victim]
repo = "victim"
paths = ["bench"]
run = "pytest bench"
runs = 1
[service]
airflow_port = 0
dashboard_port = 0
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("service")
    place = Place(folder, SETTINGS.replace("{folder}", str(folder)))
    place.repository("spoiler", sleep_s=2)
    place.repository("victim")
    return place


@pytest.fixture(scope="module")
def service(place: Place) -> Iterator[Command]:
    with place.started("up") as service:
        service.wait_for("Ctrl-C stops everything")
        yield service


def urls(service: Command) -> dict[str, str]:
    return dict(re.findall(r"(Airflow|Dashboard) +(http://127\.0\.0\.1:\d+)", service.output()))


def test_a_port_in_use_is_told_with_its_number_before_anything_starts(place: Place) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        other = Place(place.folder / "other" if (place.folder / "other").mkdir() is None else place.folder, "")
        (other.folder / "perfci.toml").write_text(
            f'[suite.x]\nrepo = "."\nrun = "x"\n[service]\nairflow_port = {port}\n'
        )
        done = other.perfci("up", "--no-dashboard")
    assert done.returncode == 2
    assert f"port {port} is in use" in done.stdout
    assert "service.airflow_port" in done.stdout
    assert len(done.stdout.strip().splitlines()) == 1


def test_the_dashboard_alone_needs_no_airflow_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    alone = Place(tmp_path, '[suite.x]\nrepo = "."\nrun = "x"\n[service]\ndashboard_port = 0\n')
    with alone.started("up", "--no-airflow") as service:
        service.wait_for("Ctrl-C stops everything")
        assert sorted(urls(service)) == ["Dashboard"]
        assert httpx.get(urls(service)["Dashboard"], trust_env=False).is_success
        below = psutil.Process(service.process.pid).children(recursive=True)
        service.process.send_signal(signal.SIGINT)
        assert service.process.wait(60) == 0
    assert not [process for process in below if process.is_running()]
    assert not (alone.settings.state / "airflow").exists()


def test_the_service_ends_when_the_make_that_started_it_is_killed(tmp_path: Path) -> None:
    alone = Place(tmp_path, '[suite.x]\nrepo = "."\nrun = "x"\n[service]\ndashboard_port = 0\n')
    (tmp_path / "Makefile").write_text(f"up:\n\t@exec '{sys.executable}' -m perfci.cli up --no-airflow >up.log 2>&1\n")
    environment = {k: v for k, v in os.environ.items() if k != "MAKELEVEL"} | {"PYTHONPATH": str(ROOT)}
    make = subprocess.Popen(["make", "up"], cwd=alone.folder, env=environment, stdin=subprocess.DEVNULL)
    command = Command(make, tmp_path / "up.log")
    command.wait_for(lambda: command.log.exists() and "Ctrl-C stops everything" in command.output())
    command.kill()  # make alone; fails when something below it lives on
    assert command.output().endswith("stopping\n")


def test_the_service_answers_on_loopback_alone(place: Place, service: Command) -> None:
    assert sorted(urls(service)) == ["Airflow", "Dashboard"]
    for url in urls(service).values():
        assert httpx.get(url, trust_env=False, follow_redirects=True).is_success
    assert listening(homes.of(place.settings).mark) == {"127.0.0.1"}
    assert str(homes.of(place.settings).password_file) in service.output()


def test_without_an_executor_for_nodes_there_are_none(place: Place, service: Command) -> None:
    with Airflow(urls(service)["Airflow"], user=USER, password=homes.of(place.settings).password()) as airflow:
        assert airflow.workers() == ()


def test_a_night_uses_its_airflow_and_a_broken_job_spoils_no_other(place: Place, service: Command) -> None:
    with place.started("nightly") as night:
        night.wait_for("process 1 of 1")
        second = place.perfci("nightly")
        night.process.wait(LIMIT_S)
    assert second.returncode == 2
    assert re.search(rf"perfci nightly \(process {night.process.pid}, since .*\) is at work", second.stdout)
    output = night.output()
    assert night.process.returncode == 2, output
    assert "using the Airflow of perfci up" in output
    assert re.search(r"(build|measure) victim [0-9a-f]{9}: failed", output)
    assert "detect: done" in output
    assert len(place.stored()) == 1
    assert place.files("incoming") == []


def test_one_sigterm_stops_all_of_it(place: Place, service: Command) -> None:
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(60) == 0
    assert marked(homes.of(place.settings).mark) == []
    for url in urls(service).values():
        with pytest.raises(httpx.ConnectError):
            httpx.get(url, trust_env=False)
