"""Rows in, the rows of a table out, as people read them. No streamlit; tables show text as text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dashboard import text
from dashboard.levels import Level, Shown
from dashboard.scales import value
from dashboard.tonight import Entry, Section
from dashboard.traces import alert_gain
from perfci.changes import Verdict
from perfci.model import Control, Environment, Status
from perfci.store.rows import AlertRow, Point, RunRow, SeriesRow

Sheet = list[dict[str, str]]


def tonight(section: Section) -> Sheet:
    counted = section.shown is Shown.TOKENS
    rows = []
    for entry in section.entries:
        level = entry.level
        triple = value(level, section.shown) if entry.status is Status.OK else None
        rows.append(
            {
                "implementation": entry.name,
                "status": entry.status.value if level.verified or not triple else f"{entry.status.value}, unverified",
                **_speed(entry, triple[0] if triple else None, counted=counted),
                "spread": _spread(level) if triple else "–",
                "of the ceiling": text.percent(level.ceiling_fraction) if triple else "–",
                "against history": _against_history(entry),
                "processes": str(level.processes),
                "commit": text.short(level.commit.sha),
                "when": text.moment(level.newest_at),
                "reason": entry.reason,
            }
        )
    return _without_empty(rows, "reason")


def alerts(rows: Sequence[AlertRow], series: Mapping[int, SeriesRow]) -> Sheet:
    return [_alert(row, series[row.series_id]) for row in rows if row.series_id in series]


def _alert(row: AlertRow, series: SeriesRow) -> dict[str, str]:
    change, low, high = alert_gain(row, series.direction)
    return {
        "kind": row.kind.value,
        "change": text.percent(change, signed=True),
        "interval": f"{text.percent(low, signed=True)} to {text.percent(high, signed=True)}",
        "state": row.state.value,
        "implementation": row.series.implementation,
        "workload": row.series.workload,
        "hardware": row.series.hardware,
        "commit": text.short(row.commit.sha),
        "subject": row.commit.subject,
        "raised": text.moment(row.created_at),
        "assignee": row.assignee,
    }


def processes(found: Sequence[tuple[SeriesRow, Point]]) -> Sheet:
    """One row a process and series: what was measured at one commit."""
    rows = []
    for series, point in found:
        fraction = point.floor / point.median if point.floor is not None and point.median else None
        rate = point.tokens / point.median if point.tokens > 0 and point.median else None
        middle_80 = f"{text.quantity(point.p10, series.unit)} to {text.quantity(point.p90, series.unit)}"
        rows.append(
            {
                "implementation": series.key.implementation,
                "process": str(point.index),
                "status": point.status.value,
                "median": text.quantity(point.median, series.unit),
                "10 % to 90 %": middle_80 if point.median is not None else "–",
                "samples": str(point.n) if point.n else "–",
                "tokens/s": text.figure(rate) if rate else "–",
                "of the ceiling": text.percent(fraction),
                "verified": "yes" if point.verified else "no",
                "session": point.session,
                "node": point.node,
                "reason": point.reason,
            }
        )
    return _without_empty(rows, "reason")


def runs(rows: Sequence[RunRow]) -> Sheet:
    told = [
        {
            "session": row.session,
            "process": str(row.index),
            "status": row.status.value,
            "origin": row.origin.value,
            "node": row.node,
            "started": text.moment(row.started_at),
            "took": text.quantity((row.finished_at - row.started_at).total_seconds(), "s"),
            "disturbed by": "; ".join(row.disturbed),
            "reason": row.reason,
        }
        for row in rows
    ]
    return _without_empty(told, "disturbed by", "reason")


def controls(rows: Sequence[Control]) -> Sheet:
    return [
        {
            "control": row.name.replace("_", " "),
            "value": text.quantity(row.value, row.unit),
            "working set": text.quantity(row.working_set_bytes, "B"),
        }
        for row in rows
    ]


def environment(known: Environment | None, fingerprint: str) -> str:
    if known is None:
        return fingerprint
    facts = ((f.name.replace("_", " "), getattr(known, f.name)) for f in dataclasses.fields(Environment))
    return ", ".join(f"{name} {value}" for name, value in facts if value) or fingerprint


def _speed(entry: Entry, value: float | None, *, counted: bool) -> dict[str, str]:
    if counted:
        return {"tokens/s": "–" if value is None else text.figure(value)}
    return {entry.series.key.metric: text.quantity(value, entry.series.unit)}


def _spread(level: Level) -> str:
    return "one process" if level.spread is None else f"±{text.percent(level.spread, digits=2)}"


def _against_history(entry: Entry) -> str:
    if entry.change is None:
        return "–"
    return entry.standing.verdict.beside(text.percent(entry.change, signed=True, digits=2))


def says_nothing(cell: str) -> bool:
    """A change that is shown and must not be read as one."""
    return cell.endswith((f", {Verdict.TOO_FEW}", f", {Verdict.WITHIN_SPREAD}"))


def _without_empty(rows: Sheet, *columns: str) -> Sheet:
    """Without those of `columns` that say nothing in any row."""
    silent = {column for column in columns if not any(row[column] for row in rows)}
    return [{name: cell for name, cell in row.items() if name not in silent} for row in rows]
