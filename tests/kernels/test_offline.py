"""What the kernels compile to for GPUs that are not here. Other processes: in this one Triton interprets."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import offline, registry
from kernels.benchmarks import off_device
from kernels.llama.batched_pipeline import BatchedStep
from kernels.llama.pipeline import ModularStep
from kernels.llama.weights import Weights
from kernels.workloads import Decode
from tests.kernels.conftest import SMALL_TILES

OPERATIONS = ["embed", "qkv", "attend", "out", "gate_up", "down", "head", "pick"]
SHARED_MEMORY_OF_A_BLOCK = 227 * 1024  # of an H100 or H200

SPILL = """
import dataclasses, json, sys
from kernels import offline, workloads
from kernels.llama.pipeline import HOPPER, ModularStep, Tile
tiles = dataclasses.replace(HOPPER, out=Tile(16, 2))
def prepare(*given):
    return ModularStep(*given, tiles=tiles)
costs = offline.costs(workloads.named("decode/llama-1b/b1-ctx512-bf16"), prepare, architecture=90)
json.dump({name: cost.spilled_bytes for name, cost in costs.items()}, sys.stdout)
"""
# A subject process: whatever its kernels raise is told to the test, which compares it.
FAULTY = """
import json, sys
from types import SimpleNamespace
import torch
from kernels import absent_device, offline, registry, workloads
from kernels.llama.pipeline import ModularStep
workload = workloads.named("decode/llama-1b/b1-ctx512-bf16")
absent_device._DEVICES[86] = (8, 72)
modular = registry.entry("decode", "modular").load()
class TorchOnly:
    plan = ()
    def __call__(self): pass
class OtherPlan(ModularStep):
    def __call__(self):
        for launch in (*self.plan[:2], *self.plan[3:]): launch()
class StopsEarly(ModularStep):
    def __call__(self):
        for launch in self.plan[:-1]: launch()
def reason(prepare, architecture=90):
    try: offline.compiled(workload, prepare, architecture=architecture)
    except Exception as error: return f"{type(error).__name__}: {error}"
steps = {step.__name__: reason(lambda *given, step=step: step(*given)) for step in (OtherPlan, StopsEarly)}
left = getattr(torch.cuda.synchronize, "__module__", None), "data_ptr" in vars(torch.Tensor)
json.dump({
    **steps,
    "TorchOnly": reason(lambda *given: TorchOnly()),
    "Unknown": reason(modular, 75),
    "left": left,
    "shared": reason(modular, 86),
}, sys.stdout)
"""

LOADED = """
import json, sys
from kernels import absent_device, offline, registry, workloads
from kernels.benchmarks import loaded
workload = workloads.named("decode/llama-1b/b1-ctx512-bf16")
prepare = registry.entry("decode", "modular").load()
with absent_device.installed(90) as device:
    step = prepare(workload, offline.absent_weights(workload), offline.absent_inputs(workload))
    found = loaded.costs(step)
    launched = len(device.launches)
compiled = offline.compiled(workload, prepare, architecture=90)
shared = {f"{stage}.shared_bytes": kernel.shared_bytes for stage, kernel in compiled.items()}
json.dump({"found": found, "shared": shared, "launched": launched}, sys.stdout)
"""


def compiling(repository: Path, code: str) -> dict:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def costs() -> dict:
    return dict(off_device.compiled_costs())


@pytest.mark.parametrize(
    ("name", "target"),
    [(entry.name, f"sm_{architecture}") for entry in off_device.checked_here() for architecture in entry.architectures],
)
def test_every_operation_compiles_at_the_1b_sizes_without_spilling(name: str, target: str, costs: dict) -> None:
    found = costs[name][target]
    assert list(found) == (OPERATIONS if name.startswith("modular") else ["megakernel"])
    for operation, cost in found.items():
        assert cost["spilled_bytes"] == 0, operation
        assert 16 <= cost["registers"] <= 255, operation
        assert 0 <= cost["shared_bytes"] <= SHARED_MEMORY_OF_A_BLOCK, operation
        assert cost["cubin_bytes"] > 1000 and cost["ptx_bytes"] > 1000, operation


def test_a_tile_too_large_for_the_registers_shows_as_spills(repository: Path) -> None:
    spilled = compiling(repository, SPILL)
    assert spilled.pop("out") > 0
    assert set(spilled.values()) == {0}


def test_launches_that_are_not_the_plan_s_or_do_not_fit_the_device_are_refused(repository: Path) -> None:
    found = compiling(repository, FAULTY)
    assert found["OtherPlan"] == "RuntimeError: launch 2 is project_and_add, where the step's plan has attend"
    assert found["StopsEarly"] == "RuntimeError: 82 launches are no multiple of the plan's 83"
    assert found["TorchOnly"] == "RuntimeError: nothing was launched: the step runs no Triton kernel"
    assert found["Unknown"] == "ValueError: sm_75: its sizes are not known; there are [80, 86, 89, 90, 100]"
    assert found["shared"].startswith("OutOfResources: out of resource: shared memory")
    assert found["left"][0] == "torch.cuda"  # PyTorch is as it was


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sm_90", "--implementation", "torch-eager"], "torch-eager is no Triton code"),
        (["sm_80", "--implementation", "modular-pdl"], "modular-pdl: needs sm_90 or newer; this device is sm_80"),
        (["sm_90+pdl", "--implementation", "modular"], "+pdl stands for modular-pdl, not for modular"),
        (["sm_90+tma"], "'sm_90+tma' is no target"),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_its_reason(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        offline.main(["decode/llama-1b/b1-ctx512-bf16", *arguments])
    assert message in capsys.readouterr().err


def test_a_process_that_interprets_does_not_compile(tiny: Decode) -> None:
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET is set"):
        offline.compiled(tiny, registry.entry("decode", "modular").load(), architecture=90)


def test_what_a_loaded_kernel_takes_is_told_without_a_launch(repository: Path) -> None:
    told = compiling(repository, LOADED)
    found = told["found"]
    assert list(found)[::3] == [f"{operation}.registers" for operation in OPERATIONS]
    assert {name: value for name, value in found.items() if name.endswith(".shared_bytes")} == told["shared"]
    assert told["launched"] == 0


@pytest.mark.parametrize("name", ["modular", "modular-graph", "modular-pdl"])
def test_a_check_without_a_gpu_tells_error_and_costs(name: str, tiny: Decode, tiny_weights: Weights) -> None:
    facts = off_device.check(registry.entry("decode", name), tiny, tiny_weights, seed=1, tiles=SMALL_TILES)
    errors = {name: error for name, error in facts.items() if name.startswith("interpreter_error")}
    assert {name.partition(".")[2] for name in errors} == {"", "split", "generation", "batch"}
    assert all(0 < error < 2e-5 for error in errors.values())
    assert facts["compiled_for"] == "sm_90"
    assert {f"{operation}.registers" for operation in OPERATIONS} <= facts.keys()
    assert facts.get("compiles_for_sm_80") is (None if name == "modular-pdl" else True)


def test_a_wrong_output_is_found_without_a_gpu(tiny: Decode, tiny_weights: Weights, monkeypatch) -> None:
    right = ModularStep.__call__

    def slightly_wrong(step: ModularStep) -> None:
        right(step)
        step.outputs["keys.1"].mul_(1.0001)

    monkeypatch.setattr(ModularStep, "__call__", slightly_wrong)
    with pytest.raises(AssertionError, match=r"interpreter_error 0.0001 is over 2e-05"):
        off_device.check(registry.entry("decode", "modular"), tiny, tiny_weights, seed=2, tiles=SMALL_TILES)


def test_a_wrong_sequence_is_found_without_a_gpu(tiny: Decode, tiny_weights: Weights, monkeypatch) -> None:
    right = BatchedStep.__call__

    def mixed_up(step: BatchedStep) -> None:
        right(step)
        step.outputs["logits"].copy_(step.outputs["logits"].roll(1, dims=0))

    monkeypatch.setattr(BatchedStep, "__call__", mixed_up)
    with pytest.raises(AssertionError, match=r"interpreter_error.batch inf|interpreter_error.batch 1"):
        off_device.check(registry.entry("decode", "modular"), tiny, tiny_weights, seed=4, tiles=SMALL_TILES)


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
