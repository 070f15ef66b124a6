"""Whole steps against the reference: the modular one in the interpreter, PyTorch's on the CPU."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from kernels import reference, registry, workloads
from kernels.llama.pipeline import INTERPRETED, ModularStep, Tile, Tiles, check, tiles_for
from kernels.llama.torch_model import TorchStep
from kernels.llama.weights import Weights
from kernels.workloads import Decode
from perfci.bench import buffers, gate
from perfci.bench.case import Case
from perfci.model import Workload
from tests.kernels.conftest import SMALL_TILES

FP32 = 2e-5


@pytest.mark.parametrize("position", [1, 7, 8, 14, 20])
def test_a_modular_step_is_right_at_any_position(position: int, tiny: Decode, tiny_weights: Weights, draw) -> None:
    inputs, expected = draw(11, position)
    step = ModularStep(tiny, tiny_weights, inputs, tiles=SMALL_TILES)
    step()
    assert reference.worst_error(step.outputs, expected) < FP32


def test_a_modular_step_takes_another_position_without_new_buffers(tiny: Decode, tiny_weights: Weights, draw) -> None:
    inputs, _ = draw(1, 20)
    step = ModularStep(tiny, tiny_weights, inputs, tiles=SMALL_TILES)
    step()
    addresses = {name: step.outputs[name].data_ptr() for name in ("logits", "token")}
    for position in (3, 19):
        inputs, expected = draw(2, position)
        step.load(inputs)
        step()
        assert reference.worst_error(step.outputs, expected) < FP32
    assert addresses == {name: step.outputs[name].data_ptr() for name in addresses}


def test_perfci_s_gate_accepts_the_modular_step(tiny: Decode, tiny_weights: Weights, draw) -> None:
    entry = registry.entry("decode", "modular")
    case = Case(
        workload=Workload(tiny.name),
        implementation=entry.name,
        fresh_inputs=lambda seed: draw(seed)[0],
        reference=lambda inputs: reference.decode(tiny, tiny_weights, inputs, dtype=torch.float64),
        prepare=lambda inputs: ModularStep(tiny, tiny_weights, inputs, tiles=SMALL_TILES),
        tolerance=entry.tolerance.fp32,
        exact=("token",),
        bitwise=entry.bitwise,
    )
    checked = gate.check(case, seed=5)
    assert checked.error is not None and checked.error < FP32


def test_a_step_lists_as_scratch_and_outputs_all_that_it_writes(tiny: Decode, tiny_weights: Weights, draw) -> None:
    inputs, _ = draw(4)
    step = ModularStep(tiny, tiny_weights, inputs, tiles=SMALL_TILES)
    written = {tensor.data_ptr() for tensor in (*step.scratch, *step.outputs.values())}
    floating = {
        tensor.untyped_storage().data_ptr()
        for launch in step.plan
        for tensor in launch.arguments
        if tensor.is_floating_point()
    }
    known = {tensor.untyped_storage().data_ptr() for tensor in step.constants} | written
    assert floating <= known
    before = buffers.fingerprint(step.constants)
    step()
    assert buffers.fingerprint(step.constants) == before


@pytest.mark.parametrize(
    ("tiles", "message"),
    [
        (dataclasses.replace(SMALL_TILES, head_tiles=3), "vocab 256 is not a multiple of a program's 96 rows"),
        (dataclasses.replace(SMALL_TILES, qkv=Tile(12, 4)), "half a head 16 is not a multiple of a program's 12 rows"),
        (dataclasses.replace(SMALL_TILES, gate_up=Tile(96, 4)), "ffn 256 is not a multiple of a program's 96 rows"),
        (dataclasses.replace(SMALL_TILES, down=Tile(32, 4, 5)), "5 programs of 32 rows for hidden 128"),
    ],
)
def test_tiles_that_would_leave_rows_out_are_refused(
    tiles: Tiles, message: str, tiny: Decode, tiny_weights: Weights, draw
) -> None:
    with pytest.raises(ValueError, match=message):
        ModularStep(tiny, tiny_weights, draw(1)[0], tiles=tiles)


def test_the_shipped_tiles_fit_their_workloads() -> None:
    for size in ("b1-ctx512", "b1-gen32+127", "b1-ctx4096"):
        workload = workloads.named(f"decode/llama-1b/{size}-bf16")
        check(workload, tiles_for(workload))
    check(workloads.named("decode/llama-mini/b1-ctx128-fp32"), INTERPRETED)


@pytest.mark.parametrize("position", [1, 7, 20])
def test_torch_eager_is_right(position: int, tiny: Decode, tiny_weights: Weights, draw) -> None:
    inputs, expected = draw(6, position)
    step = registry.entry("decode", "torch-eager").load()(tiny, tiny_weights, inputs)
    step()
    assert reference.worst_error(step.outputs, expected) < FP32


def test_torch_compile_is_right_on_fresh_inputs_too(tiny: Decode, tiny_weights: Weights, draw) -> None:
    step = registry.entry("decode", "torch-compile").load()(tiny, tiny_weights, draw(1)[0])
    for seed in (2, 3):
        inputs, expected = draw(seed)
        step.load(inputs)
        buffers.poison(step.outputs.values())
        step()
        assert reference.worst_error(step.outputs, expected) < FP32


def test_a_torch_step_refuses_another_position_than_its_own(tiny: Decode, tiny_weights: Weights, draw) -> None:
    step = TorchStep(tiny, tiny_weights, draw(1, 20)[0])
    with pytest.raises(ValueError, match="bound to position 20, not 19"):
        step.load(draw(1, 19)[0])
