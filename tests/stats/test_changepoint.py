from __future__ import annotations

import math
import random
import warnings
from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perfci.stats.changepoint import Observation, find, levels, normal_deviate, standard_error, student_t


def found(values: Sequence[float], *, positions: Sequence[int] | None = None, minimum_history: int = 8) -> list[int]:
    places = positions or range(1, len(values) + 1)
    observations = [Observation(p, "era", v) for p, v in zip(places, values, strict=True)]
    return [change.index for change in find(levels(observations), minimum_history=minimum_history)]


def noisy(level: float, count: int, noise: float, seed: int) -> list[float]:
    source = random.Random(seed)
    return [level * math.exp(source.gauss(0, noise)) for _ in range(count)]


# The first golden series, as a picture:
#   1.1 |         x
#   1.0 | x  xx
#   0.9 |   x      x       0.5 |            xxxxx
GOLDEN = (
    ([1.02, 0.95, 0.99, 1.00, 1.12, 0.90, 0.50, 0.51, 0.48, 0.48, 0.55], [6]),
    ([1, 1, 2, 1, 1, 8, 8, 8, 9, 8, 9], [5]),
)


@pytest.mark.parametrize(("values", "expected"), GOLDEN)
def test_golden_series_have_one_step_each(values: list[float], expected: list[int]) -> None:
    assert found(values) == expected


def test_zeros_are_no_measurement_and_cause_no_warning() -> None:
    values = [0, 0, 0, 1.00, 1.12, 0.90, 0.50, 0.51, 0.48, 0.48, 0.55]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert found(values) == found(values[3:])


def test_steps_that_are_each_small_are_each_found() -> None:
    values = noisy(1.00, 10, 0.002, 1) + noisy(1.04, 10, 0.002, 2) + noisy(1.08, 10, 0.002, 3)
    assert found(values) == [10, 20]


def test_after_thirty_equal_values_one_higher_is_no_change_and_two_are_judged_against_a_floor() -> None:
    assert found([1.0] * 30 + [1.003]) == []
    assert found([1.0] * 30 + [1.0003] * 2) == []
    assert found([1.0] * 30 + [1.02] * 2) == [30]


def test_the_clocks_resolution_is_a_floor() -> None:
    coarse = [Observation(i, "era", 1.0 if i <= 30 else 1.02, resolution=0.02) for i in range(1, 36)]
    fine = [Observation(i, "era", 1.0 if i <= 30 else 1.02, resolution=1e-6) for i in range(1, 36)]
    assert find(levels(coarse), minimum_history=8) == ()
    assert [c.index for c in find(levels(fine), minimum_history=8)] == [30]


def test_noise_within_the_processes_and_between_them_is_a_floor() -> None:
    def history(*, error: float, between: float) -> tuple[int, ...]:
        observations = [
            Observation(i, "era", (1.0 if i <= 30 else 1.03) + offset * between, error=error)
            for i in range(1, 36)
            for offset in (-1, 0, 1)
        ]
        return tuple(change.index for change in find(levels(observations), minimum_history=8))

    assert history(error=0.0, between=0.0) == (30,)
    assert history(error=0.05, between=0.0) == ()
    assert history(error=0.0, between=0.05) == ()


@pytest.mark.parametrize("later", [10, 25, 50, 75])
def test_a_second_step_is_found_after_the_first(later: int) -> None:
    values = noisy(100, 30, 0.001, 4) + noisy(101, later, 0.001, 5) + noisy(102, 20, 0.001, 6)
    assert found(values) == [30, 30 + later]


def test_commits_are_ordered_by_ancestry_not_by_the_time_of_the_report() -> None:
    observations = [Observation(position, "era", value) for position, value in ((1, 10), (4, 20), (2, 10), (3, 20))]
    history = levels(observations)
    assert [level.position for level in history] == [1, 2, 3, 4]
    assert [change.index for change in find(history, minimum_history=4)] == [2]


def test_gaps_in_the_positions_change_nothing_and_are_not_filled_in() -> None:
    values = noisy(1.0, 7, 0.002, 7) + noisy(1.1, 5, 0.002, 8)
    gaps = [1, 2, 7, 8, 9, 30, 31, 32, 33, 90, 91, 92]
    assert found(values) == found(values, positions=gaps) == [7]
    assert len(levels([Observation(p, "era", v) for p, v in zip(gaps, values, strict=True)])) == len(gaps)


def test_a_change_of_harness_or_environment_is_blamed_on_no_commit() -> None:
    values = [1.0] * 20 + [4.0] * 20
    observations = [Observation(i, "old" if i < 20 else "new", v) for i, v in enumerate(values)]
    assert find(levels(observations), minimum_history=8) == ()


def test_a_step_inside_a_new_era_is_still_found_at_its_place_in_the_whole_history() -> None:
    values = [1.0] * 20 + [4.0] * 10 + [4.4] * 10
    observations = [Observation(i, "old" if i < 20 else "new", v) for i, v in enumerate(values)]
    assert [c.index for c in find(levels(observations), minimum_history=8)] == [30]


def test_older_commits_measured_again_in_a_new_era_stay_apart_from_their_first_measurement() -> None:
    first = [Observation(i, "old", 1.0) for i in range(1, 21)]
    again = [Observation(i, "new", 1.5) for i in range(11, 21)]
    history = levels([*first, *again])
    assert len(history) == 30
    assert find(history, minimum_history=8) == ()


def test_an_isolated_outlier_is_no_change_and_hides_none() -> None:
    values = noisy(1.0, 40, 0.003, 9)
    values[12] = 1.4
    values[25], values[26] = 1.3, 1.35
    assert found(values) == []
    assert found(values + noisy(1.03, 10, 0.003, 10)) == [40]


@pytest.mark.parametrize("length", [3, 4, 6, 9, 20])
def test_a_level_that_is_left_again_is_two_changes(length: int) -> None:
    values = noisy(1.0, 20, 0.002, 14) + noisy(1.2, length, 0.002, 15) + noisy(1.0, 12, 0.002, 16)
    assert found(values) == [20, 20 + length]


def test_a_bad_night_beside_a_good_one_is_no_level() -> None:
    assert found([*noisy(1.0, 30, 0.003, 11), 1.2, 1.0]) == []
    assert found([*noisy(1.0, 30, 0.003, 11), 1.0, 1.2]) == []


@pytest.mark.parametrize(
    "values", [[], [1.0], [1.0] * 50, [math.nan] * 20, [math.nan, math.inf, -1.0, 0.0], [2.0] * 7 + [3.0]]
)
def test_degenerate_histories_have_no_change(values: list[float]) -> None:
    assert found(values) == []


def test_a_young_history_says_nothing() -> None:
    assert found([1.0] * 4 + [2.0] * 3) == []
    assert found([1.0] * 4 + [2.0] * 4) == [4]


def test_both_directions_are_found_and_the_ratio_is_that_of_the_levels() -> None:
    history = levels(
        [Observation(i, "era", v) for i, v in enumerate(noisy(2.0, 30, 0.002, 12) + noisy(1.6, 10, 0.002, 13))]
    )
    (faster,) = find(history, minimum_history=8)
    assert faster.ratio == pytest.approx(0.8, rel=0.005)
    assert faster.low < faster.ratio < faster.high < 1


def test_the_interval_holds_the_true_ratio_in_nineteen_of_twenty_trials() -> None:
    held = 0
    for trial in range(200):
        values = noisy(1.0, 30, 0.004, 100 + trial) + noisy(1.05, 12, 0.004, 900 + trial)
        (change,) = find(levels([Observation(i, "era", v) for i, v in enumerate(values)]), minimum_history=8)
        held += change.low <= 1.05 <= change.high
    assert held >= 182  # 190 expected; 182 and fewer have a chance of 1 %


def test_a_year_of_plain_noise_reports_nothing_in_a_hundred_series() -> None:
    assert [found(noisy(1.0, 120, 0.01, 2000 + series)) for series in range(100)] == [[]] * 100


histories = st.lists(st.floats(0.5, 2.0), min_size=8, max_size=40)


@settings(deadline=None)
@given(histories, st.floats(1e-6, 1e6))
def test_the_unit_does_not_matter(values: list[float], scale: float) -> None:
    assert found([value * scale for value in values]) == found(values)


@settings(deadline=None)
@given(histories, st.integers(1, 1000), st.integers(1, 50))
def test_where_on_the_branch_a_history_lies_does_not_matter(values: list[float], start: int, stride: int) -> None:
    positions = [start + stride * i for i in range(len(values))]
    assert found(values, positions=positions) == found(values)


@settings(deadline=None)
@given(histories)
def test_slower_and_faster_are_treated_alike(values: list[float]) -> None:
    assert found([1 / value for value in values]) == found(values)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 12), st.floats(0.9, 1.1)), min_size=1, max_size=40), st.randoms())
def test_the_order_of_processes_does_not_matter(pairs: list[tuple[int, float]], source: random.Random) -> None:
    observations = [Observation(position, "era", value) for position, value in pairs]
    shuffled = list(observations)
    source.shuffle(shuffled)
    assert levels(shuffled) == levels(observations)
    assert find(levels(shuffled), minimum_history=2) == find(levels(observations), minimum_history=2)


@settings(deadline=None)
@given(st.floats(0.02, 1.0), st.integers(8, 30), st.integers(4, 30), st.integers(0, 10**6))
def test_a_step_far_above_the_noise_is_found_where_it_is(step: float, before: int, after: int, seed: int) -> None:
    assume(step > 0)
    values = noisy(1.0, before, 0.001, seed) + noisy(1.0 + step, after, 0.001, seed + 1)
    assert before in found(values)


@settings(deadline=None)
@given(st.lists(st.one_of(st.floats(), st.floats(1e-300, 1e300)), max_size=30))
def test_no_history_makes_it_fail(values: list[float]) -> None:
    history = levels([Observation(i, "era", v) for i, v in enumerate(values)])
    for change in find(history, minimum_history=2):
        assert 0 < change.index < len(history)
        assert change.ratio > 0


def test_wallaces_approximation_agrees_with_printed_tables() -> None:
    # Student's t at a two-sided 1 % and 0.1 %, against normal deviates of 2.5758 and 3.2905.
    for freedom, t_one_percent, t_one_permille in (
        (4, 4.604, 8.610),
        (6, 3.707, 5.959),
        (10, 3.169, 4.587),
        (60, 2.660, 3.460),
    ):
        assert normal_deviate(t_one_percent, freedom) == pytest.approx(2.5758, rel=0.015)
        assert normal_deviate(t_one_permille, freedom) == pytest.approx(3.2905, rel=0.015)
        assert student_t(normal_deviate(4.2, freedom), freedom) == pytest.approx(4.2)


def test_one_sample_means_unknown_noise_not_zero_noise_and_more_samples_are_surer() -> None:
    assert standard_error(0.0, 1) == 0.0
    assert standard_error(1.0, 100) == pytest.approx(standard_error(1.0, 25) / 2)
