"""Where the time of a step goes: every nanosecond from its first start to its last end belongs to exactly one part.

At each moment the *front* is the earliest stage that has a program at work (between `wait_end` and `done`): what
comes later may run beside it, but the step cannot end sooner than the front lets it. The moment belongs

    busy  to the front, until the median multiprocessor has finished its share of it
    tail  to the front, after that: the stragglers
    wait  where no program works but some are there: to the earliest stage that waits
    gap   where no program is there at all: to the stage that starts next

so the parts are disjoint, cover the step, and their sum is its duration to the nanosecond.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

from torch import Tensor

from kernels.timeline.stages import Key, Stage, union

Kind = Literal["busy", "tail", "wait", "gap"]
KINDS: tuple[Kind, ...] = ("busy", "tail", "wait", "gap")


def partition(stages: Sequence[Stage]) -> Mapping[tuple[Key, Kind], int]:
    """ns by stage and kind, in the order of `stages`; parts of no duration are left out.

    stages: in the step's order (kernels.timeline.stages.stages).
    """
    working = _Cover([union(stage.wait_end, stage.done) for stage in stages])
    waiting = _Cover([union(stage.begin, stage.wait_end) for stage in stages])
    middles = [stage.middle_end for stage in stages]
    ends = (moment for stage in stages for moment in (stage.first_start, stage.last_end))
    moments = sorted({*working.moments, *waiting.moments, *middles, *ends})
    parts: Counter[tuple[int, Kind]] = Counter()
    pending = 0  # a gap whose next stage is not known yet
    for start, end in pairwise(moments):
        worker, waiter = working.earliest(start), waiting.earliest(start)
        if worker is None and waiter is None:
            pending += end - start
            continue
        if pending:
            next_stage = min(stage for stage in (worker, waiter) if stage is not None)
            parts[next_stage, "gap"] += pending
            pending = 0
        if worker is not None:
            parts[worker, "tail" if start >= middles[worker] else "busy"] += end - start
        elif waiter is not None:
            parts[waiter, "wait"] += end - start
    if pending:  # programs of no duration come last
        parts[len(stages) - 1, "gap"] += pending
    found: dict[tuple[Key, Kind], int] = {}
    for index, stage in enumerate(stages):
        for kind in KINDS:
            if parts[index, kind]:
                found[stage.key, kind] = parts[index, kind]
    return found


class _Cover:
    """Which stages have an interval over a moment; asked with moments that only grow."""

    def __init__(self, intervals: Sequence[tuple[Tensor, Tensor]]) -> None:
        self._coming = sorted(
            (begin, end, index)
            for index, (begins, ends) in enumerate(intervals)
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
        )
        self.moments = [moment for begin, end, _ in self._coming for moment in (begin, end)]
        self._coming.reverse()
        self._open: list[tuple[int, int]] = []  # (index, end); an interval that is over leaves when it comes to the top

    def earliest(self, moment: int) -> int | None:
        while self._coming and self._coming[-1][0] <= moment:
            _, end, index = self._coming.pop()
            heapq.heappush(self._open, (index, end))
        while self._open and self._open[0][1] <= moment:
            heapq.heappop(self._open)
        return self._open[0][0] if self._open else None
