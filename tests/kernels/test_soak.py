"""The soak sees what it is for: a moving bit, a write beyond a buffer, an error that PyTorch would not make."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernels import registry, workloads
from kernels.benchmarks import soak
from kernels.llama import inputs as fresh_inputs
from kernels.llama.torch_model import TorchStep
from kernels.llama.weights import Weights

TINY = workloads.named("decode/llama-tiny/b1-gen5+6-fp32")


def right(step: TorchStep, repeat: int) -> None:
    del step, repeat


def moving(step: TorchStep, repeat: int) -> None:
    if repeat == 3:
        step.outputs["keys.1"][1, 2, 3] += 1e-7


def beyond(step: TorchStep, repeat: int) -> None:
    if repeat == 2:
        step.buffers.guards[5][0] = 0


def further_off(step: TorchStep, repeat: int) -> None:
    del repeat
    step.outputs["values.0"].mul_(1 + 1e-5)


def unwritten(step: TorchStep, repeat: int) -> None:
    del repeat
    step.outputs["logits"][0, 7] = float("nan")


def wrong_token(step: TorchStep, repeat: int) -> None:
    del repeat
    step.outputs["token"][-1] += 1


def examined(fault: Callable[[TorchStep, int], None], weights: Weights) -> soak.Examined:
    inputs = fresh_inputs.fresh(TINY, weights, 1)
    errors_of = soak.output_errors(TINY, weights, inputs, tolerance=2e-5)
    twin = errors_of(soak.launched(TorchStep(TINY, weights, inputs)))
    step = TorchStep(TINY, weights, inputs)
    launches = iter(range(10))

    class Faulty(TorchStep):
        def __init__(self) -> None:
            self.__dict__ = step.__dict__

        def __call__(self) -> None:
            super().__call__()
            fault(self, next(launches))

    return soak.examined(Faulty(), errors_of, twin=twin, repeats=5)[0]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (moving, "other bits in 1 of 5 repeats"),
        (beyond, "wrote beyond a buffer"),
        (further_off, "error of values.0 is"),
        (unwritten, "error of logits is inf"),
        (wrong_token, "error of token is inf"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_it_finds(fault: Callable[[TorchStep, int], None], message: str, tiny_weights: Weights) -> None:
    (found,) = examined(fault, tiny_weights).faults(bitwise=True)
    assert message in found


def test_it_finds_nothing_wrong_with_a_right_step(tiny_weights: Weights) -> None:
    seen = examined(right, tiny_weights)
    assert seen.faults(bitwise=True) == ()
    assert seen.worst_ratio == 1 and seen.repeats == 5


def test_a_move_is_no_fault_where_equal_bits_are_not_promised(tiny_weights: Weights) -> None:
    assert examined(moving, tiny_weights).faults(bitwise=False) == ()


def test_families_with_other_bits_are_told() -> None:
    one, other = {"logits": torch.ones(3)}, {"logits": torch.tensor([1.0, 1.0, 1.0000001])}
    found = {"modular": one, "modular-graph": one, "megakernel": other, "megakernel-graph": other, "torch-graph": one}
    assert soak.same_bits_by_family(found) == {"modular": True, "megakernel": True}
    assert soak.same_bits_by_family({**found, "modular-graph": other})["modular"] is False


def test_its_command_prints_json_and_its_exit_code_tells(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main([TINY.name, "torch-eager", "--repeats", "2"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["workload"] == TINY.name and told["wrong"] is False
    assert told["implementations"]["torch-eager"]["repeats"] == 2


@pytest.mark.parametrize(
    ("name", "capability", "workload", "reason"),
    [
        ("modular", None, TINY.name, "modular: Triton needs a GPU"),
        ("torch-graph", None, TINY.name, "torch-graph: CUDA graphs need a CUDA device"),
        ("megakernel", 90, "decode/llama-tiny/b4-ctx21-fp32", "megakernel: the megakernel is written for batch 1"),
        ("modlar", 90, TINY.name, "no implementation 'modlar'"),
        ("modular", 90, TINY.name, ""),
        ("torch-eager", None, TINY.name, ""),
    ],
)
def test_it_refuses_what_cannot_be_tried_here(name: str, capability: int | None, workload: str, reason: str) -> None:
    told = soak.refusal(workloads.named(workload), ["torch-compile", name], capability=capability)
    assert told.startswith(reason) and bool(told) == bool(reason)


def test_a_refusal_is_one_line_before_any_weights_are_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak.bench_decode, "DEVICE", "cpu")
    with pytest.raises(SystemExit) as stopped:
        soak.main(["decode/llama-1b/b1-ctx512-bf16"])
    assert stopped.value.code == 2
    assert "error: modular: Triton needs a GPU, and there is none here" in capsys.readouterr().err.splitlines()[-1]


@functools.cache
def on_the_gpu(workload: str, repository: Path) -> dict:
    """From another process: in this one Triton interprets."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "kernels.benchmarks.soak", workload]
    ran = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode in {0, 1} and ran.stdout, ran.stderr[-2000:]
    return json.loads(ran.stdout)


GPU_CASES = [
    (workload.name, entry.name)
    for workload in workloads.for_device("cuda")
    for entry in registry.ENTRIES
    if entry.language == "triton" and not entry.unsupported(90, workload)
]


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("workload", "implementation"), GPU_CASES, ids=lambda value: value.removeprefix("decode/"))
def test_every_triton_implementation_is_right_200_times_on_a_gpu(
    workload: str, implementation: str, repository: Path
) -> None:
    found = on_the_gpu(workload, repository)["implementations"][implementation]
    assert found["faults"] == [] and found["repeats"] == 200
    entry = registry.entry("decode", implementation)
    assert found["error"] <= entry.tolerance.of(workloads.named(workload).number)


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.parametrize("workload", [w.name for w in workloads.for_device("cuda")], ids=lambda n: n[7:])
def test_the_members_of_a_family_agree_bit_for_bit_on_a_gpu(workload: str, repository: Path) -> None:
    families = on_the_gpu(workload, repository)["same_bits"]
    assert families.get("modular") is True
    assert set(families.values()) == {True}
