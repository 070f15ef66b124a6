"""Sentences about a night, as Streamlit's Markdown; foreign text in them is shown, not interpreted. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from dashboard import text
from dashboard.tonight import Entry, Wrong
from perfci import report
from perfci.model import Origin
from perfci.store.rows import AbsenceRow, RunRow

_MOST_NAMES = 12
_LONGEST_REASON = 300


def wrong(found: Wrong) -> str:
    """How many of what, then a line for each status with the names, then a line for each broken run."""
    by_status = [(status, list(group)) for status, group in groupby(found.entries, key=lambda e: e.status)]
    counts = [f"{len(entries)} {text.as_markdown(status)}" for status, entries in by_status]
    if found.runs:
        counts.append(f"{len(found.runs)} broken run{'' if len(found.runs) == 1 else 's'}")
    lines = [f"{text.as_markdown(status)}: {_names(entries)}" for status, entries in by_status]
    lines += [run(broken) for broken in found.runs]
    return f"**Went wrong: {', '.join(counts)}**\n\n" + "\n".join(f"- {line}" for line in lines)


def absences(rows: Sequence[AbsenceRow]) -> str:
    """A line each, with the night that lacks it."""
    told = [f"{report.absence_text(row)} ({text.moment(row.created_at)})" for row in rows]
    return "\n".join(f"- {text.as_markdown(line)}" for line in told)


def run(broken: RunRow) -> str:
    reason = " ".join(broken.reason.split())
    cut = reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}…"
    made = ", synthetic" if broken.origin is Origin.SYNTHETIC else ""
    return text.as_markdown(
        f"{broken.status}: {broken.suite} {text.short(broken.commit.sha)} “{broken.commit.subject}” "
        f"on {broken.hardware}{made}: {cut}"
    )


def _names(entries: Sequence[Entry]) -> str:
    told = []
    for (workload, hardware, synthetic), group in groupby(entries[:_MOST_NAMES], key=_place):
        names = ", ".join(entry.name for entry in group)
        told.append(text.as_markdown(f"{names} ({workload} on {hardware}{', synthetic' if synthetic else ''})"))
    more = len(entries) - _MOST_NAMES
    return "; ".join([*told, f"and {more} more"] if more > 0 else told)


def _place(entry: Entry) -> tuple[str, str, bool]:
    return entry.series.key.workload, entry.series.key.hardware, entry.series.synthetic
