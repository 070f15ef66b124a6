from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfci.stats.segmentation import SHORTEST, segment

values = st.lists(st.floats(-5, 5).map(lambda v: round(v, 3)), min_size=0, max_size=9)


def cost_of(sequence: list[float], cuts: tuple[int, ...], penalty: float) -> float:
    total = penalty * len(cuts)
    edges = (0, *cuts, len(sequence))
    for start, end in pairwise(edges):
        part = sequence[start:end]
        mean = sum(part) / len(part) if part else 0.0
        total += sum((value - mean) ** 2 for value in part)
    return total


def every_partition(n: int) -> list[tuple[int, ...]]:
    """The slow, obvious way: all sets of cuts that leave stretches of SHORTEST points or more."""
    sets = [c for size in range(n) for c in combinations(range(1, n), size)]
    edges = [(cuts, (0, *cuts, n)) for cuts in sets]
    return [cuts for cuts, e in edges if not cuts or all(b - a >= SHORTEST for a, b in pairwise(e))]


@settings(deadline=None)
@given(values, st.floats(0.01, 3))
def test_no_partition_is_cheaper_than_the_one_found(sequence: list[float], penalty: float) -> None:
    found = segment(sequence, penalty)
    assert found in every_partition(len(sequence)) or not sequence
    cheapest = min((cost_of(sequence, cuts, penalty) for cuts in every_partition(len(sequence))), default=0.0)
    assert cost_of(sequence, found, penalty) == pytest.approx(cheapest, abs=1e-9)


def test_too_few_points_are_one_stretch() -> None:
    assert segment([], 1.0) == ()
    assert segment([1.0, 9.0, 9.0], 0.001) == ()


def test_a_small_noise_on_a_large_level_keeps_its_digits() -> None:
    steps = [1e6 + 1e-3 * (i % 2) + (1.0 if i >= 20 else 0.0) for i in range(40)]
    assert segment(steps, 1e-3) == (20,)
