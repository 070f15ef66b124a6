"""From stored histories to alerts, through the database."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from perfci import nightly, report
from perfci.model import AlertState, ChangeKind, Environment, Origin, Run
from perfci.store import reads, writes
from perfci.tonight import night
from tests.build import ENVIRONMENT, EPOCH, a_commit, a_measurement, a_run, an_artifact
from tests.nightly.place import Place

POLICY = nightly.config.Policy()


@pytest.fixture
def empty(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    nightly.opened(nightly.config.load(place.config)).dispose()
    return place


def a_night(position: int, level: float, *, session: str = "", seed: int = 0, **more: object) -> list[Run]:
    """Two processes at one commit; 0.2 % of noise between them."""
    source = random.Random(f"{position} {seed}")
    return [
        a_run(
            samples=tuple(level * source.gauss(1, 0.002) * source.gauss(1, 0.001) for _ in range(9)),
            commit=a_commit(position),
            session=session or f"night-{position}",
            index=index,
            **more,  # type: ignore[arg-type]
        )
        for index in range(2)
    ]


def store(place: Place, runs: Sequence[Run]) -> None:
    for run in runs:
        artifact = an_artifact(run)
        writes.ingest(place.engine, artifact, path=f"artifacts/{artifact.sha256}")


def history(place: Place, levels: Sequence[float], **more: object) -> str:
    """A night a commit; the newest session."""
    store(place, [run for position, level in enumerate(levels, 1) for run in a_night(position, level, **more)])
    return f"night-{len(levels)}"


def test_a_slower_level_is_a_regression_at_its_first_commit_and_is_raised_once(empty: Place) -> None:
    session = history(empty, [0.010] * 20 + [0.011] * 4)
    first, again = nightly.detect(empty.path, session), nightly.detect(empty.path, session)
    assert (first["new_alerts"], again["new_alerts"]) == (1, 0)
    (alert,) = reads.alerts(empty.engine)
    assert (alert.kind, alert.commit.position) == (ChangeKind.REGRESSION, 21)
    assert alert.ratio == pytest.approx(1.1, rel=0.005)
    assert alert.low < alert.ratio < alert.high
    assert alert.evidence["before"] == a_commit(20).sha
    assert alert.evidence["unmeasured_commits"] == 0


def test_a_faster_level_is_an_improvement(empty: Place) -> None:
    nightly.detect(empty.path, history(empty, [0.010] * 20 + [0.008] * 4))
    (alert,) = reads.alerts(empty.engine)
    assert alert.kind is ChangeKind.IMPROVEMENT


def test_a_night_with_an_open_regression_exits_with_one_and_says_how_much(empty: Place) -> None:
    session = history(empty, [0.010] * 20 + [0.011] * 4)
    nightly.detect(empty.path, session)
    found = night(empty.engine, session, policy=POLICY)
    assert report.exit_code(found) == 1
    text = report.night_table(found)
    assert "REGRESSION #1 (new): decode/tiny / torch-eager" in text
    assert "-9.1 %" in text
    writes.triage(empty.engine, 1, state=AlertState.ACCEPTED, assignee="a", note="wanted")
    assert report.exit_code(night(empty.engine, session, policy=POLICY)) == 0


def test_one_bad_night_raises_nothing(empty: Place) -> None:
    told = nightly.detect(empty.path, history(empty, [0.010] * 20 + [0.013]))
    assert told["changes"] == []


def test_a_young_history_raises_nothing(empty: Place) -> None:
    assert nightly.detect(empty.path, history(empty, [0.010] * 3 + [0.020] * 3))["changes"] == []


def test_a_change_below_relevance_is_told_and_raises_nothing(empty: Place) -> None:
    told = nightly.detect(empty.path, history(empty, [0.010] * 30 + [0.01006] * 30))
    assert [change["relevant"] for change in told["changes"]] == [False]
    assert reads.alerts(empty.engine, open_only=False) == ()


def test_small_steps_that_add_up_are_raised_with_their_sum(empty: Place) -> None:
    empty.config.write_text(empty.config.read_text("utf-8") + "[policy]\nrelevance = 0.05\n", "utf-8")
    nightly.detect(empty.path, history(empty, [0.0100] * 10 + [0.0104] * 10 + [0.0108] * 10))
    (alert,) = reads.alerts(empty.engine)
    assert alert.commit.position == 21
    assert alert.ratio == pytest.approx(1.08, rel=0.005)
    assert alert.low < alert.ratio < alert.high


def test_a_regression_that_was_taken_back_before_it_was_reported_asks_nobody(empty: Place) -> None:
    told = nightly.detect(empty.path, history(empty, [0.010] * 15 + [0.012] * 6 + [0.010] * 6))
    regressions = [change for change in told["changes"] if change["kind"] == "regression"]
    assert [change["recovered"] for change in regressions] == [True]
    assert all(alert.kind is ChangeKind.IMPROVEMENT for alert in reads.alerts(empty.engine))


def test_a_regression_that_is_taken_back_later_no_longer_fails_the_night(empty: Place) -> None:
    levels = [0.010] * 15 + [0.012] * 6
    nightly.detect(empty.path, history(empty, levels))
    store(empty, [run for position in range(22, 28) for run in a_night(position, 0.010)])
    nightly.detect(empty.path, "night-27")
    (alert,) = [a for a in reads.alerts(empty.engine) if a.kind is ChangeKind.REGRESSION]
    assert alert.evidence["recovered"] is True
    assert report.exit_code(night(empty.engine, "night-27", policy=POLICY)) == 0


def test_an_alert_keeps_its_commit_and_its_triage_when_its_place_moves_a_little(empty: Place) -> None:
    session = history(empty, [0.010] * 20 + [0.012] * 5)
    nightly.detect(empty.path, session)
    writes.triage(empty.engine, 1, state=AlertState.CONFIRMED, assignee="ada", note="mine")
    # More evidence for commit 20 shows that it was slow already.
    for extra in range(5):
        store(empty, a_night(20, 0.012, session="night-25b", seed=100 + extra))
    nightly.detect(empty.path, "night-25b")
    (alert,) = reads.alerts(empty.engine)
    assert alert.evidence["commit"] == a_commit(20).sha
    assert (alert.commit.position, alert.state, alert.assignee) == (21, AlertState.CONFIRMED, "ada")


def test_an_alert_that_more_evidence_refutes_stays_on_record_and_is_no_longer_held_against_a_night(
    empty: Place,
) -> None:
    session = history(empty, [0.010] * 12 + [0.012] * 2)
    nightly.detect(empty.path, session)
    assert report.exit_code(night(empty.engine, session, policy=POLICY)) == 1
    for position in (13, 14):
        for extra in range(5):
            store(empty, a_night(position, 0.010, session="again", seed=100 + extra))
    nightly.detect(empty.path, "again")
    (alert,) = reads.alerts(empty.engine)
    assert alert.evidence["found"] is False
    assert report.exit_code(night(empty.engine, "again", policy=POLICY)) == 0
    shown = [json.loads(empty.perfci("alerts", "--json", *more).stdout) for more in ((), ("--all",))]
    assert [len(alerts) for alerts in shown] == [0, 1]


def test_a_new_driver_is_blamed_on_no_commit(empty: Place) -> None:
    store(empty, [run for p in range(1, 21) for run in a_night(p, 0.010)])
    moved = Environment(**{**{f: getattr(ENVIRONMENT, f) for f in ENVIRONMENT.__slots__}, "driver": "999.1"})
    store(empty, [run for p in range(21, 33) for run in a_night(p, 0.013, environment=moved)])
    assert nightly.detect(empty.path, "night-32")["changes"] == []


def test_ancestry_orders_a_history_and_dates_do_not(empty: Place) -> None:
    empty.config.write_text(empty.config.read_text("utf-8") + "[policy]\nminimum_history = 4\n", "utf-8")
    for hours in ((1, 4, 2, 3), (5, 5, 5, 5)):  # as many hours after the first; then four commits of one second
        suite = f"dated-{hours[0]}"
        commits = [a_commit(p, committed_at=EPOCH + timedelta(hours=h)) for p, h in enumerate(hours, 1)]
        measured = zip(commits, (0.010, 0.010, 0.020, 0.020), strict=True)
        for commit, level in reversed(list(measured)):  # nor does it matter which was measured first
            store(empty, [a_run(samples=(level,) * 5, commit=commit, session=suite, suite=suite)])
        told = nightly.detect(empty.path, suite)
        assert [change["commit"] for change in told["changes"]] == [commits[2].sha]


def test_gaps_between_measured_commits_are_not_filled_in(empty: Place) -> None:
    levels = [0.010] * 7 + [0.012] * 5
    gaps = (1, 2, 7, 8, 9, 30, 31, 32, 33, 90, 91, 92)
    for suite, places in (("dense", range(1, 13)), ("gaps", gaps)):
        for position, level in zip(places, levels, strict=True):
            store(empty, a_night(position, level, session=suite, suite=suite))
    dense, sparse = (nightly.detect(empty.path, suite)["changes"] for suite in ("dense", "gaps"))
    assert [change["commit"] for change in dense] == [a_commit(8).sha]
    assert [change["commit"] for change in sparse] == [a_commit(32).sha]
    assert [change["unmeasured_commits"] for change in sparse] == [0]


def test_another_sampling_is_blamed_on_no_commit(empty: Place) -> None:
    store(empty, [run for p in range(1, 21) for run in a_night(p, 0.010)])
    store(empty, [run for p in range(21, 33) for run in a_night(p, 0.050, harness="perfci/0.2.0 other")])
    assert nightly.detect(empty.path, "night-32")["changes"] == []


def test_generated_series_raise_alerts_only_when_asked_for(empty: Place) -> None:
    levels = [0.010] * 20 + [0.012] * 5
    session = history(empty, levels, suite="made-up", origin=Origin.SYNTHETIC)
    assert nightly.detect(empty.path, session)["new_alerts"] == 0
    assert nightly.detect(empty.path, session, synthetic=True)["new_alerts"] == 1


def test_only_series_that_the_session_touched_are_looked_at(empty: Place) -> None:
    history(empty, [0.010] * 20 + [0.012] * 5)
    store(empty, [a_run([a_measurement("modular")], session="other", commit=a_commit(25))])
    told = nightly.detect(empty.path, "other")
    assert (told["series"], told["new_alerts"]) == (1, 0)


def test_a_session_that_nobody_knows_touched_nothing(empty: Place) -> None:
    assert nightly.detect(empty.path, "never") == {"session": "never", "series": 0, "changes": [], "new_alerts": 0}


def test_what_a_node_hands_in_a_night_late_is_looked_at_then(empty: Place) -> None:
    """The night that it is stored in may have measured nothing itself."""
    late = history(empty, [0.010] * 20 + [0.011] * 4)
    assert nightly.detect(empty.path, "quiet")["new_alerts"] == 0
    told = nightly.detect(empty.path, "quiet", late=[[], [late, "quiet"]])
    assert (told["session"], told["series"], told["new_alerts"]) == ("quiet", 0, 1)
    (alert,) = reads.alerts(empty.engine)
    assert (alert.commit.position, alert.evidence["session"]) == (21, late)
