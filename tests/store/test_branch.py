"""The order of a history is the branch's, told by the control plane; dates and claims of result files give way."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
import sqlalchemy as sa

from perfci.model import Run
from perfci.store import reads, writes
from perfci.store.rows import Point
from tests.build import EPOCH, a_commit, a_run, a_sha, an_artifact


def ingest(engine: sa.Engine, *runs: Run) -> None:
    for run in runs:
        writes.ingest(engine, an_artifact(run), path="a")


def the_history(engine: sa.Engine, *, off_branch: bool = False) -> tuple[Point, ...]:
    [series] = reads.all_series(engine)
    return reads.history(engine, series.id, off_branch=off_branch)


def positions(engine: sa.Engine) -> dict[str, int | None]:
    return {point.commit.sha: point.commit.position for point in the_history(engine, off_branch=True)}


def test_a_history_follows_ancestry_not_dates(engine: sa.Engine) -> None:
    """Case 4: commits A-B-C-D dated 1, 4, 2, 3, with values 10, 10, 20, 20: one step, at C."""
    days_and_values = [(1, 10.0), (4, 10.0), (2, 20.0), (3, 20.0)]
    runs = [
        a_run(samples=(value,), commit=a_commit(position, committed_at=EPOCH + timedelta(days=day)), session=f"{day}")
        for position, (day, value) in enumerate(days_and_values, start=1)
    ]
    ingest(engine, *reversed(runs))
    assert [point.median for point in the_history(engine)] == [10.0, 10.0, 20.0, 20.0]
    assert [point.commit.position for point in the_history(engine)] == [1, 2, 3, 4]


def test_four_commits_of_one_second_keep_their_order(engine: sa.Engine) -> None:
    """Case 4, second half."""
    order = random.Random(4)
    runs = [a_run(commit=a_commit(position, committed_at=EPOCH), started_at=EPOCH) for position in range(1, 5)]
    ingest(engine, *order.sample(runs, 4))
    assert [point.commit.sha for point in the_history(engine)] == [a_sha(position) for position in range(1, 5)]


def test_within_a_commit_sessions_come_by_their_start_and_their_processes_by_index(engine: sa.Engine) -> None:
    def run(session: str, index: int, minute: int) -> Run:
        return a_run(session=session, index=index, started_at=EPOCH + timedelta(minutes=minute))

    # The later night's name sorts first, and processes of two sessions overlap.
    ingest(engine, run("a", 1, 13), run("b", 2, 12), run("b", 0, 1), run("a", 0, 11), run("b", 1, 2))
    told = [(point.session, point.index) for point in the_history(engine)]
    assert told == [("b", 0), ("b", 1), ("b", 2), ("a", 0), ("a", 1)]


def test_a_commit_off_the_branch_is_no_part_of_the_history_unless_asked_for(engine: sa.Engine) -> None:
    ingest(engine, a_run(commit=a_commit(None)), a_run(commit=a_commit(1)), a_run(commit=a_commit(2)))
    assert [point.commit.position for point in the_history(engine)] == [1, 2]
    assert [point.commit.position for point in the_history(engine, off_branch=True)] == [1, 2, None]


def test_the_branch_wins_over_what_a_result_says(engine: sa.Engine) -> None:
    told_first, told_later = a_commit(5), a_commit(9)
    writes.sync_branch(engine, "kernels", [a_commit(7, sha=told_first.sha)])
    ingest(engine, a_run(commit=told_first), a_run(commit=told_later))
    writes.sync_branch(engine, "kernels", [a_commit(7, sha=told_first.sha), a_commit(8, sha=told_later.sha)])
    assert positions(engine) == {told_first.sha: 7, told_later.sha: 8}


def test_a_result_cannot_take_the_place_of_a_commit_of_the_branch(engine: sa.Engine) -> None:
    writes.sync_branch(engine, "kernels", [a_commit(1), a_commit(2)])
    ingest(engine, a_run(commit=a_commit(2, sha=a_sha("impostor"))), a_run(commit=a_commit(2)))
    assert positions(engine) == {a_sha(2): 2, a_sha("impostor"): None}


def test_a_place_that_the_branch_has_not_told_is_taken_from_the_result(engine: sa.Engine) -> None:
    writes.sync_branch(engine, "kernels", [a_commit(50), a_commit(51)])
    ingest(engine, a_run(commit=a_commit(3)), a_run(commit=a_commit(52)))
    assert positions(engine) == {a_sha(3): 3, a_sha(52): 52}


def test_a_rewritten_branch_moves_the_commits_that_it_dropped_off_the_branch(engine: sa.Engine) -> None:
    ingest(engine, *(a_run(commit=a_commit(position)) for position in range(1, 6)))
    writes.sync_branch(engine, "kernels", [a_commit(position) for position in range(1, 6)])
    rewritten = a_commit(4, sha=a_sha("rewritten"))
    writes.sync_branch(engine, "kernels", [a_commit(3), rewritten])
    assert positions(engine) == {a_sha(1): 1, a_sha(2): 2, a_sha(3): 3, a_sha(4): None, a_sha(5): None}


def test_a_rewrite_of_the_first_commit_that_is_told_counts_too(engine: sa.Engine) -> None:
    ingest(engine, a_run(commit=a_commit(7)))
    writes.sync_branch(engine, "kernels", [a_commit(7, sha=a_sha("rewritten"))])
    assert positions(engine) == {a_sha(7): None}


def test_until_the_branch_is_told_two_results_may_claim_one_place(engine: sa.Engine) -> None:
    ingest(engine, a_run(commit=a_commit(2)), a_run(commit=a_commit(2, sha=a_sha("other"))))
    assert positions(engine) == {a_sha(2): 2, a_sha("other"): 2}


def test_a_merged_commit_gets_its_place_when_the_branch_is_told(engine: sa.Engine) -> None:
    ingest(engine, a_run(commit=a_commit(None, sha=a_sha(2))))
    writes.sync_branch(engine, "kernels", [a_commit(1), a_commit(2)])
    assert positions(engine) == {a_sha(2): 2}


def test_telling_the_branch_again_changes_nothing(engine: sa.Engine) -> None:
    branch = [a_commit(position) for position in range(1, 200)]
    for _ in range(2):
        writes.sync_branch(engine, "kernels", branch)
        assert reads.counts(engine)["commit"] == 199


def test_branches_of_two_suites_do_not_touch_each_other(engine: sa.Engine) -> None:
    ingest(engine, a_run(suite="other", commit=a_commit(1)))
    writes.sync_branch(engine, "kernels", [a_commit(1, sha=a_sha("x"))])
    assert positions(engine) == {a_sha(1): 1}


def test_a_commit_of_a_branch_has_a_position(engine: sa.Engine) -> None:
    with pytest.raises(ValueError, match="has a position"):
        writes.sync_branch(engine, "kernels", [a_commit(1), a_commit(None)])
    assert reads.counts(engine)["commit"] == 0


def test_no_commits_are_no_news(engine: sa.Engine) -> None:
    ingest(engine, a_run())
    writes.sync_branch(engine, "kernels", [])
    assert positions(engine) == {a_sha(1): 1}
