"""PyTorch's steps on a CPU: batches, and generations whose tokens are fed back without the host."""

from __future__ import annotations

import pytest
import torch

from kernels import reference, registry, workloads
from kernels.llama import inputs as fresh_inputs
from kernels.llama.torch_model import TorchGeneration, TorchStep
from kernels.llama.weights import Weights
from kernels.workloads import Decode
from perfci.bench import buffers, gate
from perfci.bench.case import Case
from perfci.bench.faults import IncorrectOutput
from perfci.model import Workload

FP32 = 2e-5
SIZES = ("b1-ctx21", "b1-gen5+6", "b4-ctx21")


def tiny_size(size: str) -> Decode:
    return workloads.named(f"decode/llama-tiny/{size}-fp32")


def error_of(workload: Decode, weights: Weights, inputs, outputs) -> float:
    if workload.steps == 1:
        expected = reference.decode(workload, weights, inputs, dtype=torch.float64)
    else:
        slack = reference.slack(FP32)
        expected = reference.generate_guided(workload, weights, inputs, outputs, dtype=torch.float64, slack=slack)
    return reference.worst_error(outputs, expected)


def case_of(workload: Decode, weights: Weights, prepare) -> Case:
    slack = reference.slack(FP32)
    return Case(
        workload=Workload(workload.name),
        implementation="torch",
        fresh_inputs=lambda seed: fresh_inputs.fresh(workload, weights, seed),
        guided_reference=lambda inputs, outputs: reference.generate_guided(
            workload, weights, inputs, outputs, dtype=torch.float64, slack=slack
        ),
        prepare=prepare,
        tolerance=FP32,
        exact=("token",),
    )


@pytest.mark.parametrize("size", SIZES)
def test_torch_eager_is_right_and_starts_again_at_each_call(size: str, tiny_weights: Weights) -> None:
    workload = tiny_size(size)
    inputs = fresh_inputs.fresh(workload, tiny_weights, 6)
    step = registry.entry("decode", "torch-eager").load()(workload, tiny_weights, inputs)
    for seed in (6, 7):
        inputs = fresh_inputs.fresh(workload, tiny_weights, seed)
        step.load(inputs)
        first = None
        for _ in range(2):
            buffers.poison(step.outputs.values())
            step()
            assert error_of(workload, tiny_weights, inputs, step.outputs) < FP32
            first = first or buffers.snapshot(step.outputs)
        assert buffers.same_bits(first, buffers.snapshot(step.outputs))


def test_a_generation_picks_what_single_steps_pick(tiny: Decode, tiny_weights: Weights) -> None:
    workload = tiny_size("b1-gen5+6")
    inputs = fresh_inputs.fresh(workload, tiny_weights, 9)
    whole = TorchStep(workload, tiny_weights, inputs)
    whole()
    picked = []
    now = inputs
    for _ in range(workload.steps):
        step = TorchStep(tiny, tiny_weights, now)
        step()
        picked.append(int(step.outputs["token"]))
        now = {"token": step.outputs["token"], "position": now["position"] + 1} | {
            kind: torch.cat([now[kind], torch.stack([step.outputs[f"{kind}.{i}"] for i in range(2)])], dim=2)
            for kind in ("keys", "values")
        }
    assert whole.outputs["token"].tolist() == picked
    torch.testing.assert_close(whole.outputs["logits"], step.outputs["logits"])


@pytest.mark.parametrize("size", ["b1-gen5+6", "b4-ctx21"])
def test_torch_compile_is_right_in_batches_and_generations(size: str, tiny_weights: Weights) -> None:
    workload = tiny_size(size)
    inputs = fresh_inputs.fresh(workload, tiny_weights, 1)
    step = registry.entry("decode", "torch-compile").load()(workload, tiny_weights, inputs)
    for seed in (2, 3):
        inputs = fresh_inputs.fresh(workload, tiny_weights, seed)
        step.load(inputs)
        buffers.poison(step.outputs.values())
        before = buffers.fingerprint(step.constants)
        step()
        assert error_of(workload, tiny_weights, inputs, step.outputs) < FP32
        assert buffers.fingerprint(step.constants) == before


def second_best(model: TorchGeneration) -> None:
    """The third step picks the token with the second greatest logit."""
    forward = TorchGeneration.forward

    def faulty() -> None:
        number = int(model.number)
        forward(model)
        if number == 2:
            model.fed.copy_(model.logits.topk(2).indices[:, 1])
            model.token[number] = model.fed[0]

    model.forward = faulty


def picked_but_not_fed_back(model: TorchGeneration) -> None:
    forward = TorchGeneration.forward

    def faulty() -> None:
        before = model.fed.clone()
        forward(model)
        model.fed.copy_(before)

    model.forward = faulty


def position_stays(model: TorchGeneration) -> None:
    forward = TorchGeneration.forward

    def faulty() -> None:
        forward(model)
        model.now.copy_(model.position)

    model.forward = faulty


def goes_on_from_where_it_ended(model: TorchGeneration) -> None:
    restart = TorchGeneration.restart

    def faulty() -> None:
        token = model.fed.clone()
        restart(model)
        if int(token):
            model.fed.copy_(token)

    model.restart = faulty


def last_step_left_out(model: TorchGeneration) -> None:
    forward = TorchGeneration.forward

    def faulty() -> None:
        if int(model.number) < 5:
            forward(model)

    model.forward = faulty


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (second_best, "token differs in 1 of 6"),
        (picked_but_not_fed_back, "is off by"),
        (position_stays, "not finite|is off by"),
        (goes_on_from_where_it_ended, "is off by"),
        (last_step_left_out, "not finite|is off by"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_gate_refuses_a_generation_with(plant, message: str, tiny_weights: Weights) -> None:
    workload = tiny_size("b1-gen5+6")

    def prepare(inputs) -> TorchStep:
        step = TorchStep(workload, tiny_weights, inputs)
        plant(step.model)
        return step

    with pytest.raises(IncorrectOutput, match=message):
        gate.check(case_of(workload, tiny_weights, prepare), seed=2)


def test_the_gate_accepts_a_generation(tiny_weights: Weights) -> None:
    workload = tiny_size("b1-gen5+6")
    case = case_of(workload, tiny_weights, lambda inputs: TorchStep(workload, tiny_weights, inputs))
    error = gate.check(case, seed=2).error
    assert error is not None and error < FP32
