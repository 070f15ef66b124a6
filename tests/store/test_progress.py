"""How many processes a session was planned with, and how many of them are stored."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from perfci.model import AbsenceReason, RunStatus
from perfci.store import progress, reads, tables, writes
from perfci.store.engine import connect, reading, writing
from perfci.store.rows import Absence, Progress
from tests.build import EPOCH, H200, a_commit, a_run, an_artifact
from tests.store.processes import at_once

LATER = EPOCH + timedelta(hours=1)
LOST = Absence("kernels", "h200", AbsenceReason.NO_NODE, "none of 2 processes had come back")


def ingest(engine: sa.Engine, *indices: int, session: str = "night-1", **more: object) -> None:
    for index in indices:
        run = a_run(session=session, index=index, **more)  # type: ignore[arg-type]
        writes.ingest(engine, an_artifact(run), path="a")


def counted(engine: sa.Engine, session: str = "night-1") -> tuple[int, int, bool]:
    found = progress.of(engine, session)
    assert found is not None
    return found.finished, found.planned, found.unfinished


def plan_from_elsewhere(url: str, planned: int) -> None:
    engine = connect(url)
    try:
        writes.record_plan(engine, "night-1", planned, at=EPOCH)
    finally:
        engine.dispose()


def test_of_a_session_that_nobody_planned_nothing_is_known(engine: sa.Engine) -> None:
    ingest(engine, 0)
    assert progress.of(engine, "night-1") is None
    assert progress.of(engine, "never") is None


def test_a_planned_session_tells_how_much_of_it_is_stored(engine: sa.Engine) -> None:
    writes.record_plan(engine, "night-1", 3, at=EPOCH)
    assert progress.of(engine, "night-1") == Progress(3, EPOCH, 0, told=False)
    ingest(engine, 0, 1)
    ingest(engine, 0, session="night-2")
    assert counted(engine) == (2, 3, True)
    ingest(engine, 2, commit=a_commit(2), hardware=H200)
    assert counted(engine) == (3, 3, False)


def test_a_plan_without_jobs_is_finished(engine: sa.Engine) -> None:
    writes.record_plan(engine, "night-1", 0, at=EPOCH)
    assert counted(engine) == (0, 0, False)


def test_a_plan_that_is_made_again_takes_the_place_of_the_one_before(engine: sa.Engine) -> None:
    for planned, at in ((5, EPOCH), (5, EPOCH), (7, LATER)):
        writes.record_plan(engine, "night-1", planned, at=at)
    assert progress.of(engine, "night-1") == Progress(7, LATER, 0, told=False)
    assert reads.counts(engine)["session"] == 1


def test_several_plans_of_one_session_at_once_leave_one(database_url: str, engine: sa.Engine) -> None:
    at_once(plan_from_elsewhere, [(database_url, 4)] * 4)
    assert counted(engine) == (0, 4, True)
    assert reads.counts(engine)["session"] == 1


def test_a_process_counts_once_however_many_results_it_has_given(engine: sa.Engine) -> None:
    writes.record_plan(engine, "night-1", 2, at=EPOCH)
    ingest(engine, 0)
    ingest(engine, 0, started_at=LATER)
    assert reads.counts(engine)["run"] == 2
    assert counted(engine) == (1, 2, True)


def test_what_was_told_as_lost_since_the_plan_is_not_waited_for_any_longer(engine: sa.Engine) -> None:
    """Hardware that had no node when the night was planned was never part of it."""
    writes.record_absences(engine, "night-1", [LOST], planned=[], at=EPOCH)
    writes.record_plan(engine, "night-1", 2, at=EPOCH)
    assert counted(engine) == (0, 2, True)
    place = [("kernels", "h200")]
    writes.record_absences(engine, "night-1", [LOST], planned=place, at=LATER, reasons=[AbsenceReason.NO_NODE])
    assert counted(engine) == (0, 2, False)
    writes.record_absences(engine, "night-1", [], planned=place, at=LATER, reasons=[AbsenceReason.NO_NODE])
    assert counted(engine) == (0, 2, True)


def test_a_failed_build_stands_for_all_its_processes_once_the_night_is_judged(engine: sa.Engine) -> None:
    writes.record_plan(engine, "night-1", 8, at=EPOCH)
    ingest(engine, 0, 1)
    ingest(engine, 3, commit=a_commit(2), status=RunStatus.BUILD_FAILED, measurements=[], reason="no compiler")
    for _ in range(2):
        writes.settle_plan(engine, "night-1", missing=1)
        assert progress.of(engine, "night-1") == Progress(4, EPOCH, 3, told=False)
    ingest(engine, 2)
    assert counted(engine) == (4, 4, False)


def test_a_session_that_nobody_planned_is_not_settled(engine: sa.Engine) -> None:
    ingest(engine, 0)
    writes.settle_plan(engine, "night-1", missing=3)
    writes.settle_plan(engine, "never", missing=3)
    assert progress.of(engine, "night-1") is None
    assert reads.counts(engine)["session"] == 1


def test_the_oldest_unfinished_one_is_found_among_those_of_late(engine: sa.Engine) -> None:
    for number in range(4):
        writes.record_plan(engine, f"night-{number}", 1, at=EPOCH + timedelta(days=number))
    ingest(engine, 0)

    def oldest(days: float) -> object:
        with reading(engine) as connection:
            return progress.unfinished_since(connection, since=EPOCH + timedelta(days=days))

    assert oldest(0) == EPOCH
    assert oldest(0.5) == EPOCH + timedelta(days=2)
    assert oldest(3.5) is None


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ({"planned": 3}, "planned_whole"),
        ({"planned_at": EPOCH}, "planned_whole"),
        ({"planned": -1, "planned_at": EPOCH}, "ck_session_planned"),
    ],
)
def test_the_database_refuses_half_a_plan(engine: sa.Engine, row: dict[str, object], rule: str) -> None:
    with pytest.raises(IntegrityError, match=rule), writing(engine) as connection:
        connection.execute(sa.insert(tables.session).values(row | {"name": "night-1"}))
