"""What the terminal shows, from task states and log files as Airflow 3.3 writes them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from perfci.airflow import TaskInstance
from perfci.embedded.progress import Progress, log_file, name

BEGAN = datetime(2026, 12, 1, 2, 0, tzinfo=UTC)
PLAN = TaskInstance("plan", -1, "", "running", 1, BEGAN, None)
MEASURE = TaskInstance("device.measure", 0, "kernels 1234abcd5", "running", 1, BEGAN, None)


@pytest.fixture
def shown() -> list[str]:
    return []


@pytest.fixture
def progress(tmp_path: Path, shown: list[str]) -> Progress:
    return Progress(tmp_path, "manual__1", "nightly", shown.append, dull=frozenset({"worked"}))


def ended(task: TaskInstance, state: str, seconds: float = 2.5) -> TaskInstance:
    return replace(task, state=state, finished_at=BEGAN + timedelta(seconds=seconds))


def write(logs: Path, task: TaskInstance, *entries: object) -> None:
    path = log_file(logs, "nightly", "manual__1", task)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        for entry in entries:
            stream.write(entry if isinstance(entry, str) else json.dumps(entry) + "\n")


def test_each_change_of_a_step_is_told_once(progress: Progress, shown: list[str]) -> None:
    assert progress.update([PLAN])
    assert not progress.update([PLAN])
    assert progress.update([ended(PLAN, "success"), MEASURE])
    assert shown == ["plan: running", "plan: done (2.5 s)", "measure kernels 1234abcd5: running"]


def test_a_step_that_was_too_quick_to_be_seen_running_is_told_whole(progress: Progress, shown: list[str]) -> None:
    progress.update([ended(PLAN, "success", 0.3)])
    assert shown == ["plan: running", "plan: done (0.3 s)"]


def test_what_measuring_says_is_shown_as_it_comes_and_airflows_own_talk_is_not(
    progress: Progress, shown: list[str], tmp_path: Path
) -> None:
    progress.update([MEASURE])
    write(tmp_path, MEASURE, {"event": "DAG bundles loaded", "logger": "airflow.dag_processing"})
    write(tmp_path, MEASURE, {"event": "process 1 of 3", "logger": "task.stdout"}, '{"event": "process 2 ')
    progress.listen([MEASURE])
    write(
        tmp_path, MEASURE, 'of 3", "logger": "task.stdout"}\n', {"event": "kept", "logger": "perfci.bench"}, "no JSON\n"
    )
    progress.listen([MEASURE])
    assert shown[1:] == ["  process 1 of 3", "  process 2 of 3", "  kept"]


def test_the_last_lines_of_a_step_come_before_its_end(progress: Progress, shown: list[str], tmp_path: Path) -> None:
    progress.update([MEASURE])
    write(tmp_path, MEASURE, {"event": "written", "logger": "task.stdout"})
    progress.update([ended(MEASURE, "failed")])
    assert shown[1:] == ["  written", "measure kernels 1234abcd5: failed (2.5 s)"]


def test_a_mapped_step_is_told_when_it_has_its_name(progress: Progress, shown: list[str]) -> None:
    nameless = replace(MEASURE, label="")
    assert not progress.update([nameless])
    progress.update([MEASURE])
    assert shown == ["measure kernels 1234abcd5: running"]
    assert name(nameless) == "measure 0"


def test_a_step_after_a_failed_one_is_told_as_not_run(progress: Progress, shown: list[str]) -> None:
    progress.update([replace(PLAN, task="detect", state="upstream_failed", finished_at=BEGAN)])
    assert shown == ["detect: not run, because a step before it failed"]


def test_a_dull_step_is_told_only_when_it_fails(progress: Progress, shown: list[str]) -> None:
    dull = replace(PLAN, task="worked")
    progress.update([dull])
    progress.update([ended(dull, "success")])
    assert shown == []
    progress.update([ended(dull, "failed")])
    assert shown == ["worked: failed (2.5 s)"]
