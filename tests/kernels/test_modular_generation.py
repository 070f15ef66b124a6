"""Several steps in one call of the modular step, in the interpreter: each token is fed on, each position is right."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from kernels import reference, workloads
from kernels.llama import inputs as fresh_inputs
from kernels.llama import weights as llama_weights
from kernels.llama.pipeline import HOPPER_SHORT, Launch, ModularStep, Split, slots, tiles_for
from kernels.llama.weights import Weights
from kernels.timeline.trace import Slot, TraceBuffer
from kernels.workloads import Decode
from perfci.bench import buffers
from tests.kernels.conftest import SMALL_TILES

FP32 = 2e-5
LAUNCHES_A_STEP = 13


@pytest.fixture(scope="module")
def generation() -> Decode:
    return workloads.named("decode/llama-tiny/b1-gen5+6-fp32")


@pytest.fixture(scope="module")
def weights(generation: Decode) -> Weights:
    return llama_weights.random(generation, device="cpu", seed=3)


def one_by_one(workload: Decode, weights: Weights, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Single steps of the float64 reference, each given the token and the rows of the one before."""
    given = dict(inputs) | {name: inputs[name].double() for name in ("keys", "values")}
    tokens: list[Tensor] = []
    found: dict[str, Tensor] = {}
    layers = range(workload.shape.layers)
    for _ in range(workload.steps):
        found = reference.decode(workload, weights, given, dtype=torch.float64)
        tokens.append(found["token"])
        given = {"token": found["token"], "position": given["position"] + 1} | {
            name: torch.cat([given[name], torch.stack([found[f"{name}.{layer}"] for layer in layers])], dim=2)
            for name in ("keys", "values")
        }
    first = int(inputs["position"])
    rows = {f"{name}.{layer}": given[name][layer][:, first:] for name in ("keys", "values") for layer in layers}
    return {"logits": found["logits"], "token": torch.cat(tokens), **rows}


@pytest.mark.parametrize("split", [None, Split(heads=2, merge_warps=4)], ids=["whole", "split"])
def test_each_step_takes_the_token_and_the_rows_of_the_one_before(
    split: Split | None, generation: Decode, weights: Weights
) -> None:
    inputs = fresh_inputs.fresh(generation, weights, 5)
    expected = one_by_one(generation, weights, inputs)
    assert len(set(expected["token"].tolist())) >= 3, (
        "a draw that repeats one token would hide a token that is not fed on"
    )
    step = ModularStep(generation, weights, inputs, tiles=dataclasses.replace(SMALL_TILES, split=split))
    before = buffers.fingerprint(step.constants)
    for tensor in (*step.scratch, *step.outputs.values()):
        tensor.fill_(float("nan") if tensor.is_floating_point() else -1)
    step()
    assert reference.worst_error(step.outputs, expected) < FP32
    assert buffers.fingerprint(step.constants) == before


def test_a_second_call_starts_again_at_the_loaded_token_and_position(generation: Decode, weights: Weights) -> None:
    step = ModularStep(generation, weights, fresh_inputs.fresh(generation, weights, 6), tiles=SMALL_TILES)
    step()
    first = buffers.snapshot(step.outputs)
    buffers.poison(step.outputs.values())
    step()
    assert buffers.same_bits(first, step.outputs)


def test_other_inputs_at_an_earlier_position_use_the_same_addresses(generation: Decode, weights: Weights) -> None:
    step = ModularStep(generation, weights, fresh_inputs.fresh(generation, weights, 7), tiles=SMALL_TILES)
    addresses = [tensor.data_ptr() for launch in step.plan for tensor in launch.arguments]
    inputs = fresh_inputs.fresh(generation, weights, 8, position=2)
    step.load(inputs)
    assert addresses == [tensor.data_ptr() for launch in step.plan for tensor in launch.arguments]
    step()
    assert reference.worst_error(step.outputs, one_by_one(generation, weights, inputs)) < FP32


def no_feeding(step: ModularStep) -> tuple[Launch, ...]:
    """Each embedding takes the token that was loaded."""
    return tuple(
        dataclasses.replace(launch, arguments=(step.buffers.token_in, *launch.arguments[1:]))
        if launch.name == "embed"
        else launch
        for launch in step.plan
    )


def resting_position(step: ModularStep) -> tuple[Launch, ...]:
    """The third step attends from where the second did."""
    second, third = step.between.positions[1], step.between.positions[2]

    def moved(tensor: Tensor) -> Tensor:
        return second if tensor.data_ptr() == third.data_ptr() else tensor

    return tuple(
        dataclasses.replace(launch, arguments=tuple(map(moved, launch.arguments)))
        if launch.name == "attend"
        else launch
        for launch in step.plan
    )


@pytest.mark.parametrize("fault", [no_feeding, resting_position], ids=lambda fault: fault.__name__)
def test_a_fault_between_the_steps_shows(fault, generation: Decode, weights: Weights) -> None:
    inputs = fresh_inputs.fresh(generation, weights, 5)
    step = ModularStep(generation, weights, inputs, tiles=SMALL_TILES)
    assert len(step.plan) == generation.steps * LAUNCHES_A_STEP
    step.plan = fault(step)
    buffers.poison(step.outputs.values())
    step()
    expected = one_by_one(generation, weights, inputs)
    expected.pop("token")  # which is wrong more often than not
    assert not reference.worst_error(step.outputs, expected) < 6e-2


def test_only_the_first_kernel_of_all_steps_is_an_ordinary_launch(generation: Decode, weights: Weights) -> None:
    inputs = fresh_inputs.fresh(generation, weights, 7)
    plan = ModularStep(generation, weights, inputs, tiles=SMALL_TILES, pdl=True).plan
    assert [index for index, launch in enumerate(plan) if "launch_pdl" not in launch.keywords] == [0]
    fed = [launch.keywords.get("FED", False) for launch in plan if launch.name == "embed"]
    assert fed == [False, *[True] * (generation.steps - 1)]


def test_positions_of_all_steps_are_equally_aligned(generation: Decode, weights: Weights) -> None:
    """Else the launcher would compile every kernel twice, for pointers of 8 and of 16 bytes."""
    step = ModularStep(generation, weights, fresh_inputs.fresh(generation, weights, 7), tiles=SMALL_TILES)
    assert {row.data_ptr() % 16 for row in step.between.positions} == {0}
    assert step.between.positions[:, 0].tolist() == list(range(5, 11))


def test_a_short_context_is_attended_to_in_one_go() -> None:
    workload = workloads.named("decode/llama-1b/b1-gen32+127-bf16")
    assert tiles_for(workload) is HOPPER_SHORT
    assert HOPPER_SHORT.attend.rows >= workload.context - 1


def test_the_launches_of_the_last_step_are_traced_each_in_its_own_slots(generation: Decode, weights: Weights) -> None:
    trace = TraceBuffer(slots(generation, SMALL_TILES), device="cpu")
    inputs = fresh_inputs.fresh(generation, weights, 7)
    plan = ModularStep(generation, weights, inputs, tiles=SMALL_TILES, trace=trace).plan
    traced = [launch for launch in plan if launch.keywords.get("TRACE", False)]
    assert [launch.name for launch in traced] == [launch.name for launch in plan[-LAUNCHES_A_STEP:]]
    for number, launch in enumerate(traced):
        launch.keywords["trace_ptr"].fill_(1 + number)
    written = [int(row[0]) for row in trace.tensor]
    assert trace.slots == tuple(
        Slot(launch.name, launch.layer, tile) for launch in traced for tile in range(launch.grid[0])
    )
    assert written == [number + 1 for number, launch in enumerate(traced) for _ in range(launch.grid[0])]


def test_a_trace_of_other_slots_is_refused(generation: Decode, weights: Weights) -> None:
    inputs = fresh_inputs.fresh(generation, weights, 7)
    with pytest.raises(ValueError, match=r"a trace of 1 slots; make it of pipeline\.slots"):
        ModularStep(
            generation, weights, inputs, tiles=SMALL_TILES, trace=TraceBuffer((Slot("qkv", 0, 0),), device="cpu")
        )
