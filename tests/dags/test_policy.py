"""What every DAG file of perfci must be, as Airflow reads it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfci import share

FACTS = Path(__file__).with_name("facts.py")
ROOT = Path(__file__).parents[2]
FILES = sorted(path for path in share.folder("dags").glob("*.py") if path.name != "__init__.py")
ONE_MACHINE = '[suite.x]\nrepo = "."\nrun = "pytest"\n'
TEAM = (
    ONE_MACHINE
    + """
[hardware.h200]
match = "H200"
queue = "h200"
[hardware.b200]
match = "B200"
queue = "b200"
[service]
schedule = "15 3 * * *"
timezone = "Europe/Berlin"
executor = "LocalExecutor"
"""
)

pytestmark = pytest.mark.airflow


def read(folder: Path, settings: str) -> dict[str, Any]:
    config = folder / "perfci.toml"
    config.write_text(settings)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AIRFLOW")} | {
        "AIRFLOW_HOME": str(folder / "airflow"),
        "PERFCI_CONFIG": str(config),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, str(FACTS), str(share.folder("dags"))]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return read(tmp_path_factory.mktemp("one"), ONE_MACHINE)


@pytest.fixture(scope="module")
def of_team(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return read(tmp_path_factory.mktemp("team"), TEAM)


def test_every_file_is_read_without_an_error(facts: dict[str, Any], of_team: dict[str, Any]) -> None:
    assert facts["import_errors"] == of_team["import_errors"] == {}
    assert sorted(facts["dags"]) == [path.stem for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_wiring_of_sixty_lines_at_most(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 60
    assert not re.search(r"\b(SELECT|INSERT|UPDATE|Variable|Connection|create_engine)\b", text)


def test_reading_imports_nothing_heavy(facts: dict[str, Any]) -> None:
    heavy = {"torch", "triton", "streamlit", "plotly", "pytest", "kernels", "dashboard"}
    assert not heavy & {name.split(".")[0] for name in facts["modules"]}
    assert "perfci.config" in facts["modules"]


def test_every_dag_tells_what_it_is_and_runs_alone(facts: dict[str, Any]) -> None:
    for name, dag in facts["dags"].items():
        assert len(dag["doc"]) > 100, name
        assert "perfci" in dag["tags"], name
        assert dag["max_active_runs"] == 1, name
        assert dag["catchup"] is False, name
        # A night may be longer than a day: the next one waits, and none is cut silently.
        assert dag["dagrun_timeout"] == "None", name
        assert {task["execution_timeout"] for task in dag["tasks"].values()} == {"None"}, name
        assert all("type" in schema for schema in dag["params"].values()), name


def test_what_occupies_a_device_waits_for_its_pool_and_is_tried_again_when_its_node_is_lost(
    of_team: dict[str, Any],
) -> None:
    tasks = of_team["dags"]["nightly"]["tasks"]
    for queue, pool in (("h200", "h200"), ("b200", "b200"), ("default", "device")):
        for step in ("build", "measure"):
            task = tasks[f"{pool}.{step}"]
            assert (task["pool"], task["queue"], task["executor"]) == (pool, queue, "LocalExecutor")
            assert task["mapped"]
            assert task["map_index_template"]
            assert 1 <= task["retries"] <= 3
            assert task["retry_delay_s"] >= 30
            assert task["pool_slots"] == 1


def test_a_job_takes_as_many_slots_of_its_pool_as_it_needs_devices(tmp_path: Path) -> None:
    two = '[suite.y]\nrepo = "."\nrun = "pytest"\ndevices = 4\n[hardware.h200]\nqueue = "h200"\nslots = 8\n'
    tasks = read(tmp_path, ONE_MACHINE + two)["dags"]["nightly"]["tasks"]
    taken = {name: task["pool_slots"] for name, task in tasks.items() if name.endswith(".measure")}
    assert taken == {"device.measure": 1, "h200.measure": 1, "h200-x4.measure": 4}
    assert {tasks[name]["pool"] for name in ("h200.measure", "h200-x4.measure")} == {"h200"}


def test_a_node_that_knows_neither_suites_nor_other_hardware_finds_the_steps_of_its_queue(
    tmp_path: Path, of_team: dict[str, Any]
) -> None:
    own = "[hardware.h200]\nqueue = 'h200'\nslots = 4\n[service]\nexecutor = 'LocalExecutor'\n"
    for name, dag in read(tmp_path, own)["dags"].items():
        tasks = dag["tasks"]
        assert {f"h200{more}.{step}" for more in ("", "-x2", "-x3", "-x4") for step in ("build", "measure")} <= set(
            tasks
        )
        for step in ("h200.build", "h200.measure"):
            assert tasks[step] == of_team["dags"][name]["tasks"][step] | {"upstream": tasks[step]["upstream"]}


def test_a_night_s_jobs_have_one_priority_below_checks_and_above_backfill(of_team: dict[str, Any]) -> None:
    tasks = of_team["dags"]["nightly"]["tasks"]
    weights = {(tasks[name]["priority_weight"], tasks[name]["weight_rule"]) for name in tasks if "." in name}
    assert weights == {(50, "absolute")}


def test_a_backfill_comes_last_and_its_next_step_is_started_by_the_one_before(of_team: dict[str, Any]) -> None:
    tasks = of_team["dags"]["backfill"]["tasks"]
    weights = {(tasks[name]["priority_weight"], tasks[name]["weight_rule"]) for name in tasks if "." in name}
    assert weights == {(25, "absolute")}
    assert tasks["h200.measure"]["queue"] == "h200"
    assert tasks["ingest"]["trigger_rule"] == "all_done"
    assert sorted(tasks["again"]["upstream"]) == ["more", "plan"]
    assert "NullTimetable" in of_team["dags"]["backfill"]["schedule"]


def test_without_queues_everything_runs_on_the_one_device(facts: dict[str, Any]) -> None:
    tasks = facts["dags"]["nightly"]["tasks"]
    assert sorted(tasks) == ["detect", "device.build", "device.measure", "ingest", "jobs", "notify", "plan", "worked"]
    assert tasks["device.measure"]["upstream"] == ["device.build", "jobs"]
    assert tasks["device.measure"]["executor"] is None
    assert [name for name, task in tasks.items() if task["pool"] != "default_pool"] == [
        "device.build",
        "device.measure",
    ]


def test_results_are_stored_whatever_became_of_other_jobs_and_the_run_tells_of_it(facts: dict[str, Any]) -> None:
    tasks = facts["dags"]["nightly"]["tasks"]
    assert tasks["ingest"]["trigger_rule"] == "all_done"
    # The last step ends the run as failed when one before it has failed, not when there was nothing to measure.
    assert tasks["worked"]["trigger_rule"] == "none_failed"
    assert {"detect", "device.measure"} <= set(tasks["worked"]["upstream"])
    assert not [name for name, task in tasks.items() if "worked" in task["upstream"]]


def test_on_one_machine_measuring_is_not_tried_again_and_everything_else_is(facts: dict[str, Any]) -> None:
    tasks = facts["dags"]["nightly"]["tasks"]
    assert {name for name, task in tasks.items() if not task["retries"]} == {"device.build", "device.measure"}
    assert all(task["retries"] <= 1 for task in tasks.values())


def test_schedule_and_timezone_come_from_the_settings(facts: dict[str, Any], of_team: dict[str, Any]) -> None:
    assert "expression='0 2 * * *', timezone='UTC'" in facts["dags"]["nightly"]["schedule"]
    assert "expression='15 3 * * *', timezone='Europe/Berlin'" in of_team["dags"]["nightly"]["schedule"]


def test_wrong_settings_are_told_by_the_import_error(tmp_path: Path) -> None:
    errors = read(tmp_path, "[suite.x]\nrepo = '.'\nrnu = 'pytest'\n")["import_errors"]
    assert len(errors) == len(FILES)
    assert all("did you mean 'run'?" in error for error in errors.values())
