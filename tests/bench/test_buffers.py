from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfci.bench import buffers

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.int8, torch.uint8)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool])
def test_poison_changes_every_element_of_every_kind(dtype: torch.dtype) -> None:
    tensor = torch.ones(5).to(dtype)
    before = tensor.clone()
    buffers.poison([tensor])
    assert bool((tensor.to(torch.float64) != before.to(torch.float64)).all())
    assert bool(torch.isnan(tensor.to(torch.float64)).all()) == dtype.is_floating_point


def test_poison_goes_through_a_view_and_no_further() -> None:
    whole = torch.zeros(4, 4)
    buffers.poison([whole[:, 1]])
    assert torch.isnan(whole).sum() == 4


def test_equal_bits_are_not_equal_numbers() -> None:
    zero, other = {"y": torch.tensor([0.0])}, {"y": torch.tensor([-0.0])}
    nan = {"y": torch.tensor([math.nan])}
    assert buffers.same_bits(zero, zero)
    assert buffers.same_bits(nan, {"y": nan["y"].clone()})
    assert not buffers.same_bits(zero, other)
    assert not buffers.same_bits(zero, {"y": torch.tensor([0])})
    assert not buffers.same_bits(zero, {})


@settings(deadline=None)
@given(st.integers(1, 300), st.data())
def test_a_fingerprint_sees_one_flipped_bit_wherever_it_is(size: int, data: st.DataObject) -> None:
    tensor = torch.arange(size, dtype=torch.uint8)
    before = buffers.fingerprint([tensor])
    place = data.draw(st.integers(0, size - 1))
    tensor[place] ^= 1 << data.draw(st.integers(0, 7))
    assert buffers.fingerprint([tensor]) != before


def test_a_fingerprint_sees_two_elements_that_changed_places() -> None:
    tensor = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    before = buffers.fingerprint([tensor])
    tensor[[3, 700]] = tensor[[700, 3]]
    assert buffers.fingerprint([tensor]) != before


def test_a_fingerprint_sees_two_chunks_that_changed_places() -> None:
    chunk = buffers._CPU_CHUNK_WORDS
    tensor = torch.arange(3 * chunk + 5, dtype=torch.int64)
    swapped = torch.cat([tensor[chunk : 2 * chunk], tensor[:chunk], tensor[2 * chunk :]])
    assert buffers.fingerprint([tensor]) != buffers.fingerprint([swapped])


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool])
def test_a_fingerprint_depends_on_contents_alone(dtype: torch.dtype) -> None:
    tensor = torch.ones(37).to(dtype)
    shifted = torch.cat([torch.zeros(3).to(dtype), tensor])[3:]
    strided = torch.stack([tensor, torch.zeros(37).to(dtype)], dim=1)[:, 0]
    assert buffers.fingerprint([tensor]) == buffers.fingerprint([shifted]) == buffers.fingerprint([strided])
    assert buffers.fingerprint([]) == ()
    assert len(buffers.fingerprint([torch.empty(0), tensor])) == 2
