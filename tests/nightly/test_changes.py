"""From points to changes: what is relevant, what was taken back, how a commit stands against its past."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta

import pytest

from perfci import changes
from perfci.config import Policy
from perfci.model import ChangeKind, Commit, Direction, Origin, Status
from perfci.store.rows import Point
from tests.build import EPOCH, a_commit

POLICY = Policy()


def a_point(
    position: int | None, median: float | None, *, index: int = 0, commit: Commit | None = None, **more: object
) -> Point:
    facts: dict[str, object] = {
        "series_id": 1,
        "run_id": (position or 0) * 10 + index,
        "commit": commit or a_commit(position),
        "session": f"night-{position}",
        "index": index,
        "started_at": EPOCH + timedelta(days=position or 0, minutes=index),
        "node": "node-a",
        "environment": "e1",
        "harness": "h1",
        "origin": Origin.MEASURED,
        "status": Status.OK if median is not None else Status.ERROR,
        "verified": median is not None,
        "reason": "",
        "n": 9 if median is not None else 0,
        "median": median,
        "mad": 0.0 if median is not None else None,
        "p10": median,
        "p90": median,
        "resolution": 1e-9,
        "tokens": 1,
        "floor": None,
    }
    return Point(**(facts | more))  # type: ignore[arg-type]


def history(levels: Sequence[float], *, noise: float = 0.001, seed: int = 1, **more: object) -> list[Point]:
    source = random.Random(seed)
    return [
        a_point(position, level * source.gauss(1, noise), index=index, **more)
        for position, level in enumerate(levels, 1)
        for index in range(3)
    ]


def found(
    points: Sequence[Point], *, direction: Direction = Direction.LOWER, policy: Policy = POLICY
) -> list[changes.Change]:
    return list(changes.find(points, direction=direction, policy=policy))


def test_the_direction_of_the_metric_decides_what_is_worse() -> None:
    points = history([1.0] * 20 + [1.1] * 5)
    assert [change.kind for change in found(points)] == [ChangeKind.REGRESSION]
    assert [change.kind for change in found(points, direction=Direction.HIGHER)] == [ChangeKind.IMPROVEMENT]


def test_a_change_lies_between_the_last_commit_of_the_old_level_and_the_first_of_the_new_one() -> None:
    points = [p for p in history([1.0] * 20 + [1.1] * 6) if p.commit.position not in (20, 21, 22)]
    (change,) = found(points)
    assert (change.before.position, change.commit.position) == (19, 23)


def test_two_small_steps_are_relevant_together_and_the_sum_is_what_is_reported() -> None:
    points = history([1.0] * 15 + [1.006] * 15 + [1.012] * 15, noise=0.0004)
    small, together = found(points)
    assert (small.relevant, together.relevant) == (False, True)
    assert together.step == pytest.approx(1.006, rel=0.001)
    assert together.ratio == pytest.approx(1.012, rel=0.001)
    assert together.low < together.ratio < together.high


def test_a_small_step_up_and_one_down_do_not_add_up() -> None:
    points = history([1.0] * 15 + [1.007] * 15 + [1.0] * 15, noise=0.0004)
    assert [change.relevant for change in found(points)] == [False, False]


def test_a_step_is_taken_back_when_a_later_level_is_within_relevance_of_the_old_one_or_better() -> None:
    for last, recovered in ((1.0, True), (0.9, True), (1.005, True), (1.05, False), (1.2, False)):
        first = found(history([1.0] * 15 + [1.1] * 10 + [last] * 10))[0]
        assert first.recovered is recovered, last


def test_processes_that_failed_and_commits_off_the_branch_are_no_history() -> None:
    points = history([1.0] * 20 + [1.1] * 5)
    others = [a_point(p, None, index=7) for p in range(1, 26)]
    off = [a_point(None, 9.0, commit=a_commit(None, sha=f"{i:040x}"), index=i) for i in range(1, 10)]
    assert found([*points, *others, *off]) == found(points)


def test_an_era_that_older_commits_were_measured_in_again_is_judged_by_itself() -> None:
    old = history([1.0] * 20)
    new = history([1.3] * 12 + [1.43] * 8, environment="e2", session="again", seed=2)
    points = sorted([*old, *new], key=lambda p: (p.commit.position or 0, p.started_at))
    (change,) = found(points)
    assert change.commit.position == 13
    assert change.ratio == pytest.approx(1.1, rel=0.01)


def test_a_commit_stands_against_the_median_of_the_last_level_in_its_own_environment() -> None:
    points = history([2.0] * 12 + [1.0] * 12 + [1.1], noise=0.0001)
    standing = changes.standing(points, points[-1].commit, policy=POLICY)
    assert standing.ratio == pytest.approx(1.1, rel=0.001)
    assert (standing.commits, standing.verdict) == (12, changes.Verdict.BEYOND_SPREAD)


def test_a_first_commit_and_a_first_night_in_a_new_environment_have_no_past() -> None:
    points = history([1.0] * 12)
    assert changes.standing(points, points[0].commit, policy=POLICY) == changes.Standing(
        None, 0, changes.Verdict.TOO_FEW
    )
    moved = [*points, a_point(13, 1.0, environment="e2")]
    assert changes.standing(moved, moved[-1].commit, policy=POLICY).ratio is None


def test_a_young_past_is_compared_with_and_marked_as_young() -> None:
    points = history([1.0, 1.0, 1.0, 1.2], noise=0.0001)
    standing = changes.standing(points, points[-1].commit, policy=POLICY)
    assert standing.ratio == pytest.approx(1.2, rel=0.001)
    assert (standing.commits, standing.verdict) == (3, changes.Verdict.TOO_FEW)


def verdict(*own: float, before: Sequence[Point]) -> changes.Verdict:
    tonight = [a_point(31, value, index=index) for index, value in enumerate(own)]
    return changes.standing([*before, *tonight], tonight[0].commit, policy=POLICY).verdict


def test_a_change_among_the_processes_of_either_side_says_nothing() -> None:
    noisy, calm = history([1.0] * 30, noise=0.2), history([1.0] * 30, noise=0.001)
    assert verdict(1.25, before=noisy) is changes.Verdict.WITHIN_SPREAD
    assert verdict(1.25, before=calm) is changes.Verdict.BEYOND_SPREAD
    # Two processes slow, one as ever: the process decides, not the commit.
    assert verdict(0.999, 1.25, 1.26, before=calm) is changes.Verdict.WITHIN_SPREAD
    assert verdict(1.24, 1.25, 1.26, before=calm) is changes.Verdict.BEYOND_SPREAD
    assert verdict(2.5, before=noisy) is changes.Verdict.BEYOND_SPREAD


def test_one_bad_night_in_the_past_hides_no_change() -> None:
    before = history([1.0] * 29 + [1.2], noise=0.0005)
    assert verdict(1.05, 1.0501, 1.0502, before=before) is changes.Verdict.BEYOND_SPREAD


def test_a_difference_below_the_clock_s_resolution_is_within_the_spread() -> None:
    before = [a_point(position, 1e-6, resolution=1e-7) for position in range(1, 31)]
    tonight = a_point(31, 1.09e-6, resolution=1e-7)
    standing = changes.standing([*before, tonight], tonight.commit, policy=POLICY)
    assert standing.verdict is changes.Verdict.WITHIN_SPREAD


def test_later_commits_are_no_past() -> None:
    points = history([1.0] * 12 + [3.0] * 12, noise=0.0001)
    middle = next(p for p in points if p.commit.position == 12)
    assert changes.standing(points, middle.commit, policy=POLICY).ratio == pytest.approx(1.0, rel=0.001)


def test_an_event_is_the_same_within_a_few_measured_commits_however_many_lie_unmeasured_between() -> None:
    points = [
        p
        for p in history([1.0] * 40 + [1.1] * 20)
        if (p.commit.position or 0) % 10 == 1 or (p.commit.position or 0) > 39
    ]
    (change,) = found(points, policy=Policy(minimum_history=4))
    positions = sorted({p.commit.position for p in points if p.commit.position})
    assert changes.same_event(change, a_commit(11), positions=positions)
    assert not changes.same_event(change, a_commit(55), positions=positions)
    assert not changes.same_event(change, a_commit(None, sha="0" * 40), positions=positions)


def test_nothing_and_one_point_have_no_change() -> None:
    assert found([]) == []
    assert found([a_point(1, 1.0)]) == []
