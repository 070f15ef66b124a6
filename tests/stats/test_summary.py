from __future__ import annotations

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.stats.summary import summarize

samples = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=60)


@given(samples)
def test_a_summary_equals_numpy(values: list[float]) -> None:
    summary = summarize(values)
    middle = numpy.median(values)
    assert summary.n == len(values)
    assert summary.median == pytest.approx(middle, rel=1e-12)
    assert summary.mad == pytest.approx(numpy.median(numpy.abs(numpy.array(values) - middle)), rel=1e-9, abs=1e-15)
    assert summary.p10 == pytest.approx(numpy.quantile(values, 0.1), rel=1e-12)
    assert summary.p90 == pytest.approx(numpy.quantile(values, 0.9), rel=1e-12)


@given(samples)
def test_the_statistics_are_ordered_and_inside_the_samples(values: list[float]) -> None:
    summary = summarize(values)
    assert min(values) <= summary.p10 <= summary.median <= summary.p90 <= max(values)
    assert summary.mad >= 0


@given(samples, st.randoms())
def test_the_order_of_samples_does_not_matter(values: list[float], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert summarize(shuffled) == summarize(values)


def test_equal_samples_have_no_spread_at_all() -> None:
    summary = summarize([0.1] * 7)
    assert (summary.median, summary.mad, summary.p10, summary.p90) == (0.1, 0.0, 0.1, 0.1)


@pytest.mark.parametrize("values", [[], [float("nan")], [1.0, float("inf")]])
def test_nothing_and_numbers_that_are_none_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"no samples|finite"):
        summarize(values)
