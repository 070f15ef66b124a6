from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.model import Control, Workload
from perfci.stats.ceiling import ceiling_fraction, floor_latency

MIB = 1024 * 1024
CACHE = Control("read_bandwidth_cache", "B/s", 12e12, 16 * MIB)
MEMORY = Control("read_bandwidth_memory", "B/s", 4e12, 4096 * MIB)
MATMUL = Control("matmul_rate", "flop/s", 7e14)
CONTROLS = (CACHE, MEMORY, MATMUL)


def a_workload(size: int, *, flops: int = 0) -> Workload:
    return Workload("w", tokens=1, bytes_moved=size, flops=flops, working_set_bytes=size)


def test_a_working_set_that_fits_the_cache_is_charged_at_the_cache_rate() -> None:
    assert floor_latency(a_workload(16 * MIB), CONTROLS) == pytest.approx(16 * MIB / 12e12)


def test_a_working_set_far_beyond_the_cache_is_charged_almost_wholly_at_the_memory_rate() -> None:
    size = 2400 * MIB
    floor = floor_latency(a_workload(size), CONTROLS)
    assert floor is not None
    assert 0.97 * size / 4e12 < floor < size / 4e12


def test_arithmetic_decides_where_it_takes_longer_than_traffic() -> None:
    assert floor_latency(a_workload(16 * MIB, flops=10**12), CONTROLS) == pytest.approx(1e12 / 7e14)


def test_a_working_set_below_every_measured_one_has_no_traffic_bound() -> None:
    assert floor_latency(a_workload(MIB), CONTROLS) is None
    assert floor_latency(a_workload(MIB), (MEMORY,)) is None


def test_memory_alone_bounds_what_is_as_large_as_it_was_measured_over() -> None:
    assert floor_latency(a_workload(4096 * MIB), (MEMORY,)) == pytest.approx(4096 * MIB / 4e12)


def test_without_a_statement_or_a_control_there_is_no_ceiling() -> None:
    assert floor_latency(Workload("w"), CONTROLS) is None
    assert floor_latency(a_workload(64 * MIB, flops=5), ()) is None
    assert floor_latency(a_workload(128 * MIB), (CACHE,)) is None
    assert ceiling_fraction(None, 1.0) is None
    assert ceiling_fraction(1.0, None) is None


def test_a_memory_that_reads_faster_than_its_cache_is_noise_and_bounds_both() -> None:
    odd = Control("read_bandwidth_memory", "B/s", 20e12, 4096 * MIB)
    assert floor_latency(a_workload(16 * MIB), (CACHE, odd)) == pytest.approx(16 * MIB / 20e12)
    assert floor_latency(a_workload(4096 * MIB), (CACHE, odd)) == pytest.approx(4096 * MIB / 20e12)


@given(st.integers(16 * MIB, 10**12), st.integers(0, 10**15))
def test_the_floor_lies_between_the_cache_bound_and_the_memory_bound(size: int, flops: int) -> None:
    floor = floor_latency(a_workload(size, flops=flops), CONTROLS)
    arithmetic = flops / 7e14
    assert floor is not None
    assert max(size / 12e12, arithmetic) * (1 - 1e-9) <= floor <= max(size / 4e12, arithmetic) * (1 + 1e-9)


@given(st.integers(16 * MIB, 10**11), st.integers(1, 10**9))
def test_a_larger_working_set_is_never_quicker(size: int, more: int) -> None:
    smaller, larger = (floor_latency(a_workload(s), CONTROLS) for s in (size, size + more))
    assert smaller is not None
    assert larger is not None
    assert smaller <= larger * (1 + 1e-9)


def test_a_ceiling_fraction_of_one_is_the_ceiling() -> None:
    assert ceiling_fraction(2.0, 2.0) == 1.0
    assert ceiling_fraction(1.0, 4.0) == 0.25
