"""What fits into a hardware's minutes of a night, and in which order."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from perfci import budget
from perfci.budget import Allowance, Claim


def claim(key: int, seconds: float | None = 60.0, *, priority: int = 50, waited: float = 0.0) -> Claim:
    return Claim(key, "h200", seconds, priority, waited)


def kept(*claims: Claim, minutes: float, spent: float = 0.0) -> tuple[int, ...]:
    return budget.split(claims, {"h200": Allowance(minutes * 60, spent * 60)}).kept


def test_urgent_jobs_come_first_then_what_has_waited_longest_then_the_order_given() -> None:
    backfill, nightly, check = claim(0, priority=25), claim(1, priority=50), claim(2, priority=100)
    assert kept(backfill, nightly, check, minutes=1) == (2,)
    assert kept(backfill, nightly, check, minutes=2) == (1, 2)
    assert kept(claim(0, waited=1), claim(1, waited=math.inf), claim(2, waited=5), minutes=2) == (1, 2)
    assert kept(claim(0), claim(1), claim(2), minutes=2) == (0, 1)


def test_what_was_spent_before_counts() -> None:
    assert kept(claim(0), claim(1), minutes=3, spent=2) == (0,)
    assert kept(claim(0), minutes=1, spent=5) == ()


def test_a_job_that_does_not_fit_stops_no_smaller_one() -> None:
    assert kept(claim(0, 600, waited=9), claim(1, 60), minutes=5) == (1,)


def test_a_job_of_unknown_length_and_a_hardware_without_a_limit_are_never_cut() -> None:
    assert kept(claim(0, None), claim(1), minutes=0.5) == (0,)
    assert budget.split([claim(0, 1e9)], {}).kept == (0,)


def test_what_was_cut_is_said_with_its_cost() -> None:
    allowance = Allowance(3600, 600)
    text = budget.told([claim(0, 150), claim(1, 60)], allowance, left=90.0, name=["1a2b", "3c4d"].__getitem__)
    assert text == (
        "1a2b (about 2.5 min), 3c4d (about 1 min): of 60 device minutes a night 10 were spent before it, and 1.5 are "
        "left beside what comes first"
    )


@given(
    st.lists(
        st.builds(
            Claim,
            st.just(0),
            st.sampled_from(["h200", "b200", "free"]),
            st.none() | st.floats(0, 100),
            st.sampled_from([25, 50, 100]),
            st.floats(0, 10),
        ),
        max_size=12,
    ),
    st.floats(0, 300),
)
def test_never_more_is_kept_than_is_allowed_and_nothing_is_cut_that_would_still_fit(
    claims: list[Claim], seconds: float
) -> None:
    numbered = [Claim(key, each.hardware, each.seconds, each.priority, each.waited) for key, each in enumerate(claims)]
    found = budget.split(numbered, {"h200": Allowance(seconds), "b200": Allowance(seconds)})
    assert sorted([*found.kept, *(each.key for each in found.cut)]) == list(range(len(claims)))
    for hardware in ("h200", "b200"):
        taken = [numbered[key].seconds or 0.0 for key in found.kept if numbered[key].hardware == hardware]
        assert math.fsum(taken) <= seconds + 1e-6
        assert found.left[hardware] >= 0
    assert all(each.seconds is not None and each.seconds > found.left[each.hardware] for each in found.cut)
