"""A control plane with a small suite, and nodes that measure it as the DAG has them do, without Airflow between."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfci.store.rows import RunRow
from tests.bench.repositories import Repository
from tests.faults.deployment import Deployment

# Each process of it takes a moment, so that there is a middle to be killed in.
BENCHMARK = """
import time

def test_sum(benchmark):
    time.sleep({seconds})
    benchmark.pedantic(sum, args=(range(1000),), rounds=5, iterations=20)
"""
SUITE = """
[suite.toy]
repo = "repo"
paths = ["bench"]
run = "pytest bench"
runs = 3
"""
_STEPS = """
import json, sys
from perfci import node
config_path, job = sys.argv[1], json.loads(open(sys.argv[2]).read())
node.build(config_path, job)
print(json.dumps(node.measure(config_path, job)))
"""


def control_plane(folder: Path, url: str, *, seconds: float = 0.0) -> Deployment:
    folder.mkdir()
    repository = Repository(folder / "repo")
    repository.commit({"bench/test_sum.py": BENCHMARK.format(seconds=seconds)})
    return Deployment(folder, url, settings=SUITE)


def planned(place: Deployment, *, server: str = "") -> dict[str, Any]:
    """The one job of a night, granted. server: where the node finds the control plane, if not where it is."""
    plan = place.perfci("plan")
    assert plan.returncode == 0, plan.stderr
    [job] = json.loads(plan.stdout)["jobs"]
    return {**job, "server": server or place.server}


class Node:
    """A box in a folder of its own, which knows no suite and no database."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.folder = name, folder / name
        self.folder.mkdir()
        self._place = Deployment(self.folder, "")
        (self.folder / "perfci.toml").write_text("")

    def start(self, job: Mapping[str, Any], **environment: str) -> subprocess.Popen[bytes]:
        """Build, measure and hand over, as a process of its own."""
        path = self.folder / "job.json"
        path.write_text(json.dumps(job))
        (self.folder / "steps.py").write_text(_STEPS)
        return self._place.start("steps", self._place.config_path, str(path), PERFCI_NODE=self.name, **environment)

    def waiting(self) -> list[Path]:
        """Results that are not handed over."""
        return sorted(self._place.settings.outgoing.glob("*/*.perfci.json"))

    def logs(self) -> str:
        return self._place.logs()


def indexes(runs: tuple[RunRow, ...]) -> list[tuple[int, str]]:
    """Which process each is of, and how it ended."""
    return sorted((run.index, run.status.value) for run in runs)
