"""From a series' points to the changes that a person should know about. Pure; rows in, rows out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from perfci.config import Policy
from perfci.model import ChangeKind, ChangePoint, Commit, Direction, change_kind
from perfci.stats import changepoint
from perfci.stats.changepoint import Level, Observation
from perfci.store.rows import AlertRow, Point

# Of the processes before a commit, the share at each end that is no measure of their spread: one bad night is none.
_TRIMMED = 0.05
# How far a boundary may move as points are added and still be the same event.
SAME_EVENT_COMMITS = 5


@dataclass(frozen=True, slots=True)
class Change:
    """A series changed level at `commit`; `before` is the last commit measured on the old level.

    Commits between the two were not measured: the change lies in (before, commit]. step: the new level over the old
    one. relevant: big enough to act on, alone or together with smaller steps since the last relevant one. ratio, low,
    high: as in ChangePoint, of all these steps together where only their sum is relevant. recovered: later changes
    took it back.
    """

    commit: Commit
    before: Commit
    kind: ChangeKind
    step: float
    ratio: float
    low: float
    high: float
    relevant: bool
    recovered: bool


class Verdict(StrEnum):
    """How much one commit's difference from its past says; the values are the words that people read.

    TOO_FEW: `find` would not speak yet. WITHIN_SPREAD: the level lies among the processes of the past, or the past's
    median among the commit's own. BEYOND_SPREAD: neither; only `find`, with a second commit, makes a change of it.
    """

    TOO_FEW = "too few to judge"
    WITHIN_SPREAD = "within spread"
    BEYOND_SPREAD = "beyond spread"

    def beside(self, change: str) -> str:
        """The change with the words that keep it from being read as more than it is."""
        return change if self is Verdict.BEYOND_SPREAD else f"{change}, {self}"


@dataclass(frozen=True, slots=True)
class Standing:
    """A commit against the history before it, in the same environment and harness.

    ratio: its level over the median of the `commits` before it that lie on the last level. None with no history.
    """

    ratio: float | None
    commits: int
    verdict: Verdict


def observations(points: Sequence[Point]) -> tuple[Observation, ...]:
    """Points that were timed, on the tracked branch."""
    return tuple(
        Observation(
            position=p.commit.position,
            era=_era(p),
            value=p.median,
            error=changepoint.standard_error(p.mad or 0.0, p.n),
            resolution=p.resolution,
        )
        for p in points
        if p.median is not None and p.commit.position is not None
    )


def find(points: Sequence[Point], *, direction: Direction, policy: Policy) -> tuple[Change, ...]:
    """All changes of a series in the order of its commits, relevant or not; `points` as `reads.history` gives them."""
    history = changepoint.levels(observations(points))
    commits = {p.commit.position: p.commit for p in points}
    found = changepoint.find(history, minimum_history=policy.minimum_history)
    changes: list[Change] = []
    for era in dict.fromkeys(history[change.index].era for change in found):
        of_era = [change for change in found if history[change.index].era == era]
        for change, total, relevant, recovered in _weighed(of_era, policy):
            before = next(level for level in reversed(history[: change.index]) if level.era == era)
            share = total / change.ratio
            changes.append(
                Change(
                    commit=commits[history[change.index].position],
                    before=commits[before.position],
                    kind=change_kind(total, direction),
                    step=change.ratio,
                    ratio=total,
                    low=change.low * share,
                    high=change.high * share,
                    relevant=relevant,
                    recovered=recovered,
                )
            )
    return tuple(sorted(changes, key=lambda change: change.commit.position or 0))


def standing(points: Sequence[Point], commit: Commit, *, policy: Policy) -> Standing:
    """How a commit's newest measurement stands against its past; `points` as `reads.history` gives them."""
    own = [p for p in points if p.commit.sha == commit.sha and p.median is not None]
    if not own:
        return Standing(None, 0, Verdict.TOO_FEW)
    era = _era(max(own, key=lambda p: (p.started_at, p.index)))
    alike = [o for o in observations(points) if o.era == era]
    history = changepoint.levels(alike)
    past = [lv for lv in history if commit.position is not None and lv.position < commit.position]
    level = next((lv for lv in history if lv.position == commit.position), None)
    if level is None or not past:
        return Standing(None, len(past), Verdict.TOO_FEW)
    stretch = _last_level(past, policy)
    verdict = Verdict.TOO_FEW
    if len(past) >= policy.minimum_history:
        places = {lv.position for lv in stretch}
        before = [o.value for o in alike if o.position in places]
        within = _within_spread(level, [o.value for o in alike if o.position == level.position], before)
        verdict = Verdict.WITHIN_SPREAD if within else Verdict.BEYOND_SPREAD
    return Standing(level.value / median(lv.value for lv in stretch), len(stretch), verdict)


def same_event(change: Change, known: Commit, *, positions: Sequence[int]) -> bool:
    """A boundary found earlier at `known` is this one, moved by what was measured since.

    positions: those of the series' measured commits, ascending.
    """
    if known.position is None or change.commit.position is None:
        return known.sha == change.commit.sha
    low, high = sorted((known.position, change.commit.position))
    return sum(low < position <= high for position in positions) <= SAME_EVENT_COMMITS


def stands(alert: AlertRow, *, recovered_too: bool = False) -> bool:
    """Detection still sees the change; recovered_too: also where later commits have taken it back."""
    seen = bool(alert.evidence.get("found", True))
    return seen and (recovered_too or not alert.evidence.get("recovered", False))


def _era(point: Point) -> str:
    return f"{point.environment} {point.harness}"


def _within_spread(level: Level, own: Sequence[float], before: Sequence[float]) -> bool:
    """own, before: processes' medians at the commit and on the last level before it."""
    usual = median(before)
    ordered = sorted(before)
    trimmed = int(_TRIMMED * len(ordered))
    return (
        abs(math.log(level.value / usual)) <= level.floor
        or min(own) <= usual <= max(own)
        or ordered[trimmed] <= level.value <= ordered[-1 - trimmed]
    )


def _last_level(past: Sequence[Level], policy: Policy) -> Sequence[Level]:
    found = changepoint.find(past, minimum_history=policy.minimum_history)
    return past[max(found[-1].index if found else 0, len(past) - changepoint.WINDOW) :]


def _weighed(found: Sequence[ChangePoint], policy: Policy) -> list[tuple[ChangePoint, float, bool, bool]]:
    """(change, its ratio with the small ones before it, relevant, recovered) of one era."""
    least = math.log1p(policy.relevance)
    weighed = []
    total = 0.0
    for place, change in enumerate(found):
        step = math.log(change.ratio)
        total += step
        shown = total if abs(total) >= least else step
        relevant = abs(shown) >= least
        recovered = relevant and _taken_back(shown, found[place + 1 :], least)
        weighed.append((change, math.exp(shown), relevant, recovered))
        total = 0.0 if relevant else total
    return weighed


def _taken_back(step: float, later: Sequence[ChangePoint], least: float) -> bool:
    """The newest level lies within relevance of the one before the step, or beyond it on the other side."""
    after = step + sum(math.log(change.ratio) for change in later)
    return bool(later) and (abs(after) < least or (after > 0) != (step > 0))
