"""What a monitoring system wants to know of perfci, in Prometheus' text form.

Names, labels and meanings stand in docs/watching.md. Labels are suites, hardware, channels and words of the model:
few, and none grows with the nights.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Engine

from perfci import __version__, artifact
from perfci.config import Settings
from perfci.errors import StoreError
from perfci.model import AlertState, ChangeKind, RunStatus
from perfci.store import gauges
from perfci.store.gauges import Gauges, NewestNight
from perfci.store.reads import OPEN

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PLACE = ("suite", "hardware")
# A person has looked at these and said what it was.
_DECIDED = frozenset(AlertState) - {AlertState.NEW, AlertState.INVESTIGATING}


def text(engine: Engine, settings: Settings | None = None, *, now: datetime) -> str:
    """settings: for the folders; None leaves them out. A database that does not answer is told, not raised."""
    registry = CollectorRegistry()
    registry.register(_Collector(tuple(_families(engine, settings, now))))
    return generate_latest(registry).decode()


class _Collector(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _families(engine: Engine, settings: Settings | None, now: datetime) -> Iterator[Metric]:
    yield _gauge("perfci_build_info", "This perfci.", {(__version__,): 1}, labels=("version",))
    if settings is not None:
        yield from _folders(settings, now)
    try:
        found = gauges.read(engine, now=now)
    except StoreError:
        found = None
    yield _gauge("perfci_database_up", "Whether the database answers.", {(): int(found is not None)})
    if found is not None:
        yield _gauge("perfci_database_bytes", "Size of the database.", {(): found.database_bytes})
        yield from _totals(found)
        yield from _alerts(found)
        yield from _notices(found)
        yield _unfinished(found, now)
        if found.night is not None:
            yield from _night(found.night)


def _folders(settings: Settings, now: datetime) -> Iterator[Metric]:
    """incoming: results on their way into the database. outgoing: on a node, those that are not handed over yet."""
    times = {
        ("incoming",): _times(settings.incoming, "*"),
        ("outgoing",): _times(settings.outgoing, "*/*"),
        ("refused",): (*_times(settings.state, "refused/*"), *_times(settings.outgoing, "*/refused/*")),
    }
    ages = {key: max(0.0, now.timestamp() - min(found)) if found else 0.0 for key, found in times.items()}
    counts = {key: len(found) for key, found in times.items()}
    yield _gauge("perfci_queue_files", "Result files that lie in a folder.", counts, labels=("queue",))
    yield _gauge("perfci_queue_oldest_seconds", "Age of the oldest of them.", ages, labels=("queue",))


def _times(folder: Path, pattern: str) -> tuple[float, ...]:
    found = []
    # Not Path.glob, which stumbles over a folder that goes away meanwhile.
    for name in glob.iglob(f"{pattern}{artifact.SUFFIX}", root_dir=folder):  # noqa: PTH207
        with suppress(OSError):  # it was taken in since
            found.append((folder / name).stat().st_mtime)
    return tuple(found)


def _totals(found: Gauges) -> Iterator[Metric]:
    runs = {(t.suite, t.hardware, t.status.value): t.runs for t in found.totals}
    seconds: dict[tuple[str, ...], float] = {}
    for t in found.totals:
        seconds[t.suite, t.hardware] = seconds.get((t.suite, t.hardware), 0.0) + t.device_seconds
    good = {(t.suite, t.hardware): t.finished_at.timestamp() for t in found.totals if t.status is RunStatus.OK}
    yield _counter("perfci_runs", "Processes that were stored.", runs, labels=(*PLACE, "status"))
    yield _counter("perfci_device_seconds", "Seconds that devices were held by them.", seconds, labels=PLACE)
    yield _gauge("perfci_last_success_timestamp_seconds", "When a process last ended well.", good, labels=PLACE)


def _unfinished(found: Gauges, now: datetime) -> Metric:
    since = found.unfinished_since
    age = 0.0 if since is None else max(0.0, (now - since).total_seconds())
    told = "Age of the oldest plan that still lacks processes; 0 where none does."
    return _gauge("perfci_night_oldest_unfinished_seconds", told, {(): age})


def _night(night: NewestNight) -> Iterator[Metric]:
    if night.progress is not None:
        planned, finished = night.progress.planned, night.progress.finished
        yield _gauge("perfci_night_processes_planned", "Processes that the newest night is to have.", {(): planned})
        yield _gauge("perfci_night_processes_finished", "Those of them that are stored.", {(): finished})
    if night.began_at is not None and night.finished_at is not None:
        began, ended = night.began_at.timestamp(), night.finished_at.timestamp()
        yield _gauge("perfci_night_start_timestamp_seconds", "When the newest night began.", {(): began})
        yield _gauge("perfci_night_last_result_timestamp_seconds", "When its last stored process ended.", {(): ended})
    yield _gauge("perfci_night_commits", "Commits that it has measured.", night.commits, labels=PLACE)
    status = (*PLACE, "status")
    yield _gauge("perfci_night_runs", "Its processes.", night.runs, labels=status)
    yield _gauge("perfci_night_measurements", "Its measurements.", night.results, labels=status)
    seconds = {(name,): value for name, value in night.device_seconds.items()}
    yield _gauge("perfci_night_device_seconds", "Seconds that it held devices.", seconds, labels=("hardware",))
    reason = (*PLACE, "reason")
    yield _gauge("perfci_night_absences", "What it was to measure and did not.", night.absences, labels=reason)


def _alerts(found: Gauges) -> Iterator[Metric]:
    still = {(kind.value,): 0 for kind in ChangeKind}
    for (kind, state, stands), count in found.alerts.items():
        if state in OPEN and stands:
            still[kind.value,] += count
    states = {(state.value,): 0 for state in AlertState}
    for (_, state, _), count in found.alerts.items():
        states[state.value,] += count
    yield _gauge("perfci_alerts_open", "Alerts that ask for an answer.", still, labels=("kind",))
    yield _gauge("perfci_alerts", "All alerts, by what people said.", states, labels=("state",))
    decided = sum(states[state.value,] for state in _DECIDED)
    if decided:
        share = states[AlertState.INVALID.value,] / decided
        yield _gauge("perfci_false_alarm_ratio", "Share of decided alerts that were no change.", {(): share})


def _notices(found: Gauges) -> Iterator[Metric]:
    counts = {(channel, state.value): count for (channel, state), count in found.notices.items()}
    told = "What channels were told; `sending` is on its way or was cut short."
    yield _gauge("perfci_notifications", told, counts, labels=("channel", "state"))


def _gauge(name: str, told: str, values: Mapping[Any, float], *, labels: Sequence[str] = ()) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, told, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _counter(name: str, told: str, values: Mapping[Any, float], *, labels: Sequence[str]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, told, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family
