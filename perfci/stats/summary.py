"""Order statistics of the samples of one process. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from perfci.model import Summary


def summarize(samples: Sequence[float]) -> Summary:
    """Median, median absolute deviation, 10th and 90th percentile, all in the samples' unit.

    The deviation is raw: times 1.4826 it estimates the standard deviation of a normal distribution. Samples of
    one process depend on each other, so it says how steady a process was, never how sure its median is. One
    sample gives a deviation of 0, which means *unknown*: look at `n` before using it.
    Percentiles interpolate linearly between order statistics (type 7 of Hyndman and Fan 1996,
    doi 10.1080/00031305.1996.10473566).

    Raises ValueError for no samples and for one that is not finite.
    """
    if not samples:
        raise ValueError("no samples to summarize")
    ordered = sorted(samples)
    if not all(math.isfinite(value) for value in ordered):
        raise ValueError("samples must be finite")
    middle = median(ordered)
    return Summary(
        n=len(ordered),
        median=middle,
        mad=median(abs(value - middle) for value in ordered),
        p10=quantile(ordered, 0.1),
        p90=quantile(ordered, 0.9),
    )


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """`ordered` is ascending and not empty; 0 <= fraction <= 1."""
    place = fraction * (len(ordered) - 1)
    below = min(int(place), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    share = place - below
    # This form stays inside [below, above] and is exact when both are equal.
    return min(
        max(ordered[below] * (1 - share) + ordered[above] * share, ordered[below]),
        ordered[above],
    )
