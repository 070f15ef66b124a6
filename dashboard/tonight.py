"""The newest result of every series, put side by side. Pure; rows in, rows out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from dashboard import palette, text
from dashboard.levels import Level, Shown
from perfci import results
from perfci.changes import Standing
from perfci.model import UNMEASURED, Origin, Status
from perfci.report import gain
from perfci.store.rows import RunRow, SeriesRow

_WRONG = UNMEASURED | {Status.INCORRECT}


@dataclass(frozen=True, slots=True)
class Entry:
    """`level` is the newest measured commit's; `status` and `reason` sum up its newest session."""

    series: SeriesRow
    level: Level
    status: Status
    reason: str
    standing: Standing

    @property
    def name(self) -> str:
        return self.series.key.implementation

    @property
    def change(self) -> float | None:
        """Gain over the history in the same environment; None where there is none."""
        ratio = self.standing.ratio
        return None if ratio is None or self.status is not Status.OK else gain(ratio, self.series.direction)


@dataclass(frozen=True, slots=True)
class Section:
    """One workload of one suite on one hardware; entries in the glossary's order."""

    hardware: str
    suite: str
    workload: str
    entries: tuple[Entry, ...]

    @property
    def shown(self) -> Shown:
        return Shown.TOKENS if any(e.level.tokens > 0 for e in self.entries) else Shown.METRIC

    @property
    def ceiling(self) -> float | None:
        """What the device's own controls would allow, as the chart shows it; None where that is unknown."""
        known = [e.level for e in self.entries if e.level.floor is not None]
        best = min(known, key=lambda level: level.floor or 0.0, default=None)
        if best is None or best.floor is None:
            return None
        return best.tokens / best.floor if self.shown is Shown.TOKENS else best.floor

    @property
    def origins(self) -> tuple[tuple[Origin, datetime], ...]:
        """Every origin of these numbers, with its newest time."""
        return newest_by_origin([entry.level for entry in self.entries])


@dataclass(frozen=True, slots=True)
class Wrong:
    """What went wrong at the newest commits. entries: the worst status first. runs: broken as a whole, one a reason."""

    entries: tuple[Entry, ...] = ()
    runs: tuple[RunRow, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.entries or self.runs)

    @property
    def incorrect(self) -> bool:
        return any(entry.status is Status.INCORRECT for entry in self.entries)


def wrong(sections: Sequence[Section], runs: Sequence[RunRow]) -> Wrong:
    """runs: of the newest commit of each suite and hardware; a later session mends what went wrong in an earlier one.

    A series that the newest measured commit of its suite no longer has is no news: how it ended is told in its row.
    """
    entries = [entry for section in sections for entry in section.entries]
    newest: dict[tuple[str, str], int] = {}
    for entry in entries:
        newest[_suite(entry)] = max(entry.level.commit.position or 0, newest.get(_suite(entry), 0))
    failed = [e for e in entries if e.status in _WRONG and (e.level.commit.position or 0) == newest[_suite(e)]]
    by_place: dict[tuple[str, str], list[RunRow]] = {}
    for run in sorted(runs, key=lambda r: (r.suite, r.hardware, r.started_at)):
        by_place.setdefault((run.suite, run.hardware), []).append(run)
    last = [[run for run in each if run.session == each[-1].session] for each in by_place.values()]
    return Wrong(
        tuple(sorted(failed, key=lambda e: results.SEVERITY.index(e.status))),
        tuple(run for each in last for run in results.broken(each)),
    )


def newest_by_origin(levels: Sequence[Level]) -> tuple[tuple[Origin, datetime], ...]:
    newest: dict[Origin, datetime] = {}
    for level in levels:
        newest[level.origin] = max(level.newest_at, newest.get(level.origin, level.newest_at))
    return tuple(sorted(newest.items()))


def sections(entries: Sequence[Entry]) -> tuple[Section, ...]:
    """By hardware, suite and workload; what was generated comes last."""
    ordered = sorted(entries, key=lambda e: (*_order(_place(e)), palette.order(e.name)))
    return tuple(Section(*place[1:], tuple(group)) for place, group in groupby(ordered, key=_place))


def _suite(entry: Entry) -> tuple[str, str]:
    return entry.series.key.suite, entry.series.key.hardware


def _order(place: tuple[bool, str, str, str]) -> tuple[object, ...]:
    *before, workload = place
    # The name itself too: `b8` and `b08` are two workloads, and one must not stand among the other's.
    return (*before, text.natural(workload), workload)


def _place(entry: Entry) -> tuple[bool, str, str, str]:
    key = entry.series.key
    return entry.series.synthetic, key.hardware, key.suite, key.workload
