"""What a night was to measure and did not: told once, forgotten when planned again, counted by later nights."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa

from perfci.model import AbsenceReason, Origin, RunStatus
from perfci.store import nights, reads, writes
from perfci.store.engine import connect
from perfci.store.rows import Absence
from tests.build import CPU, EPOCH, H200, a_commit, a_run, an_artifact
from tests.store.processes import at_once

NO_NODE = Absence("kernels", "h200", AbsenceReason.NO_NODE, "no live node serves its queue")
BUDGET = Absence("kernels", "b200", AbsenceReason.BUDGET, "cut")
QUIET = Absence("kernels", CPU.name, AbsenceReason.UNAFFECTED, "no new commit")
PLANNED = [("kernels", "h200"), ("kernels", "b200"), ("kernels", CPU.name)]


def tell(engine: sa.Engine, session: str, *absences: Absence, hours: float = 0.0) -> None:
    at = EPOCH + timedelta(hours=hours)
    writes.record_absences(engine, session, absences, planned=PLANNED, at=at)


def ingest(engine: sa.Engine, *, hours: float = 0.0, **more: object) -> None:
    run = a_run(started_at=EPOCH + timedelta(hours=hours), **more)  # type: ignore[arg-type]
    writes.ingest(engine, an_artifact(run), path="a")


def tell_from_elsewhere(url: str, text: str) -> None:
    engine = connect(url)
    try:
        told = [Absence("kernels", "h200", AbsenceReason.NO_NODE, text), BUDGET]
        writes.record_absences(engine, "night-1", told, planned=PLANNED, at=EPOCH)
    finally:
        engine.dispose()


def test_what_a_night_lacks_is_told_by_name(engine: sa.Engine) -> None:
    tell(engine, "night-1", NO_NODE, BUDGET)
    tell(engine, "night-2", NO_NODE, hours=24)
    found = reads.absences(engine, "night-1")
    assert [(row.suite, row.hardware, row.reason, row.text) for row in found] == [
        ("kernels", "b200", AbsenceReason.BUDGET, "cut"),
        ("kernels", "h200", AbsenceReason.NO_NODE, NO_NODE.text),
    ]
    assert {row.created_at for row in found} == {EPOCH}
    assert reads.absences(engine, "night-3") == ()


def test_a_plan_that_is_made_again_tells_what_holds_now(engine: sa.Engine) -> None:
    tell(engine, "night-1", NO_NODE, BUDGET)
    tell(engine, "night-2", NO_NODE)
    tell(engine, "night-1", BUDGET)
    assert [row.reason for row in reads.absences(engine, "night-1")] == [AbsenceReason.BUDGET]
    tell(engine, "night-1")
    assert reads.absences(engine, "night-1") == ()
    assert len(reads.absences(engine, "night-2")) == 1


def test_a_night_that_lacks_nothing_leaves_no_row(engine: sa.Engine) -> None:
    tell(engine, "night-1")
    assert set(reads.counts(engine).values()) == {0}


def test_several_plans_of_one_session_at_once_do_not_mix(database_url: str, engine: sa.Engine) -> None:
    at_once(tell_from_elsewhere, [(database_url, f"text {number}") for number in range(4)])
    assert [row.reason for row in reads.absences(engine, "night-1")] == [AbsenceReason.BUDGET, AbsenceReason.NO_NODE]


def test_a_night_that_measured_nothing_is_the_newest_one_all_the_same(engine: sa.Engine) -> None:
    tell(engine, "night-0", NO_NODE)
    assert reads.newest_session(engine) == "night-0"
    ingest(engine, hours=1, session="night-1")
    assert reads.newest_session(engine) == "night-1"
    tell(engine, "night-2", NO_NODE, hours=2)
    assert reads.newest_session(engine) == "night-2"
    ingest(engine, hours=3, session="made-up", suite="other", origin=Origin.SYNTHETIC)
    assert reads.newest_session(engine) == "night-2"


def test_an_absence_stands_until_something_is_measured_there(engine: sa.Engine) -> None:
    tell(engine, "night-1", BUDGET)
    tell(engine, "night-2", NO_NODE, QUIET, hours=24)
    assert [(row.session, row.hardware) for row in reads.standing_absences(engine)] == [
        ("night-1", "b200"),
        ("night-2", CPU.name),
        ("night-2", "h200"),
    ]
    ingest(engine, hours=25, hardware=H200)
    ingest(engine, hours=25, suite="another")
    assert [row.hardware for row in reads.standing_absences(engine)] == ["b200", CPU.name]


def test_an_absence_that_no_later_night_tells_again_is_forgotten(engine: sa.Engine) -> None:
    tell(engine, "night-1", NO_NODE)
    ingest(engine, hours=6 * 24, session="night-7")
    assert len(reads.standing_absences(engine)) == 1
    ingest(engine, hours=8 * 24, session="night-9", index=1)
    assert reads.standing_absences(engine) == ()


def test_quiet_nights_are_counted_since_the_suites_last_turn_there(engine: sa.Engine) -> None:
    def quiet(but: str = "") -> int:
        return nights.quiet_nights(engine, "kernels", CPU.name, but=but)

    assert quiet() == 0
    tell(engine, "night-0", QUIET)
    ingest(engine, hours=1, session="night-1")
    assert quiet() == 0
    for number in (2, 3):
        tell(engine, f"night-{number}", QUIET, hours=24 * number)
    tell(engine, "night-4", NO_NODE, BUDGET, hours=96)
    assert (quiet(), quiet("night-3"), quiet("night-1")) == (2, 1, 3)
    assert nights.quiet_nights(engine, "kernels", "h200") == 0


def test_a_process_usually_takes_the_median_of_the_newest_that_came_to_an_end(engine: sa.Engine) -> None:
    def usual(but: str = "") -> float | None:
        return nights.process_seconds(engine, "kernels", CPU.name, but=but)

    assert usual() is None
    ingest(engine, status=RunStatus.ERROR, measurements=[], reason="it crashed")
    ingest(engine, hardware=H200)
    assert usual() is None
    for index in range(3):
        ingest(engine, index=index, hours=1)
    assert usual() == 30.0  # a test's run takes so long
    assert usual(but="night-1") is None


def test_devices_count_with_the_time_that_each_of_them_was_held(engine: sa.Engine) -> None:
    four = H200.__class__(name="h200-x4", model=H200.model, count=4)
    ingest(engine, hardware=four)
    ingest(engine, index=1, hardware=four)
    ingest(engine, index=2)
    assert nights.device_seconds(engine, "night-1") == {CPU.name: 30.0, "h200-x4": 240.0}
    assert [run.device_seconds for run in reads.runs(engine, suite="kernels")] == [120.0, 120.0, 30.0]
    assert nights.device_seconds(engine, "night-2") == {}


def test_what_was_spent_counts_from_a_moment_on_and_leaves_a_session_out(engine: sa.Engine) -> None:
    for hours, session in ((0, "night-1"), (5, "night-2"), (6, "night-3")):
        ingest(engine, hours=hours, session=session, index=hours)
    ingest(engine, hours=6, suite="demo", origin=Origin.SYNTHETIC, session="made-up")
    since = EPOCH + timedelta(hours=5)
    assert nights.spent(engine, CPU.name, since=since) == 60.0
    assert nights.spent(engine, CPU.name, since=since, but="night-3") == 30.0
    assert nights.spent(engine, "h200", since=since) == 0.0


def test_what_a_session_found_itself_can_be_left_out_of_what_is_measured(engine: sa.Engine) -> None:
    ingest(engine, session="night-1", commit=a_commit(1))
    ingest(engine, session="night-2", commit=a_commit(2))
    assert len(reads.measured(engine, "kernels", CPU.name)) == 2
    assert reads.measured(engine, "kernels", CPU.name, but="night-2") == {a_commit(1).sha}
    assert nights.last_started(engine, "kernels", CPU.name) == EPOCH
    assert nights.last_started(engine, "kernels", "h200") is None
