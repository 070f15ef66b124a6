"""Alerts: what the detector finds may change, what a person decided stays."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
import sqlalchemy as sa

from perfci.errors import StoreError
from perfci.model import AlertState, ChangeKind
from perfci.store import reads, writes
from perfci.store.rows import NewAlert
from tests.build import EPOCH, a_commit, a_run, a_sha, an_artifact

LATER = EPOCH + timedelta(days=1)


@pytest.fixture
def alert(engine: sa.Engine) -> NewAlert:
    for position in (1, 2):
        writes.ingest(engine, an_artifact(a_run(commit=a_commit(position))), path="a")
    [series] = reads.all_series(engine)
    return NewAlert(series.id, a_sha(2), ChangeKind.REGRESSION, 1.1, 1.05, 1.15, {"points": 20, "why": "<b>step</b>"})


def test_a_change_is_new_once(engine: sa.Engine, alert: NewAlert) -> None:
    other = dataclasses.replace(alert, commit_sha=a_sha(1))
    assert writes.raise_alerts(engine, [alert], at=EPOCH) == 1
    assert writes.raise_alerts(engine, [alert, other], at=LATER) == 1
    assert writes.raise_alerts(engine, []) == 0
    newest, oldest = reads.alerts(engine)
    assert (newest.commit, oldest.commit) == (a_commit(1), a_commit(2))
    assert (oldest.kind, oldest.ratio, oldest.low, oldest.high) == (ChangeKind.REGRESSION, 1.1, 1.05, 1.15)
    assert (oldest.created_at, oldest.updated_at, oldest.state) == (EPOCH, LATER, AlertState.NEW)
    assert oldest.evidence == alert.evidence
    assert (oldest.series.suite, oldest.series.hardware) == ("kernels", "cpu-test-2c")


def test_detecting_again_updates_the_evidence_and_leaves_decisions(engine: sa.Engine, alert: NewAlert) -> None:
    writes.raise_alerts(engine, [alert], at=EPOCH)
    [raised] = reads.alerts(engine)
    writes.triage(engine, raised.id, state=AlertState.INVESTIGATING, assignee="ada", note="<i>driver?</i>", at=LATER)
    again = dataclasses.replace(
        alert, ratio=0.8, low=0.7, high=0.9, kind=ChangeKind.IMPROVEMENT, evidence={"points": 30}
    )
    writes.raise_alerts(engine, [again], at=LATER + timedelta(days=1))
    [found] = reads.alerts(engine)
    assert (found.state, found.assignee, found.note) == (AlertState.INVESTIGATING, "ada", "<i>driver?</i>")
    assert (found.kind, found.ratio, found.evidence) == (ChangeKind.IMPROVEMENT, 0.8, {"points": 30})
    assert (found.id, found.created_at) == (raised.id, EPOCH)


def test_a_settled_alert_is_read_only_when_asked_for(engine: sa.Engine, alert: NewAlert) -> None:
    writes.raise_alerts(engine, [alert])
    [raised] = reads.alerts(engine)
    for state in AlertState:
        writes.triage(engine, raised.id, state=state, assignee="", note="")
        assert len(reads.alerts(engine, open_only=False)) == 1
        assert len(reads.alerts(engine)) == (state in {AlertState.NEW, AlertState.CONFIRMED, AlertState.INVESTIGATING})


def test_a_decision_about_nothing_is_an_error(engine: sa.Engine) -> None:
    with pytest.raises(StoreError, match="there is no alert 77"):
        writes.triage(engine, 77, state=AlertState.FIXED, assignee="", note="")


def test_an_alert_about_an_unknown_commit_stores_none_of_its_batch(engine: sa.Engine, alert: NewAlert) -> None:
    writes.ingest(engine, an_artifact(a_run(suite="other", commit=a_commit(3))), path="a")
    for wrong in (dataclasses.replace(alert, commit_sha=a_sha(3)), dataclasses.replace(alert, series_id=77)):
        with pytest.raises(StoreError, match="there is no commit"):
            writes.raise_alerts(engine, [alert, wrong])
    assert reads.alerts(engine) == ()
