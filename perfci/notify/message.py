"""What a channel is told, before it has a channel's form. Pure.

Names and subjects come from repositories: here they become one printable line each; whoever writes them into a format
escapes them once more for that format.
"""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfci import report
from perfci.model import AbsenceReason, ChangeKind, Direction, RunStatus, Status
from perfci.store.notices import Trouble
from perfci.store.rows import AlertRow

# A message is read on a telephone; the rest is counted.
COMMITS = 10
LINES = 12
NAME = 120  # characters of a name or subject
REASON = 300


@dataclass(frozen=True, slots=True)
class Group:
    """One commit of one suite with its changes. left: changes that are not told by name."""

    suite: str
    commit: str
    subject: str
    lines: tuple[str, ...]
    left: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """title: one line without any text of a repository. alerts, troubles: what it is about, for programs."""

    title: str
    session: str
    groups: tuple[Group, ...] = ()
    left: int = 0  # commits that are not told by name
    trouble_lines: tuple[str, ...] = ()
    closing: str = ""
    alerts: tuple[AlertRow, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """For people who read letters."""
        blocks = [self.title]
        for group in self.groups:
            lines = [heading(group), *(f"  {line}" for line in group.lines)]
            blocks.append("\n".join(lines + ([f"  and {group.left} more"] if group.left else [])))
        if self.left:
            blocks.append(f"and {_counted(self.left, 'commit')} more")
        if self.trouble_lines:
            blocks.append("\n".join(("What this night lacks:", *(f"  {line}" for line in self.trouble_lines))))
        return "\n\n".join((*blocks, self.closing)) + "\n"


def of_night(
    session: str, alerts: Sequence[AlertRow], troubles: Sequence[Trouble], *, problems: Sequence[str] = ()
) -> Message:
    """alerts: new to the channel. troubles, problems: of this night; empty where the channel knows them."""
    by_commit: dict[tuple[str, str], list[AlertRow]] = {}
    for alert in sorted(alerts, key=_weight):
        by_commit.setdefault((alert.series.suite, alert.commit.sha), []).append(alert)
    groups = [_group(of_commit) for of_commit in list(by_commit.values())[:COMMITS]]
    lines = [*(f"perfci: {line(problem, REASON)}" for problem in problems), *map(_trouble, troubles)]
    shown = line(session, NAME)
    closing = f"All of the night: perfci report --session {shlex.quote(shown)}"
    if alerts:
        closing += "\nTo answer: perfci triage NUMBER --state confirmed|accepted|fixed|invalid"
    return Message(
        title=_title(alerts, troubles, problems),
        session=shown,
        groups=tuple(groups),
        left=max(0, len(by_commit) - COMMITS),
        trouble_lines=(*lines[:LINES], *([f"and {len(lines) - LINES} more"] if len(lines) > LINES else ())),
        closing=closing,
        alerts=tuple(alerts),
        troubles=tuple(troubles),
        problems=tuple(line(problem, REASON) for problem in problems),
    )


def of_test(channel: str) -> Message:
    return Message(
        title=f"perfci: the channel {channel} works", session="", closing="Nothing happened; this is a test."
    )


def heading(group: Group) -> str:
    return f'{group.suite} · {group.commit[:9]} "{group.subject}"'


def line(text: str, limit: int) -> str:
    """One line of what can be printed; the end of a long one goes."""
    shown = "".join(c if c.isprintable() else " " for c in unicodedata.normalize("NFC", text))
    shown = " ".join(shown.split())
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def _group(alerts: Sequence[AlertRow]) -> Group:
    first = alerts[0]
    return Group(
        suite=line(first.series.suite, NAME),
        commit=first.commit.sha,
        subject=line(first.commit.subject, NAME),
        lines=tuple(_alert(alert) for alert in alerts[:LINES]),
        left=max(0, len(alerts) - LINES),
    )


def _alert(alert: AlertRow) -> str:
    # The direction is in the kind: a regression of a latency is one that rose.
    lower = (alert.ratio > 1) == (alert.kind is ChangeKind.REGRESSION)
    direction = Direction.LOWER if lower else Direction.HIGHER
    low, high = sorted(report.gain(ratio, direction) for ratio in (alert.low, alert.high))
    key = alert.series
    metric = "" if key.metric == "latency" else f", {line(key.metric, NAME)}"
    return (
        f"{alert.kind.value.upper()} #{alert.id}: {line(key.workload, NAME)} / {line(key.implementation, NAME)}"
        f"{metric} on {line(key.hardware, NAME)}: {report.percent(report.gain(alert.ratio, direction), sign=True)}"
        f" ({report.percent(low, sign=True)} to {report.percent(high, sign=True)})"
    )


def _weight(alert: AlertRow) -> tuple[bool, float, int]:
    """Regressions first, the greatest first."""
    return alert.kind is not ChangeKind.REGRESSION, -abs(alert.ratio - 1), alert.id


_ABSENT: Mapping[object, str] = {
    AbsenceReason.NO_NODE: "not measured, no live node",
    AbsenceReason.BUDGET: "not measured, the night's budget was spent",
}


def _trouble(found: Trouble) -> str:
    place = f"{line(found.suite, NAME)} on {line(found.hardware, NAME)}"
    reason = line(found.text, REASON)
    if found.what in _ABSENT:
        return f"{place}: {_ABSENT[found.what]}" + (f": {reason}" if reason else "")
    commit = f'{found.commit[:9]} "{line(found.subject, NAME)}"'
    if isinstance(found.what, RunStatus):
        many = "" if found.what is RunStatus.BUILD_FAILED else f" in {_counted(found.count, 'process', 'processes')}"
        return f"{place}: {commit}: {found.what}{many}: {reason}"
    return f"{place}: {commit}: {_counted(found.count, 'benchmark')} {found.what}, the first is {reason}"


def _title(alerts: Sequence[AlertRow], troubles: Sequence[Trouble], problems: Sequence[str]) -> str:
    worse = sum(alert.kind is ChangeKind.REGRESSION for alert in alerts)
    absent = len({t.hardware for t in troubles if t.what is AbsenceReason.NO_NODE})
    builds = sum(t.what is RunStatus.BUILD_FAILED for t in troubles)
    wrong, without = _benchmarks(troubles, {Status.INCORRECT}), _benchmarks(troubles, {*Status} - {Status.INCORRECT})
    parts = (
        (worse, "regression", "regressions"),
        (len(alerts) - worse, "improvement", "improvements"),
        (wrong, "incorrect output", "incorrect outputs"),
        (absent, "hardware missing", "hardware missing"),
        (sum(t.what is AbsenceReason.BUDGET for t in troubles), "job cut", "jobs cut"),
        (builds, "build failed", "builds failed"),
        (_processes(troubles), "process broken", "processes broken"),
        (without, "benchmark without a result", "benchmarks without a result"),
        (len(problems), "step failed", "steps failed"),
    )
    return "perfci: " + ", ".join(_counted(count, one, many) for count, one, many in parts if count)


def _benchmarks(troubles: Sequence[Trouble], statuses: set[Status]) -> int:
    return sum(t.count for t in troubles if isinstance(t.what, Status) and t.what in statuses)


def _processes(troubles: Sequence[Trouble]) -> int:
    return sum(t.count for t in troubles if isinstance(t.what, RunStatus) and t.what is not RunStatus.BUILD_FAILED)


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"
