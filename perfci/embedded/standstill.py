"""Airflow that no longer begins steps: nobody should wait for it a night long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perfci.airflow import TaskInstance
from perfci.errors import ServiceError

# Airflow begins the next step within seconds, a loaded machine's within a minute. Where one of its workers was killed
# it begins none any more: the others wait for a lock that died with the worker.
LIMIT_S = 180.0
_LOOK_S = 10.0


@dataclass(slots=True)
class Standstill:
    """log: where Airflow may say why. asked_at: when the steps were last looked at, in seconds of the caller's clock.
    idle_s: how long nothing has been seen to happen since."""

    log: str
    asked_at: float
    idle_s: float = 0.0

    def check(self, tasks: Iterable[TaskInstance], *, changed: bool, at: float) -> None:
        """Raises ServiceError when for LIMIT_S no step has been at work and none has changed its state."""
        # Between two looks this command may have been stopped for hours (Ctrl-Z), and Airflow with it.
        self.idle_s += min(at - self.asked_at, _LOOK_S)
        self.asked_at = at
        if changed or any(task.state == "running" for task in tasks):
            self.idle_s = 0.0
        if self.idle_s > LIMIT_S:
            raise ServiceError(
                f"Airflow has begun no step for {LIMIT_S:g} s", next_step=f"run it again; {self.log} may say why"
            )
