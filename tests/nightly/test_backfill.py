"""Which commits of a range a backfill measures, and in which order: ends first, middles where the level changed."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfci import backfill, config, nightly
from perfci.backfill import Request
from perfci.backfill.halving import Stop, wanted
from perfci.bench import probe
from perfci.errors import PerfciError, SettingsError
from perfci.model import Commit
from perfci.store import progress, reads, writes
from tests.build import ENVIRONMENT, EPOCH, a_commit, a_run, an_artifact
from tests.nightly.place import SETTINGS, Place

HERE = probe.hardware()
RELEVANCE = 0.01


# ------------------------------------------------------------------------------------------------ what is next


def stop(place: int, *medians: float, era: str = "e", here: bool = True, tried: bool | None = None) -> Stop:
    levels = {"a": {era: medians}} if medians else {}
    return Stop(a_commit(place), tried=bool(medians) if tried is None else tried, here=here, levels=levels)


def untried(place: int) -> Stop:
    return stop(place, here=False)


def broken(place: int) -> Stop:
    return stop(place, tried=True)


def next_of(*stops: Stop) -> tuple[int, ...]:
    return wanted(stops, relevance=RELEVANCE)


def test_both_ends_are_first() -> None:
    assert next_of(*map(untried, range(9))) == (0, 8)
    assert next_of(untried(1)) == (0,)
    assert next_of(untried(1), untried(2)) == (0, 1)
    assert next_of(stop(1, 1.0), untried(2), untried(3)) == (2,)


def test_a_stretch_over_which_nothing_changed_is_settled() -> None:
    assert next_of(stop(1, 1.0), untried(2), stop(3, 1.009)) == ()
    assert next_of(stop(1, 1.0), stop(2, 2.0)) == ()


def test_the_middle_of_a_stretch_that_changed_is_next_up_or_down() -> None:
    middle = [untried(place) for place in range(2, 9)]
    assert next_of(stop(1, 1.0), *middle, stop(9, 1.02)) == (4,)
    assert next_of(stop(1, 1.02), *middle, stop(9, 1.0)) == (4,)


def test_every_stretch_that_changed_is_halved_in_the_same_step() -> None:
    assert next_of(stop(1, 1.0), untried(2), untried(3), stop(4, 2.0), untried(5), stop(6, 1.0)) == (1, 4)


def test_processes_that_overlap_do_not_tell_two_levels_apart() -> None:
    assert next_of(stop(1, 1.0, 1.3, 1.1), untried(2), stop(3, 1.2, 1.5, 1.4)) == ()
    assert next_of(stop(1, 1.0, 1.1, 1.05), untried(2), stop(3, 1.2, 1.5, 1.4)) == (1,)


def test_an_end_of_which_nothing_can_be_timed_gives_way_to_its_neighbour() -> None:
    assert next_of(broken(1), untried(2), untried(3), stop(4, 1.0)) == (1,)
    assert next_of(broken(1), broken(2), broken(3)) == ()


def test_a_middle_that_does_not_build_gives_way_to_its_neighbour() -> None:
    assert next_of(stop(1, 1.0), untried(2), broken(3), untried(4), stop(5, 2.0)) in {(1,), (3,)}
    assert next_of(stop(1, 1.0), broken(2), stop(3, 2.0)) == ()


def test_ends_of_other_environments_are_measured_again_once_before_they_are_compared() -> None:
    old, new = stop(1, 1.0, era="old driver", here=False), stop(3, 2.0, era="new driver", here=False)
    assert next_of(old, untried(2), new) == (0, 2)
    assert next_of(old, untried(2), replace(new, here=True)) == (0,)
    # A commit may bring an environment of its own; then it is compared all the same.
    assert next_of(replace(old, here=True), untried(2), replace(new, here=True)) == (1,)
    both = Stop(old.commit, tried=True, here=True, levels={"a": {"old driver": (1.0,), "new driver": (2.0,)}})
    assert next_of(both, untried(2), new) == ()


def test_series_that_only_one_of_two_commits_has_tell_nothing() -> None:
    other = replace(stop(3, 2.0), levels={"b": {"e": (2.0,)}})
    assert next_of(stop(1, 1.0), untried(2), other) == ()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([1.0, 1.5, 2.0]), min_size=1, max_size=40),
    st.sets(st.integers(0, 39), max_size=8),
)
def test_every_change_between_commits_of_different_levels_that_it_sees_is_found_with_few_measurements(
    levels: list[float], unbuildable: set[int]
) -> None:
    """Against what is measured: in the end no two timed neighbours in the grid differ with an untried one between."""
    stops = [untried(place) for place in range(len(levels))]
    steps = 0
    while places := wanted(stops, relevance=RELEVANCE):
        steps += 1
        for place in places:
            assert not stops[place].tried
            stops[place] = broken(place) if place in unbuildable else stop(place, levels[place])
    timed = [place for place, each in enumerate(stops) if each.levels]
    for low, high in pairwise(timed):
        if levels[low] != levels[high]:
            assert all(stops[place].tried for place in range(low, high))
    changes = sum(levels[low] != levels[high] for low, high in pairwise(timed))
    tried = sum(each.tried for each in stops)
    bound = 2 + (changes + 1) * math.ceil(math.log2(len(levels) + 1)) + 4 * len(unbuildable)
    assert tried <= bound


# ------------------------------------------------------------------------------------------------ on a repository


class History:
    """A suite whose commits have levels; what a job would measure is told to the database."""

    def __init__(self, place: Place, levels: Sequence[float | None]) -> None:
        """levels: of each commit, oldest first; None: its build fails."""
        self.place, self.levels = place, {}
        for number, level in enumerate(levels):
            sha = place.repository.commit({"bench/number.txt": f"{number}\n"}, f"Number {number}")
            self.levels[sha] = level
        self.shas = list(self.levels)

    def measure(self, jobs: Sequence[dict[str, Any]]) -> None:
        for job in jobs:
            level = self.levels[job["sha"]]
            facts = {} if level is not None else {"measurements": [], "status": "build_failed", "reason": "no compiler"}
            run = a_run(
                samples=[(level or 1.0) * 0.01] * 5,
                suite="toy",
                hardware=HERE,
                commit=Commit(job["sha"], (), job["position"], None, job["subject"]),
                session=job["session"],
                index=job["first_index"],
                environment=ENVIRONMENT,
                **facts,  # type: ignore[arg-type]
            )
            writes.ingest(self.place.engine, an_artifact(run), path="a")

    def settle(self, request: Request) -> tuple[list[list[int]], dict[str, Any]]:
        """Numbers of the commits that each step measured, and the last plan."""
        asked: list[list[int]] = []
        following: Any = request
        while True:
            planned = backfill.plan(self.place.path, following)
            if not planned["jobs"]:
                return asked, planned
            assert json.loads(json.dumps(planned["next"])) == planned["next"]
            asked.append([self.shas.index(job["sha"]) for job in planned["jobs"]])
            self.measure(planned["jobs"])
            following = planned["next"]


def request(history: History, first: int = 0, last: int = -1, **more: Any) -> Request:
    return Request(span=f"{history.shas[first]}..{history.shas[last]}", hardware=HERE.name, **more)


def test_a_change_is_found_between_its_neighbours_in_as_many_steps_as_halving_takes(place: Place) -> None:
    history = History(place, [1.0] * 11 + [1.3] * 6)
    asked, last = history.settle(request(history))
    assert asked == [[0, 16], [8], [12], [10], [11]]
    assert last["notes"] == [
        f'changed from {history.shas[10][:9]} "Number 10" to {history.shas[11][:9]} "Number 11": '
        "decode/tiny / torch-eager, latency x 1.300",
        "settled: every change in this range lies between two neighbours",
    ]
    jobs = reads.runs(place.engine, suite="toy")
    assert len({run.session for run in jobs}) == 1
    assert len({run.index for run in jobs}) == len(jobs) == 6


def test_two_changes_that_take_each_other_back_need_what_is_known_in_between(place: Place) -> None:
    history = History(place, [1.0] * 6 + [2.0] * 2 + [1.0] * 5)
    asked, _ = history.settle(request(history))
    assert asked == [[0, 12]]
    history.measure(backfill.plan(place.path, request(history, 6, 6))["jobs"])
    asked, _ = history.settle(request(history))
    assert sorted(place for step in asked for place in step) == [3, 4, 5, 7, 8, 9]


def test_commits_that_touch_none_of_the_suites_files_are_no_stops(place: Place) -> None:
    history = History(place, [1.0, 1.0])
    for number in range(5):
        place.repository.commit({"README": f"{number}"})
    last = place.repository.commit({"bench/number.txt": "last"}, "Last")
    history.levels[last] = 2.0
    history.shas.append(last)
    asked, planned = history.settle(request(history))
    assert asked == [[0, 2], [1]]
    assert planned["estimate"]["commits"] == 3


def test_a_commit_that_does_not_build_is_passed_over(place: Place) -> None:
    history = History(place, [1.0, 1.0, None, 2.0, None])
    asked, _ = history.settle(request(history))
    assert sorted(place for step in asked for place in step) == [0, 1, 2, 3, 4]


def test_what_gave_no_result_is_said_and_not_asked_for_for_ever(place: Place) -> None:
    history = History(place, [1.0, 1.0, 2.0])
    planned = backfill.plan(place.path, request(history))
    history.measure(planned["jobs"])
    planned = backfill.plan(place.path, planned["next"])
    assert [job["sha"] for job in planned["jobs"]] == [history.shas[1]]
    planned = backfill.plan(place.path, planned["next"])  # its node was lost
    assert (planned["jobs"], planned["next"]) == ([], None)
    (absence,) = reads.absences(place.engine, planned["session"])
    assert absence.text == f'{history.shas[1][:9]} "Number 1": asked for, and nothing came back'


def test_the_progress_of_a_backfill_counts_what_its_steps_have_asked_for_so_far(place: Place) -> None:
    history = History(place, [1.0, 1.0, None, 2.0])
    following: Any = request(history)
    counted: list[tuple[int, int]] = []
    while following is not None:
        planned = backfill.plan(place.path, following)
        found = progress.of(place.engine, planned["session"])
        assert found is not None
        counted.append((found.finished, found.planned))
        history.measure(planned["jobs"])
        following = planned["next"]
    assert counted == [(0, 2), (2, 3), (3, 4), (4, 4)]


def test_a_step_that_is_planned_again_before_anything_is_measured_is_the_same(place: Place) -> None:
    history = History(place, [1.0] * 5 + [2.0])
    first = asdict(request(history, session="backfill-1"))
    planned = backfill.plan(place.path, first)
    assert backfill.plan(place.path, first) == planned
    assert {(job["reason"], job["priority"]) for job in planned["jobs"]} == {("backfill", 25)}


def test_a_dry_run_says_what_it_costs_and_leaves_the_database_alone(place: Place) -> None:
    history = History(place, [1.0] * 9)
    nightly.opened(config.load(place.config)).dispose()
    planned = backfill.plan(place.path, request(history), dry_run=True)
    assert set(reads.counts(place.engine).values()) == {0}
    assert backfill.estimated(planned) == (
        "this step: 2 commits; then up to 4 commits for each change in between, at most 7 commits; how long one takes "
        "is not known yet"
    )
    history.measure(planned["jobs"][:1])
    planned = backfill.plan(place.path, request(history), dry_run=True)
    assert backfill.estimated(planned) == (
        "this step: 1 commit, about 0.5 device minutes; then up to 4 commits, about 2.0 device minutes for each change "
        "in between, at most 7 commits, about 3.5 device minutes"
    )


def test_minutes_are_for_all_steps_together_and_what_is_cut_is_said(place: Place) -> None:
    history = History(place, [1.0] * 8 + [2.0])
    history.measure(backfill.plan(place.path, request(history, 0, 0))["jobs"])  # half a minute each
    asked, last = history.settle(request(history, minutes=1.2))
    assert asked == [[8], [4]]
    (cut,) = last["absences"]
    assert (cut["reason"], cut["suite"]) == ("budget", "toy")
    assert "(about 0.5 min): of 1.2 device minutes for this backfill 1 were spent before it" in cut["text"]
    asked, _ = history.settle(request(history))  # another night goes on
    assert asked == [[6], [7]]


def test_without_minutes_it_takes_what_the_night_has_left(place: Place) -> None:
    history = History(place, [1.0] * 8 + [2.0])
    history.measure(backfill.plan(place.path, request(history, 0, 0))["jobs"])
    place.config.write_text(f"{SETTINGS}[hardware.{HERE.name}]\nnight_minutes = 1.2\n", "utf-8")
    at = EPOCH + timedelta(hours=1)  # the night in which these runs were
    planned = backfill.plan(place.path, request(history), now=at)
    assert len(planned["jobs"]) == 1
    history.measure(planned["jobs"])
    assert backfill.plan(place.path, planned["next"], now=at)["absences"][0]["reason"] == "budget"
    assert len(backfill.plan(place.path, planned["next"], now=at + timedelta(days=1))["jobs"]) == 1


def test_commits_after_the_range_keep_their_place_on_the_branch(place: Place) -> None:
    history = History(place, [1.0] * 4)
    history.measure(nightly.plan(place.path)["jobs"])
    history.measure(backfill.plan(place.path, request(history, 0, 2))["jobs"])
    assert [run.commit.position for run in reads.runs(place.engine, suite="toy")].count(None) == 0


def test_the_last_step_that_it_may_take_says_so(place: Place) -> None:
    history = History(place, [1.0] * 4)
    planned = backfill.plan(place.path, request(history, steps=1))
    assert (len(planned["jobs"]), planned["next"]) == (2, None)
    assert "last step" in planned["problems"][0]


@pytest.mark.parametrize(
    ("span", "says"),
    [
        ("HEAD", "'HEAD' is no range"),
        ("..HEAD", "no range"),
        ("HEAD~1..", "no range"),
        ("HEAD~1...HEAD", "no range"),
        ("HEAD..HEAD~1", "HEAD is newer than HEAD~1; write HEAD~1..HEAD"),
        ("no-such..HEAD", "no-such"),
        ("topic..HEAD", "topic .* is not on the branch 'main'"),
        ("--all..HEAD", "--all"),
    ],
)
def test_what_is_no_range_of_the_branch_is_refused(place: Place, span: str, says: str) -> None:
    place.repository.commit({"bench/number.txt": "1"})
    place.repository.git("checkout", "--quiet", "-b", "topic")
    place.repository.commit({"bench/number.txt": "2"})
    place.repository.git("checkout", "--quiet", "main")
    with pytest.raises(PerfciError, match=says):
        backfill.plan(place.path, Request(span=span, hardware=HERE.name))


def test_names_and_minutes_that_cannot_be_are_refused(place: Place) -> None:
    with pytest.raises(SettingsError, match="no hardware 'h200'"):
        backfill.plan(place.path, Request(span="HEAD..HEAD", hardware="h200"))
    with pytest.raises(SettingsError, match="--minutes 0"):
        Request(span="HEAD..HEAD", hardware=HERE.name, minutes=0.0)
    place.config.write_text(f'{SETTINGS}[suite.other]\nrepo = "repo"\nrun = "pytest"\n', "utf-8")
    with pytest.raises(SettingsError, match="choose one with --suite"):
        backfill.plan(place.path, Request(span="HEAD..HEAD", hardware=HERE.name))
