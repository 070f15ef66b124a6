"""Traced steps of our own kernels: their slots here, their stamps on a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import offline, workloads
from kernels.timeline import spans, traced
from tests.kernels.timeline import traced_on_gpu

ONE_STEP = [workload.name for workload in workloads.WORKLOADS if workload.device == "cuda" and workload.steps == 1]


@pytest.mark.parametrize("name", ONE_STEP)
def test_every_program_of_every_launch_has_a_slot_in_launch_order(name: str) -> None:
    workload = workloads.named(name)
    step, trace = traced.prepare("modular", workload, offline.absent_weights(workload), offline.absent_inputs(workload))
    launched = [
        (launch.name, launch.layer, program)
        for launch in step.plan  # type: ignore[attr-defined]
        for program in range(launch.grid[0])
    ]
    assert [tuple(slot) for slot in trace.slots] == launched
    assert trace.tensor.shape == (len(launched), 4)


@pytest.mark.gpu
@pytest.mark.parametrize("name", traced.STAMPED)
def test_a_trace_of_a_real_step_has_every_program_and_adds_up(name: str, repository: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", traced_on_gpu.__name__, name]
    ran = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    told = json.loads(ran.stdout)
    figures = told["figures"]
    assert told["written"]
    assert sum(sum(stage["parts"].values()) for stage in figures["stages"]) == figures["typical_step"]
    assert 1 <= figures["tick"] <= 1024
    if name != "modular":  # its time is the host's, traced or not
        assert 0.8 < figures["overhead"] < 2
    assert figures["multiprocessors"] == told["multiprocessors"]
    assert told["packed"] <= spans.MAX_TEXT
    if name in ("modular", "modular-graph"):
        assert min(told["gaps"]) >= 0  # an ordinary launch starts when the one before has ended
    else:
        assert min(told["gaps"]) < 0  # otherwise it hides nothing
