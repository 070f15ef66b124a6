"""What the kernels compile to for GPUs that are not here. Other processes: in this one Triton interprets."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import registry
from kernels.benchmarks import off_device
from kernels.llama.pipeline import ModularStep
from kernels.llama.weights import Weights
from kernels.workloads import Decode
from tests.kernels.conftest import SMALL_TILES

OPERATIONS = ["embed", "qkv", "attend", "out", "gate_up", "down", "head", "pick"]
SHARED_MEMORY_OF_A_BLOCK = 227 * 1024  # of an H100 or H200

PTX = """
import json, sys
from kernels import offline, workloads
workload = workloads.named("decode/llama-1b/b1-ctx512-bf16")
texts = {}
for pdl in (True, False):
    kernels = offline.compiled(workload, architecture=90, pdl=pdl)
    texts["dependent" if pdl else "ordinary"] = {name: kernel.asm["ptx"] for name, kernel in kernels.items()}
json.dump(texts, sys.stdout)
"""
SPILL = """
import dataclasses, json, sys
from kernels import offline, workloads
from kernels.llama.pipeline import HOPPER, Tile
tiles = dataclasses.replace(HOPPER, out=Tile(16, 2))
costs = offline.costs(workloads.named("decode/llama-1b/b1-ctx512-bf16"), architecture=90, pdl=False, tiles=tiles)
json.dump({name: cost.spilled_bytes for name, cost in costs.items()}, sys.stdout)
"""


def compiling(repository: Path, code: str) -> dict:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def costs() -> dict:
    return dict(off_device.compiled_costs())


@pytest.mark.parametrize("target", ["sm_90+pdl", "sm_90", "sm_80"])
def test_every_operation_compiles_at_the_1b_sizes_without_spilling(target: str, costs: dict) -> None:
    found = costs[target]
    assert list(found) == OPERATIONS
    for operation, cost in found.items():
        assert cost["spilled_bytes"] == 0, operation
        assert 16 <= cost["registers"] <= 255, operation
        assert 0 <= cost["shared_bytes"] <= SHARED_MEMORY_OF_A_BLOCK, operation
        assert cost["cubin_bytes"] > 1000 and cost["ptx_bytes"] > 1000, operation


def test_a_tile_too_large_for_the_registers_shows_as_spills(repository: Path) -> None:
    spilled = compiling(repository, SPILL)
    assert spilled.pop("out") > 0
    assert set(spilled.values()) == {0}


def test_dependent_launches_load_before_they_wait_and_store_after(repository: Path) -> None:
    ptx = compiling(repository, PTX)
    for operation, text in ptx["dependent"].items():
        assert text.count("griddepcontrol.launch_dependents") == 1, operation
        before, wait, after = text.partition("griddepcontrol.wait")
        assert wait, operation
        assert "st.global" not in before and "st.global" in after, operation
        if operation in {"qkv", "attend", "out", "gate_up", "down", "head"}:
            assert before.count("ld.global") >= 4, operation
    assert not any("griddepcontrol" in text for text in ptx["ordinary"].values())


@pytest.mark.parametrize("name", ["modular", "modular-graph", "modular-pdl"])
def test_a_check_without_a_gpu_tells_error_and_costs(name: str, tiny: Decode, tiny_weights: Weights) -> None:
    facts = off_device.check(registry.entry("decode", name), tiny, tiny_weights, seed=1, tiles=SMALL_TILES)
    assert 0 < facts["interpreter_error"] < 2e-5
    assert facts["compiled_for"] == ("sm_90+pdl" if name == "modular-pdl" else "sm_90")
    assert {f"{operation}.registers" for operation in OPERATIONS} <= facts.keys()
    assert facts.get("compiles_for_sm_80") is (None if name == "modular-pdl" else True)


def test_a_wrong_output_is_found_without_a_gpu(tiny: Decode, tiny_weights: Weights, monkeypatch) -> None:
    right = ModularStep.__call__

    def slightly_wrong(step: ModularStep) -> None:
        right(step)
        step.outputs["keys.1"].mul_(1.0001)

    monkeypatch.setattr(ModularStep, "__call__", slightly_wrong)
    with pytest.raises(AssertionError, match=r"error 0.0001 in the interpreter is over 2e-05"):
        off_device.check(registry.entry("decode", "modular"), tiny, tiny_weights, seed=2, tiles=SMALL_TILES)


def test_a_kernel_that_changes_the_weights_is_found_without_a_gpu(
    tiny: Decode, tiny_weights: Weights, monkeypatch
) -> None:
    right = ModularStep.__call__
    weights = dataclasses.replace(tiny_weights, down=tiny_weights.down.clone())

    def overwriting(step: ModularStep) -> None:
        right(step)
        weights.down[1, 0, 0] = 0

    monkeypatch.setattr(ModularStep, "__call__", overwriting)
    with pytest.raises(AssertionError, match="a kernel changed the weights"):
        off_device.check(registry.entry("decode", "modular"), tiny, weights, seed=3, tiles=SMALL_TILES)
