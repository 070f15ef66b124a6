"""Jobs that no node will take are given up after a while: a node that dies for good must not hold up all nights.

Airflow itself cannot tell a job that waits because the device is busy from one that waits for a node that is gone, and
asks again for half a day; one night at a time, it would keep the others waiting as well.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from perfci import queues, workers
from perfci.airflow import Airflow
from perfci.config import Settings
from perfci.errors import ServiceError

DAGS = ("nightly", "backfill")
_EVERY_S = 20.0
# A step that runs on a dead node fails by itself, and waits again.
_WAITING = frozenset({"queued", "scheduled"})


class Absences:
    """Since when a queue has no live node."""

    def __init__(self, settings: Settings, echo: Callable[[str], None]) -> None:
        self._settings, self._echo = settings, echo
        self._limit_s = 60 * settings.service.absent_minutes
        self._since: dict[str, float] = {}

    def tend(self, *, at: float, now: datetime) -> int:
        """Give up what waits for nodes that are gone for too long; returns how many steps that were.

        at: of a monotonic clock, in seconds. Raises ServiceError while Airflow cannot be asked.
        """
        seen = workers.here(self._settings, now=now)
        if seen.known is None:
            return 0
        gone: dict[str, str] = {}
        for queue in {rule.queue for rule in self._settings.hardware.values() if rule.queue}:
            if not (reason := seen.absent(queue)):
                self._since.pop(queue, None)
            elif at - self._since.setdefault(queue, at) >= self._limit_s:
                gone[queue] = reason
        airflow = workers.of(self._settings) if gone else None
        if airflow is None:
            return 0
        with airflow:
            return self._give_up(airflow, gone)

    def _give_up(self, airflow: Airflow, gone: Mapping[str, str]) -> int:
        queue_of = {place.name: place.queue for place in queues.places(self._settings)}
        count = 0
        for dag in DAGS:
            for run in airflow.unfinished(dag):
                for task in airflow.task_instances(dag, run.id):
                    queue = queue_of.get(task.task.rpartition(".")[0], "")
                    if queue in gone and task.state in _WAITING:
                        airflow.fail_task(dag, run.id, task)
                        self._echo(f"{run.id}: {task.task} {task.label} is given up: {gone[queue]}")
                        count += 1
        return count


@contextmanager
def watched(settings: Settings, *, echo: Callable[[str], None]) -> Iterator[None]:
    """Looked after beside everything else, since Airflow may take long to answer."""
    if not settings.service.executor:
        yield
        return
    ended = threading.Event()
    absences = Absences(settings, echo)

    def watch() -> None:
        while not ended.wait(min(_EVERY_S, 10 * settings.service.absent_minutes)):
            with suppress(ServiceError):  # asked again soon
                absences.tend(at=time.monotonic(), now=datetime.now(UTC))

    threading.Thread(target=watch, name="absences", daemon=True).start()
    try:
        yield
    finally:
        ended.set()
