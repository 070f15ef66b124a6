"""Airflow's queues and pools as the settings give them: what DAGs are built of, on the control plane and on nodes.

Airflow finds a step on a node by its name, so the node's own settings, which know neither the suites nor the other
hardware, must lead to the same names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from perfci.config import HardwareRule, Settings

# The pool of this machine's device, for what has no queue.
DEVICE = "device"
# A team's database may be on another machine, and away for some minutes: tried again after 5, 10, 20 ... seconds.
_PATIENT: Mapping[str, Any] = {"retries": 6, "retry_delay": timedelta(seconds=5), "retry_exponential_backoff": 2.0}
# A node may be lost with its job. On one machine a second try finds what the first one found.
_AGAIN: Mapping[str, Any] = {"retries": 2, "retry_delay": timedelta(minutes=1)}


@dataclass(frozen=True, slots=True)
class Place:
    """Where jobs wait that need so many devices of one queue. executor: empty for the scheduler's own."""

    queue: str
    devices: int
    executor: str

    @property
    def name(self) -> str:
        """Of the group of steps."""
        return (self.queue or DEVICE) + (f"-x{self.devices}" if self.devices > 1 else "")

    @property
    def options(self) -> dict[str, Any]:
        """Of each step, as Airflow's operators take them: a job takes as many slots as devices."""
        named = {"queue": self.queue, "executor": self.executor}
        tries = _AGAIN if self.executor else {"retries": 0}
        return {
            "pool": self.queue or DEVICE,
            "pool_slots": self.devices,
            **{name: value for name, value in named.items() if value},
            **tries,
        }


def places(settings: Settings) -> tuple[Place, ...]:
    """This machine's device first, then every queue by name."""
    executor = settings.service.executor
    queued = {
        (rule.queue, size) for rule in settings.hardware.values() if rule.queue for size in _sizes(settings, rule)
    }
    return (Place("", 1, executor), *(Place(queue, size, executor) for queue, size in sorted(queued)))


def patience(settings: Settings) -> dict[str, Any]:
    """Of the steps that store and judge. On one machine the database is a file, and is there or is not."""
    return dict(_PATIENT) if settings.service.executor else {}


def waiting(jobs: Iterable[dict[str, Any]], queue: str, devices: int) -> list[dict[str, Any]]:
    """The jobs of one place."""
    return [job for job in jobs if job["queue"] == queue and (not queue or job["devices"] == devices)]


def slots(settings: Settings) -> dict[str, int]:
    """Of each pool: one for the device of this machine, and one a queue as large as its devices."""
    found = {DEVICE: 1}
    for rule in settings.hardware.values():
        if rule.queue:
            found[rule.queue] = found.get(rule.queue, 0) + rule.slots
    return found


def _sizes(settings: Settings, rule: HardwareRule) -> set[int]:
    """The suites tell; a node, which has none of them, is ready for whatever it has devices for."""
    sizes = {suite.devices for suite in settings.suites.values()}
    return sizes | set(range(1, rule.slots + 1)) if settings.service.runner or not sizes else sizes
