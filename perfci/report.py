"""A night in words: a table for the terminal and the same as JSON. Pure.

The table fits WIDTH columns, needs no colour, and says why where there is no number.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, takewhile
from typing import Any

from perfci.artifact import plain
from perfci.changes import Verdict
from perfci.model import UNMEASURED, AbsenceReason, ChangeKind, Direction, Origin, RunStatus, Status
from perfci.results import Result
from perfci.store.rows import Absence, AbsenceRow, AlertRow, Progress, RunRow

WIDTH = 100
LOG_LINES = 12
NARROWEST = 13  # characters of a name that still tell it from its neighbour
_ABSENT = {
    AbsenceReason.NO_NODE: "missing",
    AbsenceReason.BUDGET: "cut by the budget",
    AbsenceReason.UNAFFECTED: "nothing new",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One series at one commit.

    spread: half the range of the processes' medians, as a share; None when unknown. gain: how much faster than the
    `past` measured commits before it (0.01: 1 % more tokens/s); None without a past. verdict: what that
    says. reasons: of every process that has no time tonight, each once. alerts: numbers of open ones.
    """

    result: Result
    spread: float | None
    gain: float | None
    past: int
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    alerts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """One commit of one suite on one hardware. failed: tonight's runs that broke as a whole."""

    suite: str
    commit: str
    subject: str
    hardware: str
    processes: int
    rows: tuple[Row, ...]
    failed: tuple[RunRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Night:
    """alerts: open ones of tonight's series. notes: what is good to know; problems: what could not be done.

    absences: what was to be measured and was not. device_seconds: what the night took of each hardware, by its name.
    progress: None where nobody planned it.
    """

    session: str
    sections: tuple[Section, ...] = ()
    alerts: tuple[AlertRow, ...] = ()
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    absences: tuple[AbsenceRow, ...] = ()
    device_seconds: Mapping[str, float] = field(default_factory=dict)
    progress: Progress | None = None


def exit_code(night: Night) -> int:
    """0 all well; 1 a relevant regression or an incorrect output; 2 something could not be measured.

    What the settings leave out of a night (a budget, a commit that touches nothing) is no failure; a night of nothing
    else than budgets is.
    """
    statuses = {row.result.status for section in night.sections for row in section.rows}
    if Status.INCORRECT in statuses or any(alert.kind is ChangeKind.REGRESSION for alert in night.alerts):
        return 1
    unmeasured = bool(statuses & UNMEASURED) or any(section.failed for section in night.sections)
    lacking = {absence.reason for absence in night.absences}
    idle = not night.sections and lacking != {AbsenceReason.UNAFFECTED}
    return 2 if unmeasured or night.problems or AbsenceReason.NO_NODE in lacking or idle else 0


def night_json(night: Night) -> dict[str, Any]:
    """The same facts, in base units, JSON-able."""
    body = plain(night)
    assert isinstance(body, dict)
    return {**body, "exit_code": exit_code(night)}


def night_table(night: Night) -> str:
    blocks = [_section(section, night.alerts) for section in night.sections]
    if night.sections:
        blocks += [_legend([row for section in night.sections for row in section.rows]), alerts_text(night.alerts)]
    else:
        blocks.append(f"Nothing was measured in session {night.session}.")
    if night.progress is not None and night.progress.unfinished:
        blocks.append(f"{night.progress.finished} of {night.progress.planned} processes so far.")
    blocks.append("\n".join(_wrapped(absence_text(absence)) for absence in night.absences))
    blocks.append(_held(night.device_seconds))
    blocks.append("\n".join(_wrapped(f"note: {note}") for note in night.notes))
    blocks.append("\n".join(_wrapped(f"problem: {problem}") for problem in night.problems))
    return "\n\n".join(block for block in blocks if block) + "\n"


def results_table(results: Sequence[Result]) -> str:
    """Each series' newest result; a block a suite and hardware."""
    if not results:
        return "Nothing is measured yet; `perfci nightly` does it."
    blocks = []
    for (suite, hardware), group in groupby(results, key=lambda row: (row.suite, row.hardware)):
        rows = [Row(row, None, None, 0, Verdict.TOO_FEW) for row in group]
        header = ("workload", "implementation", _speed_title(rows), "ceiling", "runs", "commit", "status")
        cells = [_result_cells(row.result) for row in rows]
        blocks.append("\n".join([f"{suite} on {hardware}", *_grid([header, *cells])]))
    return "\n\n".join(blocks)


def alerts_text(alerts: Sequence[AlertRow]) -> str:
    if not alerts:
        return "No alerts."
    return "\n".join(_alert(alert) for alert in alerts)


def absence_text(absence: Absence | AbsenceRow) -> str:
    return f"{_ABSENT[absence.reason]}: {absence.suite} on {absence.hardware}: {absence.text}"


def seconds(value: float) -> str:
    """Four significant digits: 1.234 ms."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size * 0.99995:
            return f"{_digits(value / size)} {unit}"
    return f"{_digits(value / 1e-9)} ns"


def percent(fraction: float, *, sign: bool = False) -> str:
    shown = f"{100 * fraction:+.1f} %" if sign else f"{100 * fraction:.1f} %"
    return shown.replace("-0.0 %", "0.0 %").replace("+0.0 %", "0.0 %")


def gain(ratio: float, direction: Direction) -> float:
    """How much faster a ratio of the metric is, as a fraction: a latency's ratio of 1.25 is -0.2."""
    return (1 / ratio if direction is Direction.LOWER else ratio) - 1


def _section(section: Section, alerts: Sequence[AlertRow]) -> str:
    title = f"{section.suite} · {section.commit[:9]} {section.subject}"
    place = f"{section.hardware} · {section.processes} process{'es' if section.processes != 1 else ''}"
    if (every := max((row.result.n_runs for row in section.rows), default=0)) > section.processes:
        place += f", {every} with those of earlier nights"
    kinds = {alert.id: alert.kind for alert in alerts}
    header = ("workload", "implementation", _speed_title(section.rows), "spread", "ceiling", "change", "status")
    cells = [_cells(row, kinds) for row in section.rows]
    lines = [_shortened(title, WIDTH), place]
    if cells:
        lines += ["", *_grid([header, *cells])]
    lines += _reasons(section.rows)
    for run in section.failed:
        # A build is the commit's, not a process's.
        who = "" if run.status is RunStatus.BUILD_FAILED else f"process {run.index} is "
        lines += ["", _wrapped(f"{who}{run.status}: {run.reason}")]
        lines += [f"  | {_shortened(line, WIDTH - 4)}" for line in run.log_tail.splitlines()[-LOG_LINES:]]
    return "\n".join(lines)


def _legend(rows: Sequence[Row]) -> str:
    """Of the words that the table uses."""
    judged = {row.verdict for row in rows if row.gain is not None}
    lines = {
        "spread: half the range of the processes' medians": any(row.spread is not None for row in rows),
        "ceiling: share of the speed that the bandwidth and arithmetic measured on this device allow": any(
            row.result.ceiling_fraction is not None for row in rows
        ),
        "change: in speed, + is faster; against the median of the commits before it on the same level and in the same "
        "environment": bool(judged),
        f"{Verdict.TOO_FEW}: so few such commits do not tell a change from noise": Verdict.TOO_FEW in judged,
        f"{Verdict.WITHIN_SPREAD}: processes of one side or the other differ as much": Verdict.WITHIN_SPREAD in judged,
        "first: no commit before it was measured in this environment": any(
            row.result.median_s is not None and row.gain is None for row in rows
        ),
        "unverified: the suite gives no reference, so nobody knows whether its output is right": any(
            _unverified(row.result) for row in rows
        ),
    }
    return "\n".join(_wrapped(line) for line, wanted in lines.items() if wanted)


def _held(device_seconds: Mapping[str, float]) -> str:
    each = [f"{hardware} {seconds_held / 60:.1f}" for hardware, seconds_held in device_seconds.items()]
    return _wrapped(f"device minutes: {', '.join(each)}") if each else ""


def _speed_title(rows: Sequence[Row]) -> str:
    counted = [row.result.tokens_per_second is not None for row in rows if row.result.median_s is not None]
    return "tokens/s" if all(counted) else "speed" if any(counted) else "time"


def _cells(row: Row, kinds: dict[int, ChangeKind]) -> tuple[str, ...]:
    found = row.result
    marks = [f"{kinds[number].value.upper()} #{number}" for number in row.alerts if number in kinds]
    return (
        found.workload,
        found.implementation,
        _speed(found),
        "" if found.median_s is None else "one run" if row.spread is None else percent(row.spread),
        "" if found.ceiling_fraction is None else percent(found.ceiling_fraction),
        _change(row),
        ", ".join((_status(found), *marks)),
    )


def _result_cells(found: Result) -> tuple[str, ...]:
    ceiling = "" if found.ceiling_fraction is None else percent(found.ceiling_fraction)
    origin = "" if found.origin is Origin.MEASURED else f", {found.origin.value}"
    name = (found.workload, found.implementation)
    return (*name, _speed(found), ceiling, str(found.n_runs), found.commit[:9], _status(found) + origin)


def _status(found: Result) -> str:
    return found.status.value + (", unverified" if _unverified(found) else "")


def _unverified(found: Result) -> bool:
    return found.status is Status.OK and not found.verified


def _speed(found: Result) -> str:
    if found.tokens_per_second is not None:
        return _digits(found.tokens_per_second)
    return "" if found.median_s is None else seconds(found.median_s)


def _change(row: Row) -> str:
    if row.result.median_s is None:
        return ""
    if row.gain is None:
        return "first"
    return row.verdict.beside(percent(row.gain, sign=True))


def _grid(table: Sequence[Sequence[str]]) -> list[str]:
    """Two names, numbers to the right, a status; columns that say nothing are left out, names shortened to fit."""
    widths = _widths(table)
    if _too_wide(widths):
        folder = _shared_folder([row[0] for row in table[1:]])
        table = [table[0], *((f"…{row[0][len(folder) :]}", *row[1:]) for row in table[1:])] if folder else table
        widths = _widths(table)
    names = (0, 1, len(widths) - 1)
    while _too_wide(widths):
        widest = max(names, key=lambda column: widths[column])
        if widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
    lines = []
    for row in table:
        cells = [
            _shortened(cell, width).ljust(width) if column in names else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            if width
        ]
        lines.append("  ".join(cells).rstrip())
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]


def _widths(table: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) if any(column[1:]) else 0 for column in zip(*table, strict=True)]


def _too_wide(widths: Sequence[int]) -> bool:
    return sum(width + 2 for width in widths if width) - 2 > WIDTH


def _shared_folder(names: Sequence[str]) -> str:
    """`decode/llama-1b` of `decode/llama-1b/b1` and `decode/llama-1b/b64`: what tells nothing of either."""
    folders = zip(*(name.split("/")[:-1] for name in names), strict=False)
    shared = [each[0] for each in takewhile(lambda each: len(set(each)) == 1, folders)]
    return "/".join(shared) if len(set(names)) > 1 else ""


def _reasons(rows: Sequence[Row]) -> list[str]:
    """Why there is no time, or no change, told once for all that it holds for."""
    several = len({row.result.workload for row in rows}) > 1
    told = sorted((row.result.status.value, r, _name(row, with_workload=several)) for row in rows for r in row.reasons)
    lines = [""] if told else []
    for (status, reason), group in groupby(told, key=lambda entry: entry[:2]):
        names = ", ".join(dict.fromkeys(name for _, _, name in group))
        lines.append(_wrapped(f"{status}: {names}: {_shortened(' '.join(reason.split()), 400)}"))
    return lines


def _name(row: Row, *, with_workload: bool) -> str:
    return f"{row.result.workload} / {row.result.implementation}" if with_workload else row.result.implementation


def _alert(alert: AlertRow) -> str:
    # The direction is in the kind: an alert of a latency that rose is a regression.
    slower = (alert.ratio > 1) == (alert.kind is ChangeKind.REGRESSION)
    direction = Direction.LOWER if slower else Direction.HIGHER
    low, high = sorted(gain(ratio, direction) for ratio in (alert.low, alert.high))
    key = alert.series
    return _wrapped(
        f"{alert.kind.value.upper()} #{alert.id} ({alert.state}): "
        f"{key.workload} / {key.implementation} on {key.hardware}: "
        f"{percent(gain(alert.ratio, direction), sign=True)} ({percent(low, sign=True)} to {percent(high, sign=True)}) "
        f'since {alert.commit.sha[:9]} "{alert.commit.subject}"{_triaged(alert)}'
    )


def _triaged(alert: AlertRow) -> str:
    told = ": ".join(filter(None, (alert.assignee, " ".join(alert.note.split()))))
    return f" ({told})" if told else ""


def _digits(value: float) -> str:
    """Four significant digits, thousands set apart."""
    whole = len(str(int(value)))
    return f"{value:,.{max(0, 4 - whole)}f}"


def _shortened(text: str, width: int) -> str:
    """The middle goes: names differ at their ends."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_long_words=True))


def fields(result: Result) -> dict[str, Any]:
    """A row of `perfci results --json`."""
    body = plain(result)
    assert isinstance(body, dict)
    return {field.name: body[field.name] for field in dataclasses.fields(Result)}
