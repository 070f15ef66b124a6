"""What the terminal sees of a DAG run: which task begins and ends, and what the measuring processes say."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from perfci.airflow import TaskInstance

ENDED = ("success", "failed", "skipped", "upstream_failed", "removed")
_WORDS = {"success": "done", "upstream_failed": "not run, because a step before it failed"}
# A step that says nothing for this long is told to be alive.
_SILENCE_S = 30.0
_NAMELESS_S = 5.0


@dataclass(slots=True)
class Progress:
    """logs: where Airflow writes the run's logs. dull: steps that are not told when all is well."""

    logs: Path
    run: str
    dag: str
    echo: Callable[[str], None]
    dull: frozenset[str] = frozenset()
    _seen: dict[tuple[str, int], str] = field(default_factory=dict)
    _began: dict[tuple[str, int], float] = field(default_factory=dict)
    _read: dict[Path, int] = field(default_factory=dict)
    _told_at: float = field(default_factory=time.monotonic)

    def update(self, tasks: Iterable[TaskInstance]) -> bool:
        """Tell what has changed; whether anything has."""
        changed = False
        for task in tasks:
            key = (task.task, task.map_index)
            if self._seen.get(key) == task.state or self._nameless(task):
                continue
            self._tell_change(task, before=self._seen.get(key, ""))
            self._seen[key] = task.state
            changed = True
        return changed

    def listen(self, tasks: Iterable[TaskInstance]) -> None:
        """Tell the lines that running steps have written since."""
        running = [task for task in tasks if self._seen.get((task.task, task.map_index)) == "running" == task.state]
        for task in running:
            self._tell_lines(task)
        if running and time.monotonic() - self._told_at > _SILENCE_S:
            self._tell(f"{name(running[0])}: still running")

    def _nameless(self, task: TaskInstance) -> bool:
        """A mapped step gets its name a moment after it has begun."""
        if task.map_index < 0 or task.label or task.state != "running":
            return False
        began = self._began.setdefault((task.task, task.map_index), time.monotonic())
        return time.monotonic() - began < _NAMELESS_S

    def _tell_change(self, task: TaskInstance, *, before: str) -> None:
        if task.state == "running":
            if _step(task) not in self.dull:
                self._tell(f"{name(task)}: running")
        elif task.state in ENDED:
            if before != "running" and task.state in ("success", "failed") and _step(task) not in self.dull:
                self._tell(f"{name(task)}: running")
            self._tell_lines(task)
            if task.state == "failed" or _step(task) not in self.dull:
                self._tell(f"{name(task)}: {_WORDS.get(task.state, task.state)}{_took(task)}")
        elif task.state == "up_for_retry":
            self._tell(f"{name(task)}: failed, will be tried again")

    def _tell_lines(self, task: TaskInstance) -> None:
        path = log_file(self.logs, self.dag, self.run, task)
        try:
            with path.open("rb") as stream:
                stream.seek(self._read.get(path, 0))
                data = stream.read()
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._read[path] = self._read.get(path, 0) + len(whole)
        for line in whole.splitlines():
            if said := _said(line):
                self._tell(f"  {said}")

    def _tell(self, text: str) -> None:
        self.echo(text)
        self._told_at = time.monotonic()


def name(task: TaskInstance) -> str:
    step = task.task.removeprefix("device.")  # the group of the one device that most machines have
    return step if task.map_index < 0 else f"{step} {task.label or task.map_index}"


def _step(task: TaskInstance) -> str:
    """Airflow numbers the steps of one name."""
    return task.task.partition("__")[0]


def log_file(logs: Path, dag: str, run: str, task: TaskInstance) -> Path:
    """By Airflow's default `log_filename_template`."""
    folder = logs / f"dag_id={dag}" / f"run_id={run}" / f"task_id={task.task}"
    if task.map_index >= 0:
        folder /= f"map_index={task.map_index}"
    return folder / f"attempt={max(1, task.attempt)}.log"


def _said(line: bytes) -> str:
    """What perfci itself has logged; Airflow's own lines are for its pages."""
    try:
        entry = json.loads(line)
    except ValueError:
        return ""
    if not isinstance(entry, dict) or not str(entry.get("logger", "")).startswith(("perfci", "task.stdout")):
        return ""
    return str(entry.get("event", "")).rstrip()


def _took(task: TaskInstance) -> str:
    if task.state not in ("success", "failed") or task.started_at is None or task.finished_at is None:
        return ""
    return f" ({(task.finished_at - task.started_at).total_seconds():.1f} s)"
