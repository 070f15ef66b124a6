"""Whole steps of several sequences, in the interpreter, against the reference; with a small fault, perfci's gate."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch

from kernels import reference, registry, workloads
from kernels.llama import batched_tiles
from kernels.llama import inputs as fresh_inputs
from kernels.llama.batched_pipeline import BatchedStep
from kernels.llama.batched_plan import slots
from kernels.llama.batched_tiles import HOPPER_8, HOPPER_64, INTERPRETED, BatchedTiles, Product
from kernels.llama.plan import Launch
from kernels.llama.weights import Weights
from kernels.timeline.trace import TraceBuffer
from kernels.workloads import Decode
from perfci.bench import buffers, gate
from perfci.bench.agreement import IncorrectOutput
from perfci.bench.case import Case
from perfci.model import Workload

FOUR = workloads.named("decode/llama-tiny/b4-ctx21-fp32")
HEADS = FOUR.shape.kv_heads
FP32 = 2e-5
LOOSEST = registry.entry("decode", "torch-eager").tolerance.bf16
OTHER_WAY = dataclasses.replace(
    INTERPRETED,
    out=dataclasses.replace(INTERPRETED.out, splits=2, ways=1),
    down=dataclasses.replace(INTERPRETED.down, splits=1, ways=1),
)
"""The residual is settled by a launch of its own where INTERPRETED's projection does it, and the other way round."""


@pytest.fixture
def case_of(tiny_weights: Weights):
    """(plan of a step -> plan, tolerance) -> what the gate is given."""

    def made(plan: Callable[[BatchedStep], tuple[Launch, ...]], tolerance: float) -> Case:
        def prepare(inputs) -> BatchedStep:
            step = BatchedStep(FOUR, tiny_weights, inputs)
            step.plan = plan(step)
            return step

        return Case(
            workload=Workload(FOUR.name),
            implementation="batched",
            fresh_inputs=lambda seed: fresh_inputs.fresh(FOUR, tiny_weights, seed),
            reference=lambda inputs: reference.decode(FOUR, tiny_weights, inputs, dtype=torch.float64),
            prepare=prepare,
            tolerance=tolerance,
            exact=("token",),
            bitwise=True,
            repeats=2,
        )

    return made


@pytest.mark.parametrize("tiles", [INTERPRETED, OTHER_WAY], ids=["interpreted", "other-way"])
def test_a_step_of_four_sequences_is_right_at_any_position(tiles: BatchedTiles, tiny_weights: Weights) -> None:
    drawn = [
        fresh_inputs.fresh(FOUR, tiny_weights, seed, position=position) for seed, position in enumerate((1, 9, 20))
    ]
    step = BatchedStep(FOUR, tiny_weights, drawn[0], tiles=tiles)
    for inputs in drawn:
        step.load(inputs)
        buffers.poison((*step.outputs.values(), *step.scratch))
        step()
        expected = reference.decode(FOUR, tiny_weights, inputs, dtype=torch.float64)
        assert reference.worst_error(step.outputs, expected) < FP32


def test_perfci_s_gate_accepts_the_step(case_of) -> None:
    checked = gate.check(case_of(lambda step: step.plan, FP32), seed=5)
    assert checked.error is not None and checked.error < FP32


def test_a_sequence_gets_the_same_bits_whoever_its_neighbours_are(tiny_weights: Weights) -> None:
    inputs = fresh_inputs.fresh(FOUR, tiny_weights, 3)
    step = BatchedStep(FOUR, tiny_weights, inputs)
    step()
    before = {name: output.clone() for name, output in step.outputs.items()}
    order = torch.tensor([2, 0, 3, 1])
    heads = (order[:, None] * HEADS + torch.arange(HEADS)).flatten()
    step.load(
        {
            "token": inputs["token"][order],
            "position": inputs["position"],
            "keys": inputs["keys"][:, heads],
            "values": inputs["values"][:, heads],
        }
    )
    step()
    assert torch.equal(step.outputs["logits"], before["logits"][order])
    assert torch.equal(step.outputs["token"], before["token"][order])
    assert torch.equal(step.outputs["keys.1"], before["keys.1"][heads])


def test_a_step_lists_as_scratch_outputs_and_constants_all_that_it_touches(tiny_weights: Weights) -> None:
    step = BatchedStep(FOUR, tiny_weights, fresh_inputs.fresh(FOUR, tiny_weights, 4))
    listed = (*step.scratch, *step.outputs.values(), *step.constants)
    known = {tensor.untyped_storage().data_ptr() for tensor in listed}
    touched = {tensor.untyped_storage().data_ptr() for launch in step.plan for tensor in launch.arguments}
    assert touched <= known
    before = buffers.fingerprint(step.constants)
    step()
    assert buffers.fingerprint(step.constants) == before


def changed(step: BatchedStep, name: str, *, layer: int | None, kernel=None, **fields) -> tuple[Launch, ...]:
    """The plan with one launch otherwise. kernel: called with the right launch instead of launching it."""
    found = [launch for launch in step.plan if (launch.name, launch.layer) == (name, layer)]
    assert len(found) == 1

    class Otherwise:
        __name__ = "otherwise"

        def __getitem__(self, grid):
            return lambda *arguments, **keywords: kernel(found[0])

    if kernel is not None:
        fields["kernel"] = Otherwise()
    return tuple(dataclasses.replace(launch, **fields) if launch is found[0] else launch for launch in step.plan)


def with_argument(launch: Launch, index: int, tensor: torch.Tensor) -> None:
    arguments = (*launch.arguments[:index], tensor, *launch.arguments[index + 1 :])
    dataclasses.replace(launch, arguments=arguments)()


def neighbours_keys(step: BatchedStep) -> tuple[Launch, ...]:
    """In the last layer each sequence attends to the next one's keys."""

    def launched(right: Launch) -> None:
        keys, position = right.arguments[5], int(right.arguments[4])
        rolled = keys.roll(-HEADS, 0)
        with_argument(right, 5, rolled)
        keys[:, position] = rolled[:, position]

    return changed(step, "attend", layer=1, kernel=launched)


def neighbours_activation(step: BatchedStep) -> tuple[Launch, ...]:
    """The output projection of the last layer adds each sequence's attention to the next one."""
    return changed(
        step, "out", layer=1, kernel=lambda right: with_argument(right, 0, right.arguments[0].roll(1, 0).contiguous())
    )


def neighbours_norm(step: BatchedStep) -> tuple[Launch, ...]:
    return changed(
        step,
        "head",
        layer=None,
        kernel=lambda right: with_argument(right, 1, right.arguments[1].roll(1, 1).contiguous()),
    )


def sequence_left_out(step: BatchedStep) -> tuple[Launch, ...]:
    attend = next(launch for launch in step.plan if launch.name == "attend")
    return changed(step, "attend", layer=1, grid=(attend.grid[0] * 3 // 4,))


def sequence_left_stale(step: BatchedStep) -> tuple[Launch, ...]:
    """The last sequence goes on with what it attended to in the first layer."""

    def launched(right: Launch) -> None:
        before = step.between.attended[3].clone()
        right()
        step.between.attended[3] = before

    return changed(step, "attend", layer=1, kernel=launched)


def split_left_out(step: BatchedStep) -> tuple[Launch, ...]:
    settle = next(launch for launch in step.plan if launch.name == "settle_down")
    return changed(step, "settle_down", layer=0, keywords={**settle.keywords, "SPLITS": 1})


def wrong_token_of_one(step: BatchedStep) -> tuple[Launch, ...]:
    """The third sequence gets its second best token."""

    def launched(right: Launch) -> None:
        right()
        step.buffers.token[2] = step.buffers.logits[2].topk(2).indices[1]

    return changed(step, "pick", layer=None, kernel=launched)


def token_of_one_missing(step: BatchedStep) -> tuple[Launch, ...]:
    return changed(step, "pick", layer=None, grid=(3,))


def past_the_end(step: BatchedStep) -> tuple[Launch, ...]:
    """One element behind what the feed-forward hands on."""

    def launched(right: Launch) -> None:
        right()
        hidden = step.between.hidden
        hidden.as_strided((1,), (1,), hidden.storage_offset() + hidden.numel()).zero_()

    return changed(step, "gate_up", layer=0, kernel=launched)


FAULTS: dict[Callable[[BatchedStep], tuple[Launch, ...]], str] = {
    neighbours_keys: "is off by",
    neighbours_activation: "is off by",
    neighbours_norm: "is off by",
    sequence_left_out: "not finite",
    sequence_left_stale: "is off by",
    split_left_out: "is off by",
    wrong_token_of_one: "token differs",
    token_of_one_missing: "token differs",
    past_the_end: "changed its constants",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_gate_refuses(fault: Callable[[BatchedStep], tuple[Launch, ...]], case_of) -> None:
    with pytest.raises(IncorrectOutput, match=FAULTS[fault]):
        gate.check(case_of(fault, LOOSEST), seed=7)


def test_each_program_of_a_traced_step_has_a_row_of_its_own(tiny_weights: Weights) -> None:
    trace = TraceBuffer(slots(FOUR, INTERPRETED), device="cpu")
    step = BatchedStep(FOUR, tiny_weights, fresh_inputs.fresh(FOUR, tiny_weights, 1), trace=trace)
    row = 0
    for launch in step.plan:
        view = launch.keywords["trace_ptr"]
        assert isinstance(view, torch.Tensor) and view.data_ptr() == trace.tensor[row].data_ptr()
        expected = tuple((launch.name, launch.layer, tile) for tile in range(launch.grid[0]))
        assert trace.slots[row : row + launch.grid[0]] == expected
        row += launch.grid[0]
    assert row == len(trace.slots)
    with pytest.raises(ValueError, match=r"a trace of 1 slots; make it of batched_plan\.slots"):
        inputs = fresh_inputs.fresh(FOUR, tiny_weights, 1)
        BatchedStep(FOUR, tiny_weights, inputs, trace=TraceBuffer(trace.slots[:1], device="cpu"))


def product(**fields: int) -> Product:
    return dataclasses.replace(INTERPRETED.qkv, **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"qkv": product(rows=96)}, "qkv's 256 rows are no multiple of a program's 96"),
        ({"down": product(splits=3)}, "down's 256 columns in 3 splits of 2 ways do not fall into a first 16 and bl"),
        ({"out": product(first=256)}, "out's 128 columns in 2 splits of 2 ways do not fall into a first 256"),
        ({"head": product(splits=2)}, "head in 2 splits; it needs whole sums, give it 1"),
        ({"attend": dataclasses.replace(INTERPRETED.attend, heads=4)}, "2 query heads a key head are no multiple of a"),
        ({"out": product(splits=1, ways=1, prefetched=16)}, "out prefetches 16 numbers of a row; .* lines of 32, "),
        ({"out": product(splits=1, ways=1, prefetched=96)}, "out prefetches 96 numbers of a row; give it a power of"),
        ({"down": product(splits=2, ways=2, prefetched=64)}, "down prefetches 64 numbers of a row; .* 48 at most"),
        ({"attend": dataclasses.replace(INTERPRETED.attend, prefetched=32)}, "attend prefetches 1024 numbers of a row"),
        ({"parts": 3}, "hidden 128 is no multiple of 3 parts"),
    ],
)
def test_tiles_that_would_leave_something_out_are_refused(fields, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        batched_tiles.check(FOUR, dataclasses.replace(INTERPRETED, **fields))


def test_several_steps_of_several_sequences_are_refused() -> None:
    several = dataclasses.replace(FOUR, steps=2)
    with pytest.raises(ValueError, match="2 steps; these kernels make one"):
        batched_tiles.check(several, INTERPRETED)


@pytest.mark.parametrize("batch", [2, 8, 16, 17, 64])
def test_the_shipped_tiles_fit_the_1b_model_at_any_batch(batch: int) -> None:
    shape = workloads.LLAMA_1B
    of_batch: Decode = workloads.decode_workload(
        "llama-1b", shape, context=512, number="bf16", device="cuda", batch=batch
    )
    tiles = batched_tiles.tiles_for(of_batch)
    batched_tiles.check(of_batch, tiles)
    assert tiles == (HOPPER_8 if batch <= 16 else HOPPER_64)
    assert batched_tiles.columns(of_batch) >= batch
