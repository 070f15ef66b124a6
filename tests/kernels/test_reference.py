"""The ground truth against a step in loops over Python floats."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from kernels import reference, workloads
from kernels.llama import inputs as fresh_inputs
from kernels.llama import weights as llama_weights
from kernels.llama.weights import Weights
from kernels.workloads import Decode
from tests.kernels import slow_llama

SCALING = workloads.RopeScaling(
    factor=32.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_context=64
)  # short enough that a head of 32 has kept, interpolated and stretched frequencies


@pytest.mark.parametrize("position", [1, 2, 7, 16, 20])
def test_the_reference_is_what_plain_loops_give(position: int, tiny: Decode, tiny_weights: Weights, draw) -> None:
    inputs, expected = draw(position, position)
    slow = slow_llama.decode(tiny.shape, tiny_weights, inputs)
    assert slow.keys() == expected.keys()
    assert slow["token"] == expected["token"].tolist()
    for name, rows in slow.items():
        # cosine and sine are float32 in the weights
        torch.testing.assert_close(torch.tensor(rows, dtype=expected[name].dtype), expected[name], rtol=1e-5, atol=1e-6)


def test_rope_scaling_is_what_plain_loops_give() -> None:
    shape = dataclasses.replace(workloads.LLAMA_TINY, rope_scaling=SCALING)
    cosine, sine = llama_weights.rotation(shape, 40)
    angles = torch.tensor(slow_llama.frequencies(shape), dtype=torch.float64) * 39
    torch.testing.assert_close(cosine[39], angles.cos().float(), rtol=0, atol=1e-6)
    torch.testing.assert_close(sine[39], angles.sin().float(), rtol=0, atol=1e-6)
    plain = torch.tensor(slow_llama.frequencies(workloads.LLAMA_TINY))
    ratio = torch.tensor(slow_llama.frequencies(shape)) / plain
    assert ratio[0] == 1 and float(ratio[-1]) == pytest.approx(1 / 32) and bool(((ratio > 1 / 32) & (ratio < 1)).any())


def test_float32_is_close_to_float64(tiny: Decode, tiny_weights: Weights, draw) -> None:
    inputs, expected = draw(5)
    single = reference.decode(tiny, tiny_weights, inputs, dtype=torch.float32)
    assert 0 < reference.worst_error(single, expected) < 1e-5


def test_fresh_inputs_differ_by_seed_and_have_a_clear_best_token(tiny: Decode, tiny_weights: Weights) -> None:
    first, same, other = (fresh_inputs.fresh(tiny, tiny_weights, seed) for seed in (1, 1, 2))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["keys"], other["keys"]) and not torch.equal(first["values"], other["values"])
    best = reference.decode(tiny, tiny_weights, first, dtype=torch.float64)["logits"][0].topk(2).values
    assert float(best[0] - best[1]) > 0.19
    assert 0.5 < float(reference.decode(tiny, tiny_weights, first, dtype=torch.float64)["logits"].std()) < 2


@pytest.mark.parametrize("position", [0, 21])
def test_a_position_outside_the_context_is_refused(position: int, tiny: Decode, tiny_weights: Weights) -> None:
    with pytest.raises(ValueError, match=f"position {position} is outside 1 .. 20"):
        fresh_inputs.fresh(tiny, tiny_weights, 0, position=position)


def test_each_sequence_of_a_batch_is_a_step_of_its_own(tiny: Decode, tiny_weights: Weights) -> None:
    batched = workloads.named("decode/llama-tiny/b4-ctx21-fp32")
    inputs = fresh_inputs.fresh(batched, tiny_weights, 3)
    found = reference.decode(batched, tiny_weights, inputs, dtype=torch.float64)
    heads = tiny.shape.kv_heads
    for sequence in range(4):
        rows = slice(sequence * heads, (sequence + 1) * heads)
        alone = {
            "token": inputs["token"][sequence : sequence + 1],
            "position": inputs["position"],
            "keys": inputs["keys"][:, rows],
            "values": inputs["values"][:, rows],
        }
        for name, right in reference.decode(tiny, tiny_weights, alone, dtype=torch.float64).items():
            mine = found[name][rows if name.startswith(("keys", "values")) else slice(sequence, sequence + 1)]
            torch.testing.assert_close(mine, right, rtol=1e-12, atol=1e-12)


def test_every_sequence_of_a_batch_gets_a_clear_best_token_and_keys_of_its_own(tiny_weights: Weights) -> None:
    batched = workloads.decode_workload(
        "llama-tiny", workloads.LLAMA_TINY, context=21, number="fp32", device="test", batch=32
    )  # so many that some first draws are not clear
    inputs = fresh_inputs.fresh(batched, tiny_weights, 3)
    best = reference.decode(batched, tiny_weights, inputs, dtype=torch.float64)["logits"].topk(2).values
    assert float((best[:, 0] - best[:, 1]).min()) > 0.19
    first = torch.randint(256, (32,), generator=torch.Generator().manual_seed(3))
    assert 0 < int((inputs["token"] != first).sum()) < 32  # those that were clear have kept their first token
    rows = inputs["keys"].view(2, 32, -1)
    assert len({float(row) for row in rows[0, :, 0]}) == 32


def slow_generation(workload: Decode, weights: Weights, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Greedy, step by step in loops over Python floats; every step's logits."""
    found: dict[str, list] = {"token": [], "logits": []}
    now = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in inputs.items()}
    for _ in range(workload.steps):
        step = slow_llama.decode(workload.shape, weights, now)
        rows = {name: torch.tensor(row, dtype=torch.float64) for name, row in step.items()}
        found["token"] += step["token"]
        found["logits"] += step["logits"]
        now = {"token": rows["token"].long(), "position": now["position"] + 1} | {
            kind: torch.cat([now[kind], torch.stack([rows[f"{kind}.{i}"] for i in range(workload.shape.layers)])], 2)
            for kind in ("keys", "values")
        }
    added = {
        f"{kind}.{layer}": now[kind][layer, :, workload.first_position :]
        for kind in ("keys", "values")
        for layer in range(workload.shape.layers)
    }
    return {
        "token": torch.tensor(found["token"]),
        "logits": torch.tensor(found["logits"], dtype=torch.float64),
        **added,
    }


@pytest.fixture(scope="module")
def generation(tiny_weights: Weights) -> tuple[Decode, dict[str, Tensor], dict[str, Tensor]]:
    workload = workloads.named("decode/llama-tiny/b1-gen5+6-fp32")
    inputs = fresh_inputs.fresh(workload, tiny_weights, 5)
    return workload, inputs, slow_generation(workload, tiny_weights, inputs)


def guided(generation, weights: Weights, token: Tensor, slack: float = 0.0) -> dict[str, Tensor]:
    workload, inputs, _ = generation
    outputs = {"token": token}
    return reference.generate_guided(workload, weights, inputs, outputs, dtype=torch.float64, slack=slack)


@pytest.mark.parametrize("head_rows", [16384, 100, 64])
def test_the_guided_reference_is_what_plain_loops_generate(
    head_rows: int, generation, tiny_weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "_HEAD_ROWS", head_rows)
    slow = generation[2]
    found = guided(generation, tiny_weights, slow["token"])
    assert found.keys() == slow.keys()
    assert torch.equal(found["token"], slow["token"])
    torch.testing.assert_close(found["logits"][0], slow["logits"][-1], rtol=1e-5, atol=1e-6)
    for name in found.keys() - {"token", "logits"}:
        torch.testing.assert_close(found[name], slow[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("step", [0, 3, 5])
@pytest.mark.parametrize("head_rows", [16384, 100])
def test_a_choice_is_accepted_within_the_slack_and_replaced_by_the_best_beyond_it(
    step: int, head_rows: int, generation, tiny_weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "_HEAD_ROWS", head_rows)
    slow = generation[2]
    logits = slow["logits"][step]
    (best, second), (winner, runner_up) = (part.tolist() for part in logits.topk(2))
    gap = (best - second) / float(logits.square().mean().sqrt())
    other = slow["token"].clone()
    other[step] = runner_up
    assert guided(generation, tiny_weights, other, slack=1.001 * gap)["token"][step] == runner_up
    assert guided(generation, tiny_weights, other, slack=0.999 * gap)["token"][step] == winner


def test_what_follows_a_choice_is_computed_from_it(generation, tiny_weights: Weights) -> None:
    slow = generation[2]
    other = slow["token"].clone()
    other[2] = (other[2] + 1) % 256
    mine, right = guided(generation, tiny_weights, other), guided(generation, tiny_weights, slow["token"])
    for layer in range(2):
        keys, same = mine[f"keys.{layer}"], right[f"keys.{layer}"]
        torch.testing.assert_close(keys[:, :3], same[:, :3], rtol=1e-12, atol=1e-12)
        assert float((keys[:, 3] - same[:, 3]).abs().max()) > 0.1


@pytest.mark.parametrize("wrong", [-1, 256, torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max])
def test_a_token_that_does_not_exist_is_replaced(wrong: int, generation, tiny_weights: Weights) -> None:
    token = generation[2]["token"].clone()
    token[3] = wrong
    found = guided(generation, tiny_weights, token, slack=1e9)
    assert 0 <= int(found["token"][3]) < 256
    assert all(bool(torch.isfinite(tensor).all()) for tensor in found.values())


def test_a_generation_of_a_batch_is_a_generation_of_each(generation, tiny_weights: Weights) -> None:
    workload, _, _ = generation
    batched = workloads.decode_workload(
        "llama-tiny", workload.shape, context=11, number="fp32", device="test", steps=6, batch=3
    )
    inputs = fresh_inputs.fresh(batched, tiny_weights, 8)
    token = torch.randint(256, (18,), generator=torch.Generator().manual_seed(1))
    found = reference.generate_guided(
        batched, tiny_weights, inputs, {"token": token}, dtype=torch.float64, slack=1e9
    )  # with so much slack any choice passes
    assert torch.equal(found["token"], token)
    for sequence in range(3):
        rows = slice(2 * sequence, 2 * sequence + 2)
        alone = {
            "token": inputs["token"][sequence : sequence + 1],
            "position": inputs["position"],
            "keys": inputs["keys"][:, rows],
            "values": inputs["values"][:, rows],
        }
        right = guided((workload, alone, {}), tiny_weights, token[sequence::3], slack=1e9)
        torch.testing.assert_close(found["logits"][sequence], right["logits"][0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(found["values.1"][rows], right["values.1"], rtol=1e-12, atol=1e-12)


def test_a_wrong_token_or_a_nan_is_no_small_error() -> None:
    right = {"logits": torch.tensor([1.0, 2.0]), "token": torch.tensor([1])}
    assert reference.worst_error(right, right) == 0
    assert reference.worst_error({**right, "token": torch.tensor([0])}, right) == float("inf")
    error = reference.worst_error({**right, "logits": torch.tensor([1.0, float("nan")])}, right)
    assert error != error
