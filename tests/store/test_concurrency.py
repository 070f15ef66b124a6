"""Eight writers at once, as eight processes, on both databases."""

from __future__ import annotations

import random
from collections import Counter

import sqlalchemy as sa

from perfci.artifact import Artifact
from perfci.model import ChangeKind, Commit
from perfci.store import reads, writes
from perfci.store.engine import connect
from perfci.store.rows import Ingested, NewAlert
from tests.build import a_commit, a_measurement, a_run, a_sha, an_artifact
from tests.store.processes import at_once

WRITERS = 8


def ingest(url: str, artifacts: list[Artifact]) -> list[Ingested]:
    engine = connect(url)
    try:
        return [writes.ingest(engine, artifact, path=artifact.sha256) for artifact in artifacts]
    finally:
        engine.dispose()


def sync(url: str, commits: list[Commit]) -> None:
    engine = connect(url)
    for _ in range(5):
        writes.sync_branch(engine, "kernels", commits)
    engine.dispose()


def raise_one(url: str, alert: NewAlert) -> int:
    engine = connect(url)
    try:
        return writes.raise_alerts(engine, [alert])
    finally:
        engine.dispose()


def test_one_artifact_from_eight_processes_is_one_run(database_url: str, engine: sa.Engine) -> None:
    artifact = an_artifact()
    results = at_once(ingest, [(database_url, [artifact])] * WRITERS)
    assert Counter(each.created for [each] in results) == {True: 1, False: WRITERS - 1}
    assert {each.run_id for [each] in results} == {reads.runs(engine, suite="kernels")[0].id}
    assert reads.counts(engine)["run"] == 1
    assert reads.counts(engine)["measurement"] == 1


def test_eight_first_results_of_a_new_commit_are_all_stored_with_one_commit(
    database_url: str, engine: sa.Engine
) -> None:
    """Case 17: two uploads at once of the first results of a new commit."""
    results = at_once(ingest, [(database_url, [an_artifact(a_run(index=index))]) for index in range(WRITERS)])
    assert all(each.created for [each] in results)
    expected = {
        "run": 8,
        "commit": 1,
        "suite": 1,
        "hardware": 1,
        "node": 1,
        "environment": 1,
        "session": 1,
        "series": 1,
    }
    assert reads.counts(engine).items() >= (expected | {"measurement": 8}).items()


def test_writers_that_bring_the_same_new_series_in_different_orders_do_not_block_each_other(
    database_url: str, engine: sa.Engine
) -> None:
    # With suite, commit and session there already, the series are the first thing that the writers compete for.
    writes.ingest(engine, an_artifact(), path="a")
    names = [f"implementation-{number}" for number in range(800)]

    def results_of(writer: int) -> list[Artifact]:
        order = random.Random(writer).sample(names, len(names))
        return [an_artifact(a_run([a_measurement(name) for name in order], index=writer + 1))]

    at_once(ingest, [(database_url, results_of(writer)) for writer in range(WRITERS)])
    assert reads.counts(engine).items() >= {"run": 9, "series": 801, "measurement": 6401}.items()


def test_the_branch_can_be_told_by_several_while_results_come_in(database_url: str, engine: sa.Engine) -> None:
    branch = [a_commit(position) for position in range(1, 101)]
    results = [an_artifact(a_run(commit=a_commit(position))) for position in range(40, 60)]
    at_once(_either, [(database_url, branch, None)] * 4 + [(database_url, None, results[part::4]) for part in range(4)])
    assert reads.counts(engine).items() >= {"commit": 100, "run": 20}.items()
    [series] = reads.all_series(engine)
    assert [point.commit.position for point in reads.history(engine, series.id)] == list(range(40, 60))


def _either(url: str, branch: list[Commit] | None, results: list[Artifact] | None) -> None:
    if branch is not None:
        sync(url, branch)
    if results is not None:
        ingest(url, results)


def test_one_change_found_by_eight_detectors_is_one_alert(database_url: str, engine: sa.Engine) -> None:
    writes.ingest(engine, an_artifact(), path="a")
    [series] = reads.all_series(engine)
    alert = NewAlert(series.id, a_sha(1), ChangeKind.REGRESSION, 1.1, 1.05, 1.15)
    assert sum(at_once(raise_one, [(database_url, alert)] * WRITERS)) == 1
    assert len(reads.alerts(engine)) == 1
