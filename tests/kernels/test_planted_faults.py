"""Every tolerance can fail: a step with one small fault is refused by perfci's gate, at the loosest tolerance there is.

Faults are planted in the list of launches, so that the step is otherwise the one that ships.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch

from kernels import reference, registry
from kernels.llama import operations
from kernels.llama.pipeline import Launch, ModularStep
from kernels.llama.weights import Weights
from kernels.workloads import Decode
from perfci.bench import gate
from perfci.bench.agreement import IncorrectOutput
from perfci.bench.case import Case
from perfci.model import Workload
from tests.kernels.conftest import SMALL_TILES

Plan = tuple[Launch, ...]
OPERATIONS_A_LAYER = 5
TORCH = registry.entry("decode", "torch-eager").tolerance.bf16
MODULAR = registry.entry("decode", "modular").tolerance.bf16


def without(plan: Plan, index: int) -> Plan:
    return (*plan[:index], *plan[index + 1 :])


def replaced(plan: Plan, name: str, **keywords: object) -> Plan:
    return tuple(
        dataclasses.replace(launch, keywords={**launch.keywords, **keywords}) if launch.name == name else launch
        for launch in plan
    )


def skipped_layer(step: ModularStep) -> Plan:
    return (*step.plan[:1], *step.plan[1 + OPERATIONS_A_LAYER :])


def skipped_feed_forward(step: ModularStep) -> Plan:
    return without(without(step.plan, 5), 4)


def stale_buffer(step: ModularStep) -> Plan:
    """The last layer takes what the first attended to."""
    last_attend = len(step.plan) - 2 - OPERATIONS_A_LAYER + 1
    assert step.plan[last_attend].name == "attend"
    return without(step.plan, last_attend)


def missing_residual(step: ModularStep) -> Plan:
    last_down = len(step.plan) - 3
    assert step.plan[last_down].name == "down"
    return without(step.plan, last_down)


def at_an_earlier_position(step: ModularStep, names: frozenset[str]) -> Plan:
    earlier = step.buffers.position - 1

    def moved(launch: Launch) -> Launch:
        arguments = tuple(earlier if tensor is step.buffers.position else tensor for tensor in launch.arguments)
        return dataclasses.replace(launch, arguments=arguments) if launch.name in names else launch

    return tuple(map(moved, step.plan))


def wrong_position(step: ModularStep) -> Plan:
    return at_an_earlier_position(step, frozenset({"qkv", "attend"}))


def one_key_short(step: ModularStep) -> Plan:
    """Attention leaves its own position out; everything else is right."""
    return at_an_earlier_position(step, frozenset({"attend"}))


def wrong_kv_head(step: ModularStep) -> Plan:
    return replaced(step.plan, "attend", KV_HEADS=1)


def wrong_norm_weight(step: ModularStep) -> Plan:
    last = len(step.plan) - 2
    head = step.plan[last]
    arguments = (head.arguments[0], step.weights.norms[0], *head.arguments[2:])
    return (*step.plan[:last], dataclasses.replace(head, arguments=arguments), step.plan[-1])


def zero_tail(step: ModularStep) -> Plan:
    """The last program of the head writes zeros: 64 of 256 logits."""
    last = len(step.plan) - 2
    head = step.plan[last]
    rows = SMALL_TILES.head.rows * SMALL_TILES.head_tiles

    class Zeroed:
        def __getitem__(self, grid):
            def launch(*arguments, **keywords):
                head.kernel[grid](*arguments, **keywords)
                step.buffers.logits[:, -rows:] = 0

            return launch

    return (*step.plan[:last], dataclasses.replace(head, kernel=Zeroed()), step.plan[-1])


def unwritten_tail(step: ModularStep) -> Plan:
    last = len(step.plan) - 2
    head = step.plan[last]
    return (*step.plan[:last], dataclasses.replace(head, grid=(head.grid[0] - 1,)), step.plan[-1])


def no_token(step: ModularStep) -> Plan:
    assert step.plan[-1].kernel is operations.pick
    return step.plan[:-1]


FAULTS: dict[Callable[[ModularStep], Plan], tuple[float, str]] = {
    skipped_layer: (TORCH, "not finite|is off by"),
    skipped_feed_forward: (TORCH, "is off by"),
    stale_buffer: (TORCH, "is off by"),
    missing_residual: (TORCH, "is off by"),
    wrong_position: (TORCH, "not finite"),
    one_key_short: (TORCH, "is off by"),
    wrong_kv_head: (TORCH, "is off by"),
    wrong_norm_weight: (TORCH, "is off by"),
    zero_tail: (TORCH, "is off by"),
    unwritten_tail: (TORCH, "not finite"),
    no_token: (TORCH, "token differs"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_gate_refuses(fault: Callable[[ModularStep], Plan], tiny: Decode, tiny_weights: Weights, draw) -> None:
    tolerance, message = FAULTS[fault]

    def prepare(inputs) -> ModularStep:
        step = ModularStep(tiny, tiny_weights, inputs, tiles=SMALL_TILES)
        step.plan = fault(step)
        return step

    case = Case(
        workload=Workload(tiny.name),
        implementation="faulty",
        fresh_inputs=lambda seed: draw(seed)[0],
        reference=lambda inputs: reference.decode(tiny, tiny_weights, inputs, dtype=torch.float64),
        prepare=prepare,
        tolerance=tolerance,
        exact=("token",),
    )
    with pytest.raises(IncorrectOutput, match=message):
        gate.check(case, seed=7)
