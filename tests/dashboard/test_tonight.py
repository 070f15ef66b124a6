"""What a night did wrong: nothing of it may be left out, and nothing else may be in it."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from dashboard import wording
from dashboard.levels import levels
from dashboard.tonight import Entry, Wrong, sections, wrong
from perfci.changes import Standing, Verdict
from perfci.model import Origin, RunStatus, Status
from perfci.store.rows import RunRow
from tests.build import EPOCH, a_commit
from tests.dashboard.rows import a_point, a_series


def an_entry(name: str, status: Status, *, position: int = 7, suite: str = "kernels", synthetic: bool = False) -> Entry:
    series = a_series(name, synthetic=synthetic)
    series = dataclasses.replace(series, key=dataclasses.replace(series.key, suite=suite))
    timed = status is Status.OK
    (level,) = levels([a_point(position, 1e-3 if timed else None, status=status)])
    return Entry(series, level, status, "", Standing(None, 0, Verdict.TOO_FEW))


def a_run_row(status: RunStatus = RunStatus.BUILD_FAILED, **more: object) -> RunRow:
    row = RunRow(
        id=1,
        artifact_sha256="0" * 64,
        suite="kernels",
        commit=a_commit(8, subject="Break the build"),
        hardware="h200",
        node="node-a",
        session="night-8",
        index=0,
        origin=Origin.MEASURED,
        status=status,
        reason="" if status is RunStatus.OK else "build = 'make' ended with exit code 2",
        log_tail="",
        started_at=EPOCH,
        finished_at=EPOCH,
    )
    return dataclasses.replace(row, **more)  # type: ignore[arg-type]


def of(*entries: Entry, runs: tuple[RunRow, ...] = ()) -> Wrong:
    return wrong(sections(entries), runs)


@pytest.mark.parametrize("status", Status)
def test_a_status_is_wrong_as_the_exit_code_has_it(status: Status) -> None:
    fine = {Status.OK, Status.CHECKED, Status.UNSUPPORTED}
    found = of(an_entry("modular", status))
    assert bool(found) == (status not in fine)
    assert found.incorrect == (status is Status.INCORRECT)


def test_nothing_wrong_is_false() -> None:
    assert not of()
    assert not of(an_entry("modular", Status.OK), runs=(a_run_row(RunStatus.OK),))


def test_incorrect_outputs_are_told_first_and_every_one_by_name() -> None:
    names = [("a", Status.ERROR), ("b", Status.INCORRECT), ("c", Status.BUILD_FAILED), ("d", Status.INCORRECT)]
    told = (
        wording.wrong(of(*(an_entry(name, status) for name, status in names))).replace("\\", "").replace("\u2060", "")
    )
    assert told.splitlines() == [
        "**Went wrong: 2 incorrect, 1 build_failed, 1 error**",
        "",
        "- incorrect: b, d (decode/tiny on h200)",
        "- build_failed: c (decode/tiny on h200)",
        "- error: a (decode/tiny on h200)",
    ]


def test_many_names_are_counted() -> None:
    told = wording.wrong(of(*(an_entry(f"n{number:02}", Status.ERROR) for number in range(30))))
    assert "30 error" in told
    assert "n11" in told
    assert told.endswith("and 18 more")
    assert "n12" not in told


def test_how_a_series_ended_that_its_suite_no_longer_has_is_no_news() -> None:
    gone = an_entry("gone", Status.MISSING, position=3)
    assert not of(gone, an_entry("modular", Status.OK, position=7))
    assert of(gone, an_entry("modular", Status.OK, position=7, suite="other")).entries == (gone,)


def test_a_commit_without_any_measurement_is_told_once_for_each_reason() -> None:
    runs = tuple(a_run_row(index=index) for index in range(3))
    found = of(an_entry("modular", Status.OK), runs=(*runs, a_run_row(RunStatus.TIMEOUT, reason="after 5 s")))
    told = wording.wrong(found).replace("\\", "").replace("\u2060", "")
    assert told.splitlines()[0] == "**Went wrong: 2 broken runs**"
    assert "- build_failed: kernels " in told
    assert "“Break the build” on h200: build = 'make' ended with exit code 2" in told
    assert told.count("Break the build") == 2


def test_a_later_session_mends_an_earlier_one_and_not_the_other_way_round() -> None:
    good = a_run_row(RunStatus.OK, session="again", started_at=EPOCH + timedelta(hours=1))
    assert not of(runs=(good, a_run_row()))
    assert of(runs=(dataclasses.replace(good, started_at=EPOCH - timedelta(hours=1)), a_run_row())).runs == (
        a_run_row(),
    )


def test_names_and_reasons_from_a_repository_are_shown_and_never_interpreted() -> None:
    hostile = "<img src=x> **b** [l](http://x)\n- :smile: `c`"
    run = a_run_row(reason=hostile * 50, commit=a_commit(8, subject=hostile))
    told = wording.wrong(of(an_entry(hostile, Status.ERROR), runs=(run,)))
    assert len(told.splitlines()) == 4
    assert "**b**" not in told
    assert ":smile:" not in told
    assert "[l](" not in told
    assert len(told) < 2000


def test_what_was_generated_says_so() -> None:
    found = of(an_entry("a", Status.ERROR, synthetic=True), runs=(a_run_row(origin=Origin.SYNTHETIC),))
    assert wording.wrong(found).count("synthetic") == 2
