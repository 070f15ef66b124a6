from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfci.bench.agreement import compare
from perfci.bench.faults import CaseError, IncorrectOutput


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_one_wrong_element_of_a_vocabulary_is_found_though_the_norm_hides_it() -> None:
    expected = normal(128_256)
    output = expected.clone()
    output[100_000] += 1.0
    norm_error = 1.0 / float(expected.norm())
    assert norm_error < 0.02  # a tolerance of two per cent would take it
    with pytest.raises(IncorrectOutput, match=r"at \[100000\]") as caught:
        compare({"logits": output}, {"logits": expected}, exact=(), tolerance=0.02)
    assert caught.value.error == pytest.approx(norm_error)


@settings(deadline=None)
@given(st.floats(1e-6, 0.05), st.integers(0, 1000), st.integers(1, 50_000))
def test_rounding_that_keeps_to_the_norm_keeps_to_each_element(tolerance: float, seed: int, size: int) -> None:
    expected = normal(size, seed=seed)
    noise = normal(size, seed=seed + 1)
    output = expected + noise * (0.99 * tolerance * expected.norm() / noise.norm())
    if size > 100:  # of fewer elements one may carry the whole error
        error = compare({"y": output}, {"y": expected}, exact=(), tolerance=tolerance)
        assert error == pytest.approx(0.99 * tolerance, rel=1e-6)
    too_far = expected + noise * (1.01 * tolerance * expected.norm() / noise.norm())
    with pytest.raises(IncorrectOutput):
        compare({"y": too_far}, {"y": expected}, exact=(), tolerance=tolerance)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_number_format_of_an_output_is_its_own_business(dtype: torch.dtype) -> None:
    expected = normal(64, 64)
    assert compare({"y": expected.to(dtype)}, {"y": expected}, exact=(), tolerance=0.01) < 0.01


def test_an_integer_must_be_equal_even_if_no_one_asked_for_it() -> None:
    token = {"token": torch.tensor([17])}
    assert compare({"token": torch.tensor([17], dtype=torch.int32)}, token, exact=(), tolerance=0.5) == 0
    with pytest.raises(IncorrectOutput, match=r"differs in 1 of 1 elements: 18 at \[0\], the reference has 17"):
        compare({"token": torch.tensor([18])}, token, exact=(), tolerance=0.5)


def test_a_single_number_without_dimensions_is_compared_too() -> None:
    loss = {"loss": torch.tensor(2.0), "step": torch.tensor(3)}
    assert compare(loss, loss, exact=(), tolerance=0.0) == 0
    with pytest.raises(IncorrectOutput, match="loss is off by"):
        compare({**loss, "loss": torch.tensor(3.0)}, loss, exact=(), tolerance=0.1)
    with pytest.raises(IncorrectOutput, match=r"step differs in 1 of 1 elements: 4 at \[\]"):
        compare({**loss, "step": torch.tensor(4)}, loss, exact=(), tolerance=0.1)


def test_an_empty_expert_has_zero_gradients_and_nothing_else() -> None:
    expected = {"used": normal(4), "empty": torch.zeros(4)}
    assert compare(expected, expected, exact=(), tolerance=0.1) == 0
    with pytest.raises(IncorrectOutput, match="empty is off by inf") as caught:
        compare({**expected, "empty": torch.full((4,), 1e-9)}, expected, exact=(), tolerance=0.1)
    assert caught.value.error is None  # infinity is no number for a result file


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_never_close(bad: float) -> None:
    output = normal(8)
    output[3] = bad
    with pytest.raises(IncorrectOutput, match="y is not finite in 1 of 8"):
        compare({"y": output}, {"y": normal(8)}, exact=(), tolerance=0.9)


def test_a_reference_that_cannot_judge_is_no_fault_of_the_implementation() -> None:
    zeros = {"y": torch.zeros(3)}
    with pytest.raises(CaseError, match="zero everywhere"):
        compare(zeros, zeros, exact=(), tolerance=0.1)
    with pytest.raises(CaseError, match="not finite"):
        compare({"y": normal(1)}, {"y": torch.tensor([math.nan])}, exact=(), tolerance=0.1)
    with pytest.raises(CaseError, match="exact names token"):
        compare({"y": normal(1)}, {"y": normal(1)}, exact=("token",), tolerance=0.1)
