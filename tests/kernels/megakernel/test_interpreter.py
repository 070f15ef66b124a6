from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

from kernels import reference, workloads
from kernels.llama import weights as llama_weights
from kernels.llama.inputs import buffers, fresh
from kernels.llama.megakernel.fuzzer import Fuzzed, Outputs, launched
from kernels.llama.megakernel.instructions import Kind
from kernels.llama.megakernel.interpreter import Deadlock, run
from kernels.llama.megakernel.layout import Layout
from kernels.llama.megakernel.schedule import schedule
from kernels.llama.megakernel.semantics import scratch
from kernels.llama.weights import Weights
from kernels.workloads import LLAMA_TINY, Decode, decode_workload
from tests.kernels.megakernel.faults import changed, one, waits_for

GENERATION = workloads.named("decode/llama-tiny/b1-gen5+6-fp32")


def same(found: Outputs, expected: Outputs) -> bool:
    return all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("rows", [16, 8, 4])
@pytest.mark.parametrize("splits", [1, 2, 3])
def test_a_step_agrees_with_the_reference(rows: int, splits: int, tiny: Decode, tiny_weights: Weights, draw) -> None:
    inputs, expected = draw(5)
    tape = schedule(tiny, programs=3, rows=rows, splits=splits)
    (outputs,) = launched(tape, tiny, tiny_weights, [inputs])
    assert reference.worst_error(outputs, expected) < 2e-6


def test_float64_weights_are_computed_with_in_float64(tiny: Decode, tiny_weights: Weights, draw) -> None:
    doubles = Weights(*(getattr(tiny_weights, field.name).double() for field in fields(Weights)))
    inputs, expected = draw(6)
    live = buffers(tiny, device="cpu", logits=torch.float64)
    live.load(inputs)
    tape = schedule(tiny, programs=3, rows=8, splits=2)
    run(tape, tiny, doubles, live, scratch(tiny, tape, doubles))
    logits = live.logits.double()
    assert float((logits - expected["logits"]).norm() / expected["logits"].norm()) < 1e-7  # the new key row is float32


def test_new_rows_are_rounded_to_the_cache_and_attended_to_as_rounded() -> None:
    workload = decode_workload("llama-tiny", LLAMA_TINY, context=21, number="bf16", device="test")
    weights = llama_weights.random(workload, device="cpu", seed=3)
    inputs = fresh(workload, weights, 2)
    expected = reference.decode(workload, weights, inputs, dtype=torch.float64)
    (outputs,) = launched(schedule(workload, programs=3, rows=16, splits=2), workload, weights, [inputs])
    assert outputs["keys.1"].dtype == torch.bfloat16 and outputs["logits"].dtype == torch.float32
    assert 1e-5 < reference.worst_error(outputs, expected) < 5e-3


@pytest.mark.parametrize("number", ["fp32", "bf16"])
def test_outputs_do_not_depend_on_how_many_programs_share_the_work(number) -> None:
    """One program sums a row, always in the same order; only `splits` changes an order, and is the same here."""
    workload = replace(GENERATION, number=number)
    weights = llama_weights.random(workload, device="cpu", seed=3)
    inputs = fresh(workload, weights, 3)
    one, three, seven = (
        next(launched(schedule(workload, programs=programs, rows=8, splits=2), workload, weights, [inputs]))
        for programs in (1, 3, 7)
    )
    assert same(three, one) and same(seven, one)


def test_a_generation_feeds_its_own_tokens_and_starts_again_at_the_loaded_one(tiny_weights: Weights) -> None:
    inputs = fresh(GENERATION, tiny_weights, 4)
    tape = schedule(GENERATION, programs=3, rows=16, splits=2)
    first, second = launched(tape, GENERATION, tiny_weights, [inputs, inputs])
    assert same(second, first)
    now = dict(inputs)
    for step in range(GENERATION.steps):
        expected = reference.decode(GENERATION, tiny_weights, now, dtype=torch.float64)
        assert torch.equal(first["token"][step : step + 1], expected["token"])
        rows = {name: first[name][:, step : step + 1] for name in expected if name.startswith(("keys", "values"))}
        assert reference.worst_error(rows, {name: expected[name] for name in rows}) < 2e-6
        now = {
            "token": first["token"][step : step + 1],
            "position": now["position"] + 1,
            "keys": torch.cat([now["keys"], torch.stack([rows[f"keys.{layer}"] for layer in (0, 1)])], dim=2),
            "values": torch.cat([now["values"], torch.stack([rows[f"values.{layer}"] for layer in (0, 1)])], dim=2),
        }
    assert reference.worst_error({"logits": first["logits"]}, {"logits": expected["logits"]}) < 2e-6


def test_counters_may_wrap_around(tiny_weights: Weights) -> None:
    tape = schedule(GENERATION, programs=3, rows=16, splits=2)
    inputs = fresh(GENERATION, tiny_weights, 4)
    (expected,) = launched(tape, GENERATION, tiny_weights, [inputs])
    live, between = buffers(GENERATION, device="cpu", logits=torch.float32), scratch(GENERATION, tape, tiny_weights)
    live.load(inputs)
    epoch = (1 << 31) // 3 - 2  # counters with three arrivals pass 2 ** 31 within the six steps
    between.epoch.fill_(epoch)
    for program in tape.programs:
        for instruction in program:
            if instruction.signal is not None:
                between.counters[instruction.signal] += epoch
    run(tape, GENERATION, tiny_weights, live, between, order=Fuzzed(1, programs=3))
    assert int(between.counters.min()) < 0 and int(between.epoch) == epoch + 6
    assert same(live.outputs(GENERATION.first_position), expected)


def test_a_deadlock_names_program_instruction_and_counter(tiny: Decode, tiny_weights: Weights, draw) -> None:
    tape = schedule(tiny, programs=3, rows=16, splits=2)
    layout = Layout(tiny, 16, splits=2)
    program, index = one(tape, 0, lambda i: i.kind is Kind.OUT and i.layer == 1 and i.signal is not None)
    silent = changed(tape, (program, index), signal=None)
    with pytest.raises(Deadlock, match=r"program \d waits at GATE_UP of layer 1, tile \d+, for mid\[1\] to reach 3"):
        list(launched(silent, tiny, tiny_weights, [draw(1)[0]]))
    never = changed(tape, one(tape, 0, waits_for(layout, "best")), signal=None)
    list(launched(never, tiny, tiny_weights, [draw(1)[0]]))  # nobody waits for the token of a last step


def test_a_step_poisons_what_programs_hand_to_each_other(tiny: Decode, tiny_weights: Weights, draw) -> None:
    tape = schedule(tiny, programs=1, rows=16, splits=2)
    live, between = buffers(tiny, device="cpu", logits=torch.float32), scratch(tiny, tape, tiny_weights)
    live.load(draw(1)[0])
    run(tape, tiny, tiny_weights, live, between)
    stale = replace(tape, programs=(tuple(i for i in tape.programs[0] if i.kind is not Kind.ATTEND),))
    bridged = replace(
        stale, programs=(tuple(replace(i, wait=None) if i.kind is Kind.OUT else i for i in stale.programs[0]),)
    )
    run(bridged, tiny, tiny_weights, live, between, poison=False)
    assert not live.logits.isnan().any()
    run(bridged, tiny, tiny_weights, live, between)
    assert live.logits.isnan().all()
