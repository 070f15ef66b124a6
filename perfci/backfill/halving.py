"""Which commit of a range is measured next. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from perfci.matrix import names
from perfci.model import Commit


@dataclass(frozen=True, slots=True)
class Stop:
    """One commit of the range. tried: measured, or asked for in vain. here: in this backfill's own session.

    levels: by the name of a series, the medians of its processes in each environment, the newest one last; empty where
    nothing was timed.
    """

    commit: Commit
    tried: bool = False
    here: bool = False
    levels: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)


def wanted(stops: Sequence[Stop], *, relevance: float) -> tuple[int, ...]:
    """Places in the range that are to be measured next; none when it is settled.

    Ends of which nothing can be timed give way to their neighbours. A stretch between two timed commits is halved where
    they differ. Where they were never timed in one environment they are measured again first, in this session: a driver
    that was updated between two nights is no commit's doing.
    """
    order = range(len(stops))
    ends = {
        end for way in (order, reversed(order)) if (end := next((i for i in way if _open(stops[i])), None)) is not None
    }
    if new := {end for end in ends if not stops[end].tried}:
        return tuple(sorted(new))
    timed = [i for i in order if stops[i].levels]
    found: set[int] = set()
    for low, high in pairwise(timed):
        between = [i for i in range(low + 1, high) if not stops[i].tried]
        if not between:
            continue
        apart = steps_between(stops[low], stops[high], relevance=relevance)
        if apart is None and (again := {i for i in (low, high) if not stops[i].here}):
            found |= again
        elif apart is None or apart:
            found.add(min(between, key=lambda i: abs(2 * i - low - high)))
    return tuple(sorted(found))


def summary(stops: Sequence[Stop], *, relevance: float) -> list[str]:
    """Where a settled range changed its level, and that it is settled."""
    lines: list[str] = []
    for low, high in pairwise(stop for stop in stops if stop.levels):
        if apart := steps_between(low, high, relevance=relevance):
            name = max(apart, key=lambda each: abs(math.log(apart[each])))
            more = f", and {len(apart) - 1} more" if len(apart) > 1 else ""
            since = names([low.commit])
            lines.append(f"changed from {since} to {names([high.commit])}: {name} x {apart[name]:.3f}{more}")
    return [*lines, "settled: every change in this range lies between two neighbours"]


def _open(stop: Stop) -> bool:
    """Timed, or not tried yet."""
    return bool(stop.levels) or not stop.tried


def steps_between(low: Stop, high: Stop, *, relevance: float) -> Mapping[str, float] | None:
    """Of each series that has another level at one than at the other, the ratio; None where none was timed in one
    environment.

    Processes that overlap do not tell two levels apart, however far their medians lie from each other.
    """
    shared = sorted(low.levels.keys() & high.levels.keys())
    eras = {name: [era for era in high.levels[name] if era in low.levels[name]] for name in shared}
    if shared and not any(eras.values()):
        return None
    found: dict[str, float] = {}
    for name in filter(eras.__getitem__, shared):
        before, after = low.levels[name][eras[name][-1]], high.levels[name][eras[name][-1]]
        ratio = median(after) / median(before)
        if abs(math.log(ratio)) >= math.log1p(relevance) and (max(before) < min(after) or max(after) < min(before)):
            found[name] = ratio
    return found
