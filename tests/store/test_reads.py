"""The questions that nightly, command line and dashboard ask."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from perfci.errors import StoreError
from perfci.model import Origin, Run, RunStatus, Status
from perfci.store import reads, writes
from tests.build import CPU, EPOCH, H200, a_commit, a_measurement, a_run, a_sha, an_artifact


def ingest(engine: sa.Engine, *runs: Run) -> None:
    for run in runs:
        writes.ingest(engine, an_artifact(run), path="a")


def a_night(position: int | None, *names: str, status: Status = Status.OK, **more: object) -> Run:
    return a_run(
        [a_measurement(name, workload="w", status=status) for name in names],
        commit=a_commit(position),
        **more,  # type: ignore[arg-type]
    )


def test_an_empty_database_answers_every_question_with_nothing(engine: sa.Engine) -> None:
    assert reads.suites(engine) == reads.hardware(engine) == reads.nodes(engine) == reads.all_series(engine) == ()
    assert reads.latest(engine) == reads.session_points(engine, "x") == reads.history(engine, 1) == ()
    assert reads.runs(engine, suite="x") == reads.controls(engine, 1) == reads.samples(engine, 1, 1) == ()
    assert reads.alerts(engine) == reads.expected(engine, "x", "y", before=None) == ()
    assert reads.newest_runs(engine) == ()
    assert reads.newest_session(engine) is None
    assert reads.environments(engine) == {}
    assert reads.measured(engine, "x", "y") == frozenset()
    assert set(reads.counts(engine).values()) == {0}


def test_an_unknown_environment_is_named(engine: sa.Engine) -> None:
    with pytest.raises(StoreError, match="'00ff'"):
        reads.environment(engine, "00ff")


def test_series_can_be_asked_for_by_suite_and_hardware(engine: sa.Engine) -> None:
    ingest(engine, a_run(suite="a"), a_run(suite="a", hardware=H200), a_run(suite="b"))
    ingest(engine, a_run(suite="c", origin=Origin.SYNTHETIC))
    asked = {
        (None, None): 4,
        ("a", None): 2,
        ("a", "h200"): 1,
        (None, CPU.name): 3,
        ("b", "h200"): 0,
    }
    assert {key: len(reads.all_series(engine, suite=key[0], hardware=key[1])) for key in asked} == asked
    assert {suite.name: suite.synthetic for suite in reads.suites(engine)} == {"a": False, "b": False, "c": True}


def test_names_are_ordered_alike_on_both_databases(engine: sa.Engine) -> None:
    names = ["B", "a", "É", "_", "z", "-b", "a-b", "ab", "A"]
    ingest(engine, a_night(1, *names))
    assert [series.key.implementation for series in reads.all_series(engine)] == sorted(names)


def test_the_latest_points_are_all_those_of_the_newest_commit_of_each_series(engine: sa.Engine) -> None:
    ingest(
        engine,
        a_night(3, "x", index=0),
        a_night(3, "x", index=1),
        a_night(2, "x", "y", index=0),
        a_night(1, "x", "y", "z", index=0),
        a_night(3, "x", index=0, session="night-2", started_at=EPOCH + timedelta(days=1)),
        a_night(None, "x", "only-off-the-branch", index=0),
        a_night(9, "x", suite="other"),
        a_night(8, "x", hardware=H200),
    )
    latest = {(s.key.suite, s.key.hardware, s.key.implementation): points for s, points in reads.latest(engine)}
    told = {key: [(p.commit.position, p.session, p.index) for p in points] for key, points in latest.items()}
    assert told == {
        ("kernels", CPU.name, "x"): [(3, "night-1", 0), (3, "night-1", 1), (3, "night-2", 0)],
        ("kernels", CPU.name, "y"): [(2, "night-1", 0)],
        ("kernels", CPU.name, "z"): [(1, "night-1", 0)],
        ("kernels", "h200", "x"): [(8, "night-1", 0)],
        ("other", CPU.name, "x"): [(9, "night-1", 0)],
    }


def test_a_newest_commit_that_failed_is_still_the_newest(engine: sa.Engine) -> None:
    ingest(engine, a_night(1, "x"), a_night(2, "x", status=Status.BUILD_FAILED))
    [(_, points)] = reads.latest(engine)
    assert [point.status for point in points] == [Status.BUILD_FAILED]


def test_of_two_commits_at_one_position_the_newest_run_decides(engine: sa.Engine) -> None:
    claims = [a_commit(5, sha=a_sha("old")), a_commit(5, sha=a_sha("new"))]
    for day, commit in reversed(list(enumerate(claims))):
        ingest(engine, a_run(commit=commit, started_at=EPOCH + timedelta(days=day)))
    [(_, points)] = reads.latest(engine)
    assert [point.commit.sha for point in points] == [a_sha("new")]


def test_latest_and_history_agree_on_every_series(engine: sa.Engine) -> None:
    for position in range(1, 8):
        names = [name for number, name in enumerate("abcdef") if position % (number + 1) == 0]
        ingest(engine, *(a_night(position, *names, index=index) for index in range(2)))
    for series, points in reads.latest(engine):
        history = reads.history(engine, series.id)
        newest = max(point.commit.position or 0 for point in history)
        assert list(points) == [point for point in history if point.commit.position == newest]


def test_histories_are_those_of_each_series_in_the_order_asked_for(engine: sa.Engine) -> None:
    names = [f"implementation-{number:03d}" for number in range(120)]  # more than are asked for at once
    for position in (1, 3, 2):
        ingest(engine, *(a_night(position, *names[position:], index=index) for index in range(2)))
    ids = [series.id for series in reads.all_series(engine)][::-1]
    found = list(reads.histories(engine, ids))
    assert [series_id for series_id, _ in found] == ids
    assert found == [(series_id, reads.history(engine, series_id)) for series_id in ids]
    assert [point.commit.position for point in found[0][1]] == [1, 1, 2, 2, 3, 3]
    assert list(reads.histories(engine, [])) == []


def test_a_session_is_read_back_whole(engine: sa.Engine) -> None:
    ingest(engine, a_night(2, "b", "a"), a_night(1, "a"), a_night(3, "a", session="another"), a_night(None, "a"))
    told = [
        (series.key.implementation, point.commit.position) for series, point in reads.session_points(engine, "night-1")
    ]
    assert told == [("a", 1), ("a", 2), ("a", None), ("b", 2)]


def test_runs_can_be_asked_for_by_commit_hardware_and_session(engine: sa.Engine) -> None:
    ingest(engine, a_night(1, "a", index=1), a_night(1, "a", index=0), a_night(2, "a"), a_night(1, "a", hardware=H200))
    ingest(engine, a_night(1, "a", session="night-2"), a_night(1, "a", suite="other"))

    def asked(**more: str) -> int:
        return len(reads.runs(engine, suite="kernels", **more))

    assert asked() == 5
    assert asked(sha=a_sha(1)) == 4
    assert asked(hardware="h200") == 1
    assert asked(session="night-2") == 1
    assert asked(sha=a_sha(1), hardware=CPU.name, session="night-1") == 2
    assert [run.index for run in reads.runs(engine, suite="kernels", session="night-1", sha=a_sha(1))] == [0, 0, 1]


def test_the_newest_runs_are_those_of_each_suite_s_newest_commit_also_without_any_measurement(
    engine: sa.Engine,
) -> None:
    broken = {"status": RunStatus.BUILD_FAILED, "reason": "make ended with exit code 2"}
    ingest(engine, a_night(1, "a"), a_run([], commit=a_commit(2), session="night-2", **broken))
    ingest(engine, a_night(1, "a", hardware=H200), a_night(1, "a", hardware=H200, index=1))
    ingest(engine, a_night(None, "a"), a_run([], commit=a_commit(5), suite="first", **broken))
    told = {(run.suite, run.hardware, run.commit.position, run.index) for run in reads.newest_runs(engine)}
    assert told == {
        ("kernels", CPU.name, 2, 0),
        ("kernels", "h200", 1, 0),
        ("kernels", "h200", 1, 1),
        ("first", CPU.name, 5, 0),
    }
    (found,) = reads.runs(engine, suite="kernels", broken_only=True)
    assert (found.commit.position, found.reason) == (2, "make ended with exit code 2")
    (points,) = (points for series, points in reads.latest(engine) if series.key.hardware == CPU.name)
    assert [point.commit.position for point in points] == [1]


def test_the_newest_session_is_that_of_the_last_run_which_nobody_made_up(engine: sa.Engine) -> None:
    later = [EPOCH + timedelta(days=days) for days in range(4)]
    ingest(engine, a_night(9, "a", session="evening", started_at=later[1]))
    ingest(engine, a_night(1, "a", session="night", started_at=later[2]))
    ingest(engine, a_night(2, "a", session="noon", started_at=later[0]))
    ingest(engine, a_night(1, "a", suite="s", session="year", origin=Origin.SYNTHETIC, started_at=later[3]))
    assert reads.newest_session(engine) == "night"


def test_a_commit_is_measured_unless_all_that_is_known_is_an_error(engine: sa.Engine) -> None:
    for position, status in enumerate(RunStatus, start=1):
        ingest(engine, a_night(position, "a", status=Status.ERROR, origin=Origin.MEASURED))
        ingest(engine, a_run([], commit=a_commit(10 + position), status=status))
    known = {10 + position for position, status in enumerate(RunStatus, start=1) if status is not RunStatus.ERROR}
    known |= set(range(1, len(RunStatus) + 1))  # a failing benchmark in a run that worked is a result
    assert reads.measured(engine, "kernels", CPU.name) == {a_sha(position) for position in known}
    assert reads.measured(engine, "kernels", "h200") == frozenset()
    assert reads.measured(engine, "other", CPU.name) == frozenset()


def test_an_error_that_was_made_good_counts_as_measured(engine: sa.Engine) -> None:
    ingest(engine, a_run([], status=RunStatus.ERROR, index=0))
    assert reads.measured(engine, "kernels", CPU.name) == frozenset()
    ingest(engine, a_run(index=1))
    assert reads.measured(engine, "kernels", CPU.name) == {a_sha(1)}


def expected(engine: sa.Engine, before: int | None, hardware: str = CPU.name) -> list[str]:
    return [implementation for _, implementation in reads.expected(engine, "kernels", hardware, before=before)]


def test_a_benchmark_that_vanished_is_expected_by_name(engine: sa.Engine) -> None:
    """Case 13: the base has a, b, c and the head has a, or nothing."""
    ingest(engine, a_night(1, "a", "b", "c"), a_night(2, "a"))
    assert expected(engine, before=2) == ["a", "b", "c"]
    assert reads.expected(engine, "kernels", CPU.name, before=2)[0] == ("w", "a")


def test_what_is_expected_comes_from_the_nearest_commit_before_not_from_newer_ones(engine: sa.Engine) -> None:
    ingest(engine, a_night(2, "a"), a_night(5, "a", "b"), a_night(9, "c"), a_night(None, "pull-request"))
    ingest(engine, a_night(4, "gpu-only", hardware=H200), a_night(4, "foreign", suite="other"))
    nearest = {1: [], 2: [], 3: ["a"], 5: ["a"], 6: ["a", "b"], 9: ["a", "b"], None: ["c"]}
    assert {before: expected(engine, before) for before in nearest} == nearest
    assert expected(engine, None, "h200") == ["gpu-only"]


def test_a_failure_keeps_a_benchmark_expected_and_a_loss_is_reported_once(engine: sa.Engine) -> None:
    ingest(engine, a_night(1, "a", "b"))
    ingest(engine, a_night(2, "a", "b", status=Status.BUILD_FAILED))
    assert expected(engine, before=3) == ["a", "b"]
    lost = a_run([a_measurement("a", workload="w"), a_measurement("b", workload="w", status=Status.MISSING)])
    ingest(engine, a_run(lost.measurements, commit=a_commit(3)))
    assert expected(engine, before=3) == ["a", "b"]
    assert expected(engine, before=4) == ["a"]
    # The loss itself stays in sight: it is what is known newest of that series.
    assert {s.key.implementation: p[0].status for s, p in reads.latest(engine)}["b"] is Status.MISSING


def test_a_commit_that_lost_everything_does_not_hide_what_was_there(engine: sa.Engine) -> None:
    ingest(engine, a_night(1, "a", "b"), a_night(2, "a", "b", status=Status.MISSING), a_run([], commit=a_commit(3)))
    assert expected(engine, before=4) == ["a", "b"]
