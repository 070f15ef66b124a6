"""Which queues have a live node, by what Airflow's edge workers last said.

Asked when a night is planned: what no node would take is told as missing, instead of waiting in a queue for ever.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import datetime, timedelta

from perfci.airflow import Airflow, Worker
from perfci.config import Settings
from perfci.errors import ServiceError

# A worker says every half minute that it is there; one that lost a few of these is not waited for.
SILENT_AFTER = timedelta(minutes=5)
_EDGE = "EdgeExecutor"


@dataclass(frozen=True, slots=True)
class Workers:
    """known: None where nobody can say which there are. note: why, where somebody should have been able to."""

    known: tuple[Worker, ...] | None
    at: datetime
    note: str = ""

    def absent(self, queue: str) -> str:
        """Why no job of this queue would be taken; empty where one would, or where that is not known."""
        if self.known is None or not queue:
            return ""
        serving = [worker for worker in self.known if not worker.queues or queue in worker.queues]
        if any(self._takes_work(worker) for worker in serving):
            return ""
        told = "; ".join(self._told(worker) for worker in sorted(serving, key=lambda worker: worker.name))
        return f"no live node serves queue {queue!r}" + (f": {told}" if told else "")

    def _takes_work(self, worker: Worker) -> bool:
        return worker.alive and worker.seen_at is not None and self.at - worker.seen_at < SILENT_AFTER

    def _told(self, worker: Worker) -> str:
        # A node says its name itself.
        name = "".join(c if c.isprintable() else "?" for c in worker.name)[:80]
        if worker.seen_at is None:
            return f"{name} was never seen"
        return f"{name} is {worker.state}, last seen {worker.seen_at:%Y-%m-%d %H:%M} UTC"


def here(settings: Settings, *, now: datetime) -> Workers:
    """As the Airflow of these settings tells it. Without edge workers, or without a way to ask, nothing is known."""
    if not settings.service.executor.endswith(_EDGE):
        return Workers(None, now)
    airflow = of(settings)
    if airflow is None:
        return Workers(None, now, "nobody can be asked which nodes are alive: Airflow's password is not here")
    with airflow:
        try:
            return Workers(tuple(airflow.workers()), now)
        except ServiceError as error:
            return Workers(None, now, f"nobody could be asked which nodes are alive: {error.message}")


def of(settings: Settings) -> Airflow | None:
    """A client of the Airflow that these settings are about; None without its password.

    Of a team's own Airflow, PERFCI_AIRFLOW_USER and PERFCI_AIRFLOW_PASSWORD tell who asks.
    """
    service = settings.service
    local = f"http://{_reachable(service.bind)}:{service.airflow_port}"
    if password := os.environ.get("PERFCI_AIRFLOW_PASSWORD"):
        user = os.environ.get("PERFCI_AIRFLOW_USER", "admin")
        return Airflow(service.airflow_url or local, user=user, password=password)
    try:
        # Written by the embedded Airflow for its own administrator.
        kept = json.loads((settings.state / "airflow" / "password.json").read_text("utf-8"))
        [(user, password)] = kept.items()
    except (OSError, ValueError, AttributeError):
        return None
    return Airflow(local, user=str(user), password=str(password))


def _reachable(bind: str) -> str:
    """An address that listens everywhere is reached at this machine's own."""
    own = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)
    return f"[{own}]" if ":" in own else own
