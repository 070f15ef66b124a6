"""The ground truth against a step in loops over Python floats."""

from __future__ import annotations

import dataclasses

import pytest
import torch

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


def test_a_wrong_token_or_a_nan_is_no_small_error() -> None:
    right = {"logits": torch.tensor([1.0, 2.0]), "token": torch.tensor([1])}
    assert reference.worst_error(right, right) == 0
    assert reference.worst_error({**right, "token": torch.tensor([0])}, right) == float("inf")
    error = reference.worst_error({**right, "logits": torch.tensor([1.0, float("nan")])}, right)
    assert error != error
