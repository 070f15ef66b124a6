"""A job's way from the plan to the database, over HTTP and on PostgreSQL: the node has its own folder and no suite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from perfci import artifact, grants, handover, measure, node
from perfci.bench import source
from perfci.handover import Refused
from perfci.store import reads
from perfci.store.engine import connect
from tests.bench.repositories import Repository
from tests.nightly.place import BENCHMARK, OTHER, quiet, wait_for
from tests.serve.place import ROOT, Served, a_result_run, put

SUITE = """
[suite.toy]
repo = "repo"
paths = ["bench"]
run = "pytest bench"
runs = 2
"""
# The kernels' own suite is not asked for here.
TARGET = {"hardware": "", "queue": "", "executor": ""}


class Team(Served):
    """A control plane with a repository, and the folder of a node that knows neither."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, more=SUITE)
        self.repository = Repository(self.folder / "repo")
        self.repository.commit({"bench/test_toy.py": BENCHMARK, "secret.txt": "not the suite's"}, "Sum numbers")
        self.node = folder / "node"
        self.node.mkdir()
        (self.node / "perfci.toml").write_text("[service]\n")

    @property
    def node_config(self) -> str:
        return str(self.node / "perfci.toml")

    def planned(self, session: str = "night-1") -> dict[str, Any]:
        settings = self.settings
        suite = settings.suite("toy")
        mirror = source.mirror(settings.repository(suite), settings.cache)
        job = measure.new_job(
            *(suite, mirror, mirror.branch("main")[-1]), session=session, target=TARGET, first_index=0
        )
        return grants.granted(job, settings, now=datetime.now(UTC))

    def ingested(self) -> dict[str, Any]:
        """By the command, as on the control plane."""
        process = self.command((sys.executable, "-m", "perfci.cli", "ingest"))
        told: dict[str, Any] = json.loads(process.communicate(timeout=120)[0])
        return told

    def files(self) -> list[Path]:
        return sorted(self.settings.incoming.glob("*.perfci.json")) if self.settings.incoming.is_dir() else []


@pytest.fixture
def team(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    monkeypatch.setenv("PERFCI_DATABASE_URL", database_url)
    made = Team(tmp_path)
    made.start()
    yield made
    made.stop()


on_postgresql = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


@on_postgresql
def test_a_night_goes_from_the_plan_over_a_node_into_the_database(team: Team) -> None:
    job = team.planned()
    told: list[str] = []
    assert node.build(team.node_config, job, echo=told.append)["ok"]
    made = node.measure(team.node_config, job, echo=told.append)
    assert (made["suite"], made["session"], len(made["results"])) == ("toy", "night-1", 2)
    outcome = team.ingested()
    assert (outcome["stored"], outcome["refused"]) == (2, [])
    engine = connect(team.settings.database_url, read_only=True)
    runs = reads.runs(engine, suite="toy")
    engine.dispose()
    assert [(run.index, run.status, run.commit.position) for run in runs] == [(0, "ok", 1), (1, "ok", 1)]
    # Once more, as after a task whose success was not noted: nothing is measured, nothing is stored.
    assert node.measure(team.node_config, job, echo=told.append)["results"] == []
    assert "2 of 2 results were delivered before" in told
    assert team.ingested()["stored"] == 0
    # The node has seen the suite's files, and nothing of its token is in what it said or left.
    assert not list(team.node.rglob("secret.txt"))
    assert list(team.settings.incoming.iterdir()) == []
    assert list((team.node / ".perfci" / "outgoing").iterdir()) == []
    assert job["token"] not in "\n".join(told)


@on_postgresql
def test_a_node_that_takes_a_job_over_measures_what_is_missing(team: Team) -> None:
    job = team.planned()
    first = team.node / "first"
    told = measure.measure(str(team.config), {**job, "runs": 1}, out=first, echo=quiet)
    with team.client(job["token"]) as client:
        assert put(client, Path(told[0]).read_bytes()).status_code == 201
    made = node.measure(team.node_config, job, echo=quiet)
    assert len(made["results"]) == 1
    assert [artifact.read(path).run.index for path in team.files()] == [0, 1]


@on_postgresql
def test_a_node_that_was_killed_delivers_what_it_had_and_measures_the_rest(team: Team) -> None:
    (team.repository.folder / "bench" / "test_toy.py").write_text(BENCHMARK)
    job = team.planned()
    code = "import json, sys; from perfci import node; node.measure(sys.argv[1], json.loads(sys.argv[2]))"
    child = subprocess.Popen(
        [sys.executable, "-c", code, team.node_config, json.dumps(job)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
    )
    outgoing = team.node / ".perfci" / "outgoing"
    wait_for(lambda: bool(list(outgoing.glob("*/*.perfci.json"))), seconds=120)
    child.kill()
    child.wait()
    measured = {mark(path) for path in (*outgoing.glob("*/[!.]*.perfci.json"), *team.files())}
    node.measure(team.node_config, job, echo=quiet)
    assert [artifact.read(path).run.index for path in team.files()] == [0, 1]
    assert measured <= {mark(path) for path in team.files()}


def mark(path: Path) -> str:
    """The beginning of its hash, which both sides put into a result's name."""
    return path.name.rpartition("-")[2][:16]


@pytest.mark.faults
@on_postgresql
def test_a_server_that_is_away_while_a_node_measures_gets_the_results_when_it_is_back(team: Team) -> None:
    job = team.planned()
    node.build(team.node_config, job, echo=quiet)
    team.stop()
    told: list[str] = []

    def echo(line: str) -> None:
        told.append(line)
        if "trying again" in line and team.process is None and "process 2 of 2" in "".join(told):
            team.start()
            time.sleep(0.1)

    made = node.measure(team.node_config, job, echo=echo)
    assert len(made["results"]) == len(team.files()) == 2


@on_postgresql
def test_a_job_whose_token_has_ended_is_not_measured_and_what_waits_of_it_is_set_aside(team: Team) -> None:
    job = team.planned()
    job["token"] = team.token(job, now=datetime.now(UTC) - timedelta(days=3))
    told: list[str] = []
    for step in (node.build, node.measure):
        with pytest.raises(Refused, match="ended at"):
            step(team.node_config, job, echo=told.append)
    assert told == []
    with handover.parcel(team.node / ".perfci" / "outgoing", job) as parcel:
        artifact.write(a_result_run(job), parcel.folder)
    with pytest.raises(Refused, match="ended at"):
        node.measure(team.node_config, job, echo=told.append)
    (aside,) = (team.node / ".perfci" / "outgoing").glob("*/refused/*.perfci.json")
    assert told[0].endswith(f"kept at {aside}")


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_without_a_server_results_go_into_the_folder(team: Team) -> None:
    """And a suite that perfci.toml has since changed is measured as it was planned."""
    job = {name: value for name, value in team.planned().items() if name not in ("server", "token", "bundle")}
    team.repository.commit({"bench/test_toy.py": OTHER}, "Join strings")
    team.config.write_text(team.config.read_text().replace("pytest bench", "false"))
    assert node.build(str(team.config), job, echo=quiet)["ok"]
    made = node.measure(str(team.config), job, echo=quiet)
    assert sorted(made["results"]) == [path.name for path in team.files()]
    assert len(made["results"]) == 2
