"""What the compiled code of the kernels orders. In other processes: in this one Triton interprets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernels import workloads
from tests.kernels import dependent_launches
from tests.kernels.variants import planted

LARGE = [workload.name for workload in workloads.WORKLOADS if workload.device == "cuda"]


def compiling(repository: Path, module: str, *arguments: str) -> Any:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", module, *arguments]
    ran = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def dependent(repository: Path) -> dict[str, Any]:
    found: dict[str, Any] = compiling(repository, dependent_launches.__name__, *LARGE)
    return found


@pytest.mark.parametrize("workload", LARGE)
def test_a_dependent_kernel_neither_stores_nor_reads_what_the_step_writes_before_it_waits(
    workload: str, dependent: dict[str, Any]
) -> None:
    stages = dependent[workload]
    assert {"embed", "qkv", "attend", "out", "gate_up", "down", "head", "pick"} <= stages.keys()
    assert {name: stage["left"] for name, stage in stages.items() if stage["left"]} == {}
    # Attention reads rows of earlier positions, in the same allocation as the step's own: masked, which PTX can't tell.
    assert {name for name, stage in stages.items() if stage["faults"]} == {"attend"}


@pytest.mark.parametrize("workload", LARGE)
def test_a_dependent_kernel_has_loads_under_way_when_it_waits(workload: str, dependent: dict[str, Any]) -> None:
    stages = dependent[workload]
    for name in ("qkv", "attend", "out", "gate_up", "down", "head"):
        assert stages[name]["loads"] >= 4, name


def test_a_kernel_that_is_too_early_is_found_in_its_machine_s_code(repository: Path) -> None:
    found = compiling(repository, dependent_launches.__name__, LARGE[0], "--plant")
    assert found.keys() == dependent_launches.PLANTED.keys()
    early = found["input read early"]
    assert {name for name, stage in early.items() if stage["left"]} == {"out", "down"}
    assert all("reads parameter 0 before the wait" in early[name]["left"][0] for name in ("out", "down"))
    assert found["token written early"]["pick"]["left"] == ["st.global.b64 stands before the wait"]
    assert all(set(stage["left"]) == {"0 waits for the predecessor, not one"} for stage in found["no wait"].values())


def test_a_fault_whose_place_is_gone_is_not_planted(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="does not hold 'no such line': the fault was not planted"),
        planted({"kernels.llama.program": (("no such line", ""),)}, tmp_path),
    ):
        pass
