"""What a Prometheus reads, parsed as it would parse it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client.parser import text_string_to_metric_families

from perfci import artifact, metrics
from perfci.config import Settings
from perfci.handover import parcels
from perfci.model import AbsenceReason, AlertState, ChangeKind, NoticeState, Origin, RunStatus, Status
from perfci.store import notices, reads, writes
from perfci.store.engine import connect
from perfci.store.notices import Subject
from perfci.store.rows import Absence, NewAlert
from tests.build import EPOCH, H200, a_commit, a_measurement, a_run, a_sha, an_artifact

NOW = EPOCH + timedelta(hours=6)
LABELS = {"suite", "hardware", "status", "state", "kind", "reason", "queue", "channel", "version"}


def sampled(engine: sa.Engine, settings: Settings | None = None) -> dict[str, float]:
    """By name and the values of its labels, e.g. `perfci_runs_total kernels h200 ok`."""
    families = text_string_to_metric_families(metrics.text(engine, settings, now=NOW))
    found: dict[str, float] = {}
    for sample in (sample for family in families for sample in family.samples):
        assert set(sample.labels) <= LABELS
        labels = sorted(sample.labels, key=lambda name: (name not in metrics.PLACE, name == "hardware", name))
        found[" ".join((sample.name, *(sample.labels[name] for name in labels)))] = sample.value
    return found


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    made = Settings(root=tmp_path)
    for folder in (made.incoming, made.outgoing, made.state / "refused"):
        folder.mkdir(parents=True)
    return made


def test_an_empty_installation_has_nothing_to_tell_but_that_it_is_there(engine: sa.Engine, settings: Settings) -> None:
    found = sampled(engine, settings)
    assert found["perfci_database_up"] == 1
    assert found["perfci_database_bytes"] > 10_000
    assert found["perfci_alerts_open regression"] == 0
    assert found["perfci_queue_oldest_seconds incoming"] == 0
    assert found["perfci_night_oldest_unfinished_seconds"] == 0
    assert [name for name in found if name.startswith(("perfci_night", "perfci_false", "perfci_runs"))] == [
        "perfci_night_oldest_unfinished_seconds"
    ]


def test_a_night_is_told_by_suite_hardware_and_status(engine: sa.Engine) -> None:
    first = a_run([a_measurement("modular")], commit=a_commit(1), session="nightly-1")
    broken = [a_measurement("modular", status=Status.ERROR), a_measurement("eager")]
    late = EPOCH + timedelta(hours=1)
    tonight = [
        a_run([a_measurement("modular")], commit=a_commit(2), session="nightly-2", hardware=H200, started_at=late),
        a_run(broken, commit=a_commit(2), session="nightly-2", hardware=H200, index=1, started_at=late),
        a_run([], commit=a_commit(3), session="nightly-2", index=2, status=RunStatus.BUILD_FAILED, reason="no"),
    ]
    by_hand = a_run([a_measurement("modular")], commit=a_commit(1), session="run-3", index=9)
    generated = a_run(suite="year", origin=Origin.SYNTHETIC, session="nightly-4")
    for run in (first, *tonight, by_hand, generated):
        writes.ingest(engine, an_artifact(run), path="a")
    absent = [Absence("kernels", "b200", AbsenceReason.NO_NODE, "no live node")]
    writes.record_absences(engine, "nightly-2", absent, planned=[], at=EPOCH)
    writes.record_plan(engine, "nightly-2", 5, at=EPOCH)
    found = sampled(engine)
    night = {name: value for name, value in found.items() if name.startswith("perfci_night")}
    assert night.pop("perfci_night_device_seconds h200") == pytest.approx(60)
    assert night.pop("perfci_night_device_seconds cpu-test-2c") == pytest.approx(30)
    assert night == {
        "perfci_night_start_timestamp_seconds": (EPOCH + timedelta(minutes=2)).timestamp(),
        "perfci_night_last_result_timestamp_seconds": (late + timedelta(seconds=30)).timestamp(),
        "perfci_night_processes_planned": 5,
        "perfci_night_processes_finished": 3,
        "perfci_night_oldest_unfinished_seconds": 6 * 3600,
        "perfci_night_commits kernels h200": 1,
        "perfci_night_commits kernels cpu-test-2c": 1,
        "perfci_night_runs kernels h200 ok": 2,
        "perfci_night_runs kernels cpu-test-2c build_failed": 1,
        "perfci_night_measurements kernels h200 ok": 2,
        "perfci_night_measurements kernels h200 error": 1,
        "perfci_night_absences kernels b200 no_node": 1,
    }
    assert found["perfci_runs_total kernels cpu-test-2c ok"] == 2
    assert found["perfci_runs_total kernels cpu-test-2c build_failed"] == 1
    assert found["perfci_device_seconds_total kernels cpu-test-2c"] == pytest.approx(90)
    assert found["perfci_last_success_timestamp_seconds kernels h200"] == (late + timedelta(seconds=30)).timestamp()
    assert not any("year" in name for name in found)


def test_a_night_that_measured_nothing_is_the_newest_one_all_the_same(engine: sa.Engine) -> None:
    writes.ingest(engine, an_artifact(a_run(session="nightly-1")), path="a")
    absent = [Absence("kernels", "cpu-test-2c", AbsenceReason.NO_NODE, "no live node")]
    writes.record_absences(engine, "nightly-2", absent, planned=[], at=EPOCH)
    night = {name: value for name, value in sampled(engine).items() if name.startswith("perfci_night")}
    assert night == {
        "perfci_night_absences kernels cpu-test-2c no_node": 1,
        "perfci_night_oldest_unfinished_seconds": 0,
    }


def test_a_night_of_which_nothing_is_stored_yet_is_the_newest_one(engine: sa.Engine) -> None:
    writes.record_plan(engine, "nightly-1", 1, at=EPOCH)
    writes.ingest(engine, an_artifact(a_run(session="nightly-1")), path="a")
    writes.record_plan(engine, "nightly-2", 4, at=EPOCH + timedelta(hours=2))
    # Numbered later, as what is delivered from elsewhere, but no plan's.
    writes.ingest(engine, an_artifact(a_run(session="of-last-year", index=1)), path="b")
    writes.record_plan(engine, "backfill-3", 9, at=EPOCH + timedelta(hours=3))
    night = {name: value for name, value in sampled(engine).items() if name.startswith("perfci_night")}
    assert night == {
        "perfci_night_processes_planned": 4,
        "perfci_night_processes_finished": 0,
        "perfci_night_oldest_unfinished_seconds": 4 * 3600,
    }


def test_the_oldest_unfinished_plan_ages_until_what_it_lacks_has_come_or_was_told(engine: sa.Engine) -> None:
    for session, hours in (("nightly-0", -7 * 24), ("backfill-1", 1), ("nightly-2", 2), ("nightly-3", 7)):
        writes.record_plan(engine, session, 1, at=EPOCH + timedelta(hours=hours))

    def age() -> float:
        return sampled(engine)["perfci_night_oldest_unfinished_seconds"] / 3600

    assert age() == 5  # what a week has not brought is given up
    writes.ingest(engine, an_artifact(a_run(session="backfill-1")), path="a")
    assert age() == 4
    lost = [Absence("kernels", "h200", AbsenceReason.NO_NODE, "none of 1 processes had come back")]
    writes.record_absences(engine, "nightly-2", lost, planned=[], at=NOW)
    assert age() == 0  # a clock that stands an hour before the plan's makes no age below nothing


def test_alerts_are_counted_by_kind_and_by_what_people_said(engine: sa.Engine) -> None:
    names = [f"kernel-{number}" for number in range(7)]
    for position in (1, 2):
        run = a_run([a_measurement(name) for name in names], commit=a_commit(position))
        writes.ingest(engine, an_artifact(run), path="a")
    new = [
        NewAlert(series.id, a_sha(2), kind, 1.1, 1.0, 1.2, evidence)
        for series, kind, evidence in zip(
            reads.all_series(engine),
            [ChangeKind.REGRESSION] * 6 + [ChangeKind.IMPROVEMENT],
            [{}, {}, {}, {}, {"recovered": True}, {"found": False}, {"found": True}],
            strict=True,
        )
    ]
    writes.raise_alerts(engine, new)
    by_name = {alert.series.implementation: alert.id for alert in reads.alerts(engine)}
    for number, state in enumerate([AlertState.INVALID, AlertState.ACCEPTED, AlertState.CONFIRMED]):
        writes.triage(engine, by_name[names[number]], state=state, assignee="", note="")
    found = sampled(engine)
    assert (found["perfci_alerts_open regression"], found["perfci_alerts_open improvement"]) == (2, 1)
    assert (found["perfci_alerts new"], found["perfci_alerts invalid"], found["perfci_alerts fixed"]) == (4, 1, 0)
    assert found["perfci_false_alarm_ratio"] == pytest.approx(1 / 3)


def test_queues_tell_how_many_wait_and_for_how_long(engine: sa.Engine, settings: Settings) -> None:
    for name, age in (("a", 60), ("b", 600), (".writing-c", 9000)):
        path = settings.incoming / f"{name}{artifact.SUFFIX}"
        path.write_bytes(b"{}")
        os.utime(path, (NOW.timestamp() - age,) * 2)
    refused = settings.state / "refused" / f"x{artifact.SUFFIX}"
    refused.write_bytes(b"{}")
    refused.with_name(f"{refused.name}.reason.txt").write_text("no")
    found = sampled(engine, settings)
    assert (found["perfci_queue_files incoming"], found["perfci_queue_oldest_seconds incoming"]) == (2, 600)
    assert (found["perfci_queue_files outgoing"], found["perfci_queue_oldest_seconds outgoing"]) == (0, 0)
    assert found["perfci_queue_files refused"] == 1


def test_a_node_tells_what_it_has_not_handed_over(engine: sa.Engine, settings: Settings) -> None:
    job = {"suite": "kernels", "sha": a_sha(1), "hardware": "h200", "session": "nightly-1", "first_index": 0}
    with parcels.parcel(settings.outgoing, job) as parcel:
        for name in ("a", "b"):
            (parcel.folder / f"{name}{artifact.SUFFIX}").write_bytes(b"{}")
        parcel.refuse(parcel.folder / f"b{artifact.SUFFIX}", "the token is of yesterday")
    found = sampled(engine, settings)
    assert (found["perfci_queue_files outgoing"], found["perfci_queue_files refused"]) == (1, 1)


def test_what_a_channel_was_told_is_counted(engine: sa.Engine) -> None:
    keys = [Subject(f"night {number}") for number in range(3)]
    notices.claim(engine, "chat", keys, at=NOW)
    notices.sent(engine, "chat", ["night 1"], at=NOW)
    found = sampled(engine)
    assert found[f"perfci_notifications chat {NoticeState.SENT}"] == 1
    assert found[f"perfci_notifications chat {NoticeState.SENDING}"] == 2


def test_a_database_that_is_down_is_a_number_and_the_queues_are_still_told(settings: Settings) -> None:
    gone = connect(f"sqlite:///{settings.state / 'gone.db'}", read_only=True)
    found = sampled(gone, settings)
    assert found["perfci_database_up"] == 0
    assert "perfci_queue_files incoming" in found
    assert "perfci_database_bytes" not in found


def test_a_name_cannot_end_its_label(engine: sa.Engine) -> None:
    writes.ingest(engine, an_artifact(a_run(suite='a"} 7 \\n')), path="a")
    assert sampled(engine)['perfci_runs_total a"} 7 \\n cpu-test-2c ok'] == 1


def test_no_statement_walks_over_all_measurements(new_sqlite: Callable[[Path], str], tmp_path: Path) -> None:
    """A year has a million; the ones of the newest night are found by an index."""
    engine = connect(new_sqlite(tmp_path / "perfci.db"))
    writes.ingest(engine, an_artifact(a_run(session="nightly-1")), path="a")
    plans: list[str] = []

    @sa.event.listens_for(engine, "before_cursor_execute")
    def explain(_: object, cursor: Any, statement: str, parameters: Any, *__: object) -> None:
        if statement.startswith("SELECT"):
            plans.extend(row[3] for row in cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall())

    metrics.text(engine, now=NOW)
    assert any("SEARCH measurement USING INDEX ix_measurement_run_id" in plan for plan in plans)
    assert [plan for plan in plans if plan.startswith("SCAN measurement")] == []
