"""Where a history changed level. Simple and honest; standard library only.

Method, one era (equal environment and harness) at a time:

1. One value a commit: the median of its processes' medians, as a logarithm, so that effects are ratios. Order is
   the commits' position on the branch, never a date; a commit that was not measured is no data and is not filled in.
2. Noise: the spread of neighbours' differences (times 1.4826 / sqrt 2, the median absolute one), never less than a
   floor that is made of the clock's resolution, the noise within the processes, the spread between them, and
   MINIMUM_NOISE. So equal values give no threshold of zero.
3. An excursion of one or two points that returns is an outlier: it is pulled in, and starts no level.
4. Least-squares segmentation (`segmentation`) with penalty 3 log n times the noise variance, widened for
   correlation between neighbours.
5. The weakest cut is dropped until each one left holds in a two-sample t test of up to WINDOW points a side
   against the largest of three estimates of noise. The t value is turned into the normal deviate of equal tail
   (Wallace 1959, doi 10.1214/aoms/1177706095), and must reach LEAST_DEVIATE.

Measured on 2200 nights a kind of 1 % noise, every distinct report ever made counted, per 1000 nights and series: 0 for
normal, heavy-tailed (t, 3 degrees) and bimodal noise and for a drift of 2 standard deviations; about 1 for correlation
0.5 and for 3 % of spikes. Found in 80 % of trials, 2, 3, 5 and 10 nights after it: steps of 8, 5, 4, 3 deviations.
On 196 SAP HANA histories that five people a series have marked: 0.80 of the majority's marks found, 1.1 reports per
1000 points that nobody marked; 0.5 per 1000 on the series without a mark.

Assumptions: noise within an era is about alike over time, and symmetric as a logarithm. A slow drift is reported as
steps. The newest point alone never makes a change: a level needs two. Steps 3 to 5 follow the bottom-up pruning of
Hunter (Fleming and others 2023, arXiv 2301.03034) with another test.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import fmean, median

from perfci.model import ChangePoint
from perfci.stats.segmentation import SHORTEST, segment

# Processes of one idle H200 differ by 0.05 to 0.12 % (standard deviation); the median of a few by about half of it.
MINIMUM_NOISE = 5e-4
# Median absolute deviation -> standard deviation of a normal distribution.
NORMAL = 1.4826
# Standard error of a median over that of a mean, normal samples.
MEDIAN_EFFICIENCY = 1.2533
PENALTY = 3.0
WINDOW = 30
CLIP = 3.0  # standard deviations, for the means of the test
OUTLIER = 4.0  # standard deviations, for an excursion that returns
# A normal deviate of 5 has a tail of 6e-7: a series is asked again every night, mostly about its newest points.
LEAST_DEVIATE = 5.0
# The floor is knowledge from outside the two windows; it is counted as this many observations.
FLOOR_FREEDOM = 4


@dataclass(frozen=True, slots=True)
class Observation:
    """What one process found at one commit.

    era: fingerprint of environment and harness. value: its median, any unit; what is not finite and positive is
    no observation and is left out. error: standard error of that median by its own samples, 0 where unknown.
    resolution: of the clock. Both in the unit of value.
    """

    position: int
    era: str
    value: float
    error: float = 0.0
    resolution: float = 0.0


@dataclass(frozen=True, slots=True)
class Level:
    """All processes of one commit in one era. floor: least credible relative noise of `value`."""

    position: int
    era: str
    value: float
    floor: float
    processes: int


def standard_error(mad: float, n: int) -> float:
    """Of a process's median, by its own samples; 0 (unknown) for a single one.

    Neighbouring samples are correlated (0.4 to 0.66 on an H200); at 0.5 the variance of a mean is three-fold.
    """
    return NORMAL * MEDIAN_EFFICIENCY * mad * math.sqrt(3 / n) if n > 1 else 0.0


def levels(observations: Iterable[Observation]) -> tuple[Level, ...]:
    """One Level a commit and era, by position; the order of the observations does not matter."""
    usable = sorted(
        (o for o in observations if math.isfinite(o.value) and o.value > 0),
        key=lambda o: (o.position, o.era, o.value),
    )
    return tuple(_level(list(group)) for _, group in groupby(usable, key=lambda o: (o.position, o.era)))


def find(history: Sequence[Level], *, minimum_history: int) -> tuple[ChangePoint, ...]:
    """Every change of level, in both directions, by index into `history`, which `levels` made.

    An era with fewer than `minimum_history` commits is too young to say anything. A change of era is no change of
    level: what differs across it is blamed on no commit.
    """
    found = []
    for era in {level.era for level in history}:
        places = [place for place, level in enumerate(history) if level.era == era]
        if len(places) >= minimum_history:
            changes = _find_in_era([history[place] for place in places])
            found += [ChangePoint(places[c.index], c.ratio, c.low, c.high) for c in changes]
    return tuple(sorted(found, key=lambda change: change.index))


def _level(group: Sequence[Observation]) -> Level:
    middle = median(o.value for o in group)
    share = MEDIAN_EFFICIENCY / math.sqrt(len(group))
    between = NORMAL * median(abs(o.value - middle) for o in group) if len(group) > 2 else 0.0
    parts = (
        MINIMUM_NOISE * middle,
        max(o.resolution for o in group),
        share * median(o.error for o in group),
        share * between,
    )
    return Level(group[0].position, group[0].era, middle, max(parts) / middle, len(group))


@dataclass(frozen=True, slots=True)
class _Noise:
    """Of one era's logarithms. inflation: of a mean's variance by correlation between neighbours."""

    neighbours: float
    era: float
    inflation: float = 1.0


def _find_in_era(history: Sequence[Level]) -> list[ChangePoint]:
    values = [math.log(level.value) for level in history]
    neighbours = max(median(level.floor for level in history), _neighbour_noise(values))
    calm = _pull_in(values, neighbours)
    noise = _Noise(neighbours, neighbours)
    cuts: tuple[int, ...] = ()
    # The second pass knows the spread and the correlation that are left around the levels of the first.
    for _ in range(2):
        cuts = segment(calm, PENALTY * math.log(len(calm)) * noise.era**2 * noise.inflation)
        rest = _residuals(calm, cuts, limit=OUTLIER * neighbours)
        era = math.sqrt(sum(r * r for r in rest) / max(1, len(rest) - len(cuts) - 1))
        noise = _Noise(neighbours, max(neighbours, era), _inflation(rest, cuts))
    return _prune(calm, cuts, noise)


def _neighbour_noise(values: Sequence[float]) -> float:
    steps = [abs(after - before) for before, after in pairwise(values)]
    return NORMAL / math.sqrt(2) * median(steps) if steps else 0.0


def _pull_in(values: Sequence[float], noise: float, reach: int = 7) -> list[float]:
    """`values` with isolated excursions of one or two points pulled to the level that they leave and come back to.

    They come back at once, and stay: three points on another level are one.
    """
    calm = list(values)
    for start in range(1, len(calm) - SHORTEST):
        before = median(calm[max(0, start - reach) : start])
        for end in range(start + 1, min(start + SHORTEST, len(calm) - SHORTEST) + 1):
            jump = min(abs(value - before) for value in calm[start:end])
            around = (calm[start - 1], values[end], median(values[end : end + 3]))
            if jump > OUTLIER * noise and all(abs(value - before) < jump / 2 for value in around):
                calm[start:end] = [before + max(-noise, min(noise, v - before)) for v in calm[start:end]]
                break
    return calm


def _residuals(values: Sequence[float], cuts: Sequence[int], *, limit: float) -> list[float]:
    rest = []
    for start, end in pairwise((0, *cuts, len(values))):
        middle = median(values[start:end])
        rest += [max(-limit, min(limit, value - middle)) for value in values[start:end]]
    return rest


def _inflation(rest: Sequence[float], cuts: Sequence[int]) -> float:
    """Variance of a mean of correlated values over that of independent ones: (1 + phi) / (1 - phi), AR(1)."""
    power = fmean(r * r for r in rest)
    pairs = [a * b for i, (a, b) in enumerate(pairwise(rest)) if i + 1 not in set(cuts)]
    if len(pairs) < 20 or power == 0:  # of fewer pairs the correlation is anybody's guess
        return 1.0
    phi = min(max(fmean(pairs) / power, 0.0), 0.7)
    return (1 + phi) / (1 - phi)


def _prune(values: Sequence[float], cuts: Sequence[int], noise: _Noise) -> list[ChangePoint]:
    left = list(cuts)
    while left:
        edges = [0, *left, len(values)]
        tests = [
            _test(values[max(a, b - WINDOW) : b], values[b : min(c, b + WINDOW)], noise)
            for a, b, c in zip(edges, edges[1:], edges[2:], strict=False)
        ]
        weakest = min(range(len(tests)), key=lambda i: tests[i].deviate)
        if tests[weakest].deviate >= LEAST_DEVIATE:
            return [_change(cut, test) for cut, test in zip(left, tests, strict=True)]
        del left[weakest]
    return []


@dataclass(frozen=True, slots=True)
class _Test:
    step: float  # log ratio
    error: float  # its standard error
    freedom: int
    deviate: float


def _test(old: Sequence[float], new: Sequence[float], noise: _Noise) -> _Test:
    """Two-sample t on clipped values; its noise is the largest of local, neighbours' and half the whole era's."""
    sides = [_clipped(side, CLIP * noise.era) for side in (old, new)]
    means = [fmean(side) for side in sides]
    step = means[1] - means[0]
    freedom = len(old) + len(new) - 2
    squares = sum((value - mean) ** 2 for side, mean in zip(sides, means, strict=True) for value in side)
    local = max(noise.neighbours, noise.era / 2, math.sqrt(squares / freedom))
    error = local * math.sqrt(noise.inflation * (1 / len(old) + 1 / len(new)))
    freedom += FLOOR_FREEDOM
    shown = min(abs(step), _agreed(old, means[1]), _agreed(new, means[0]))
    return _Test(step, error, freedom, normal_deviate(shown / error, freedom))


def _agreed(side: Sequence[float], other: float) -> float:
    """The step that both points of a shortest level show: one bad night beside a good one is no level."""
    return min(abs(value - other) for value in side) if len(side) == SHORTEST else math.inf


def _clipped(side: Sequence[float], limit: float) -> list[float]:
    middle = median(side)
    return [max(middle - limit, min(middle + limit, value)) for value in side]


def _change(index: int, test: _Test) -> ChangePoint:
    margin = student_t(1.96, test.freedom) * test.error
    return ChangePoint(index, *(_ratio(log) for log in (test.step, test.step - margin, test.step + margin)))


def _ratio(log: float) -> float:
    return math.exp(max(-700.0, min(700.0, log)))  # the range of a double


def normal_deviate(t: float, freedom: int) -> float:
    """The normal deviate with the tail of Student's `t`, to 1.5 % from 4 degrees of freedom on (Wallace 1959)."""
    return (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(t * t / freedom))


def student_t(deviate: float, freedom: int) -> float:
    """The inverse of `normal_deviate`."""
    scaled = deviate * (8 * freedom + 3) / (8 * freedom + 1)
    return math.sqrt(freedom * math.expm1(scaled * scaled / freedom))
