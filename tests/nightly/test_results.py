from __future__ import annotations

import dataclasses
import json
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from perfci import report, tonight
from perfci.config import Policy
from perfci.model import Environment, Measurement, Origin, Run, Status
from perfci.report import fields
from perfci.results import Result, newest, spread
from perfci.store import reads, writes
from perfci.store.engine import connect
from perfci.store.schema import upgrade
from tests.build import CPU, EPOCH, H200, a_commit, a_measurement, a_run, a_workload, an_artifact

KEYS = [
    *("suite", "commit", "workload", "implementation", "hardware", "node", "origin", "status", "verified"),
    *("median_s", "tokens_per_second", "ceiling_fraction", "n_runs"),
]


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    url = f"sqlite:///{tmp_path / 'perfci.db'}"
    upgrade(url)
    return connect(url)


def store(engine: Engine, *runs: Run, origin: Origin | None = None) -> None:
    for run in runs:
        writes.ingest(engine, an_artifact(run), path="somewhere", origin=origin)


def processes(*measurements: Measurement, session: str = "night-1", hours: int = 0, **more: object) -> list[Run]:
    began = EPOCH + timedelta(hours=hours)
    return [
        a_run([m], session=session, index=i, started_at=began + timedelta(minutes=i), **more)  # type: ignore[arg-type]
        for i, m in enumerate(measurements)
    ]


def one(engine: Engine) -> Result:
    (found,) = newest(engine)
    return found


def test_the_median_is_that_of_the_processes_medians_and_the_rest_follows_from_it(engine: Engine) -> None:
    levels = ((0.010,) * 9, (0.011, 0.011), (0.030,))
    store(engine, *processes(*(a_measurement(samples=samples) for samples in levels)))
    found = one(engine)
    assert found.median_s == 0.011
    assert found.tokens_per_second == pytest.approx(1 / 0.011)
    assert found.n_runs == 3
    floor = reads.latest(engine)[0][1][0].floor
    assert floor is not None
    assert found.ceiling_fraction == pytest.approx(floor / 0.011)


def test_the_json_has_exactly_the_promised_keys_in_their_order(engine: Engine) -> None:
    store(engine, *processes(a_measurement()))
    row = fields(one(engine))
    assert list(row) == KEYS == [f.name for f in dataclasses.fields(Result)]
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert (row["origin"], row["status"], row["verified"]) == ("measured", "ok", True)


def test_a_later_night_on_the_same_commit_adds_its_processes(engine: Engine) -> None:
    store(engine, *processes(a_measurement(), a_measurement()))
    store(engine, *processes(a_measurement(), a_measurement(), session="night-2", hours=24))
    assert one(engine).n_runs == 4


def test_one_failing_process_is_told_and_there_is_no_median(engine: Engine) -> None:
    store(engine, *processes(a_measurement(), a_measurement(status=Status.INCORRECT), a_measurement()))
    found = one(engine)
    assert (found.status, found.median_s, found.tokens_per_second, found.n_runs) == (Status.INCORRECT, None, None, 3)


def test_a_later_night_may_repair_an_earlier_ones_timeout_but_not_the_reverse(engine: Engine) -> None:
    store(engine, *processes(a_measurement(status=Status.TIMEOUT)))
    store(engine, *processes(a_measurement(), session="night-2", hours=24))
    assert (one(engine).status, one(engine).n_runs) == (Status.OK, 1)
    store(engine, *processes(a_measurement(status=Status.TIMEOUT), session="night-3", hours=48))
    assert (one(engine).status, one(engine).median_s) == (Status.TIMEOUT, None)


def test_an_incorrect_output_is_not_repaired_by_a_later_night_that_was_lucky(engine: Engine) -> None:
    store(engine, *processes(a_measurement(), a_measurement(status=Status.INCORRECT)))
    store(engine, *processes(a_measurement(), a_measurement(), session="night-2", hours=24))
    assert (one(engine).status, one(engine).median_s) == (Status.INCORRECT, None)


def test_the_report_of_an_earlier_night_stays_what_it_was(engine: Engine) -> None:
    store(engine, *processes(a_measurement(status=Status.TIMEOUT)))
    store(engine, *processes(a_measurement(), session="night-2", hours=24))
    told = {name: tonight.night(engine, name, policy=Policy()) for name in ("night-1", "night-2")}
    statuses = {name: [row.result.status for row in night.sections[0].rows] for name, night in told.items()}
    assert statuses == {"night-1": [Status.TIMEOUT], "night-2": [Status.OK]}
    assert {name: report.exit_code(night) for name, night in told.items()} == {"night-1": 2, "night-2": 0}


def test_processes_of_another_environment_are_no_evidence_beside_the_newest_one(engine: Engine) -> None:
    store(engine, *processes(a_measurement(samples=(0.010,)), a_measurement(samples=(0.010,))))
    newer = Environment(torch="9.9")
    store(engine, *processes(a_measurement(samples=(0.020,)), session="night-2", hours=24, environment=newer))
    assert (one(engine).median_s, one(engine).n_runs) == (0.020, 1)


def test_each_hardware_has_a_row_of_its_own_and_recorded_results_say_so(engine: Engine) -> None:
    store(engine, *processes(a_measurement(), hardware=CPU))
    store(engine, *processes(a_measurement(), hardware=H200, session="h"), origin=Origin.RECORDED)
    assert {(row.hardware, row.origin) for row in newest(engine)} == {
        ("cpu-test-2c", Origin.MEASURED),
        ("h200", Origin.RECORDED),
    }


def test_the_newest_commit_is_the_one_furthest_on_the_branch_not_the_last_one_measured(engine: Engine) -> None:
    store(engine, *processes(a_measurement(), commit=a_commit(9)))
    store(engine, *processes(a_measurement(), commit=a_commit(3), session="backfill", hours=50))
    assert one(engine).commit == a_commit(9).sha


def test_without_tokens_there_are_no_tokens_per_second(engine: Engine) -> None:
    store(engine, *processes(a_measurement(workload=a_workload(tokens=0))))
    assert (one(engine).tokens_per_second, one(engine).status) == (None, Status.OK)


def test_the_spread_of_one_process_is_unknown_not_zero(engine: Engine) -> None:
    store(engine, *processes(a_measurement(samples=(0.010,))))
    ((_, points),) = reads.latest(engine)
    assert spread(points) is None
    store(engine, *processes(a_measurement(samples=(0.012,)), session="night-2", hours=24))
    ((_, points),) = reads.latest(engine)
    assert spread(points) == pytest.approx(0.001 / 0.011)
