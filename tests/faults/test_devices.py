"""A device that is lost and a node that is replaced: neither is a change of the code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from perfci.store import reads
from perfci.store.engine import connect
from tests.bench.repositories import Repository
from tests.faults import results
from tests.faults.deployment import ROOT, Deployment

# A stand-in for NVIDIA's library: a box whose only GPU is there until somebody makes the file LOST.
STAND_IN = """
from pathlib import Path
from types import SimpleNamespace as N
LOST = Path({lost!r})
class NVMLError(Exception): pass
def _there():
    if LOST.exists(): raise NVMLError("GPU is lost")
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(index): _there(); return "handle"
def nvmlDeviceGetName(handle): _there(); return "NVIDIA H200"
def nvmlDeviceGetUUID(handle): _there(); return "GPU-0"
def nvmlDeviceGetComputeRunningProcesses(handle): _there(); return []
"""
BENCHMARK = """
import os
from pathlib import Path

def test_first(benchmark):
    benchmark.pedantic(sum, args=(range(100),), rounds=5, iterations=5)

def test_second(benchmark):
    if Path({breaks!r}).exists() and int(os.environ["PERFCI_INDEX"]) % 3 == 1:
        Path({lost!r}).touch()
        raise RuntimeError("CUDA error: the launch failed, GPU-0 has fallen off the bus")
    benchmark.pedantic(sum, args=(range(100),), rounds=5, iterations=5)
"""
SETTINGS = """
[suite.toy]
repo = "repo"
paths = ["bench", "pynvml.py"]
run = "pytest bench"
runs = 3
[hardware.h200]
match = "H200"
"""


class Box:
    def __init__(self, folder: Path) -> None:
        self.folder, self.lost, self.breaks = folder, folder / "lost", folder / "breaks"
        (folder / "perfci.toml").write_text(SETTINGS)
        stand_in = STAND_IN.format(lost=str(self.lost))
        (folder / "stand-in").mkdir()
        (folder / "stand-in" / "pynvml.py").write_text(stand_in)
        self.repository = Repository(folder / "repo")
        text = BENCHMARK.format(lost=str(self.lost), breaks=str(self.breaks))
        self.repository.commit({"bench/test_step.py": text, "pynvml.py": stand_in})

    def perfci(self, *words: str) -> subprocess.CompletedProcess[str]:
        own = {"PYTHONPATH": f"{self.folder / 'stand-in'}:{ROOT}"}
        return subprocess.run(
            [sys.executable, "-m", "perfci.cli", *words],
            cwd=self.folder,
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            check=False,
        )

    def night(self) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
        """Planned, measured, stored and judged; the plan, and how measuring went."""
        planned = self.perfci("plan")
        (self.folder / "plan.json").write_text(planned.stdout)
        measured = self.perfci("measure", "plan.json")
        assert self.perfci("ingest").returncode == 0
        plan = json.loads(planned.stdout)
        assert json.loads(self.perfci("detect", "--session", plan["session"]).stdout)["new_alerts"] == 0
        return plan, measured

    def runs(self) -> list[tuple[int, str, str]]:
        """Index, hardware and status."""
        engine = connect(f"sqlite:///{self.folder}/.perfci/perfci.db", read_only=True)
        found = [(run.index, run.hardware, run.status.value) for run in reads.runs(engine, suite="toy")]
        engine.dispose()
        return found


def test_a_gpu_that_falls_off_is_the_nodes_failure_and_no_result_of_the_commit(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.breaks.touch()
    _, measured = box.night()
    assert measured.returncode == 2
    told = measured.stderr.splitlines()[-1]
    assert "process 2 of 3: GPU-0 of h200 was lost while it ran" in told
    assert "look for Xid in the node's kernel log" in told
    assert box.runs() == [(0, "h200", "ok")]  # nothing from the CPU, and no error that the commit would be blamed for

    # Tried again while it is gone: said by name, and measured nowhere else.
    again = box.perfci("measure", "plan.json")
    assert again.returncode == 2
    assert "hardware 'h200' is asked for, and this node is cpu-" in again.stderr

    # The device is back: the rest of the job is measured, and nothing of it twice.
    box.breaks.unlink()
    box.lost.unlink()
    assert box.perfci("measure", "plan.json").returncode == 0
    assert box.perfci("ingest").returncode == 0
    assert {each[0] for each in box.runs()} == {0, 1, 2}
    assert {each[1:] for each in box.runs()} == {("h200", "ok")}


def _night_of(box: str, night: int, folder: Path, *, slower: float = 1.0) -> None:
    """The results of one node's night, as from the box of this name."""
    node = results.SimulatedNode(0, measurements=2, runs=2)
    for index, data in enumerate(node.results(night)):
        body = json.loads(data)
        body["run"]["node"] = {"name": box, "device_uuid": f"GPU-{box}"}
        for found in body["run"]["measurements"]:
            found["timing"]["samples"] = [sample * slower for sample in found["timing"]["samples"]]
        (folder / f"{night:03d}-{index}.perfci.json").write_text(json.dumps(body))


def test_a_node_replaced_by_another_of_its_hardware_goes_on_with_the_history(place: Deployment) -> None:
    place.settings.incoming.mkdir(parents=True)

    def stored_and_judged(night: int) -> int:
        assert place.perfci("ingest").returncode == 0
        done = place.perfci("detect", "--session", f"nightly-{night:05d}")
        return int(json.loads(done.stdout)["new_alerts"])

    for night in range(12):
        _night_of("old-box", night, place.settings.incoming)
    for night in range(12, 20):
        _night_of("new-box", night, place.settings.incoming)
    assert stored_and_judged(19) == 0
    # A regression that only the new box has seen is told from the nights of the old one.
    for night in range(20, 24):
        _night_of("new-box", night, place.settings.incoming, slower=1.1)
    assert stored_and_judged(23) == 2
    engine = connect(place.url, read_only=True)
    series = reads.all_series(engine)
    assert len(series) == 2
    for each in series:
        assert [point.node for point in reads.history(engine, each.id)] == ["old-box"] * 24 + ["new-box"] * 24
    assert {alert.commit.position for alert in reads.alerts(engine)} == {21}
    engine.dispose()
