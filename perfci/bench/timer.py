"""The time of a step on its device, sampled by perfci.bench.rules.

One loop serves both devices; they differ in their clock. On CUDA a mark is an event on the current stream, so the
host never waits inside a batch; on a CPU it is a reading of the performance counter.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from time import perf_counter_ns  # bound here, before a subject is imported that may replace time.perf_counter_ns
from typing import Any, Protocol

from perfci.bench import rules as sampling
from perfci.bench.faults import ClockError
from perfci.bench.rules import SamplingRules
from perfci.model import Clock, Timing

# Work on another stream, or a replaced event: the host then waits for much longer than the events admit. A fifth and
# 2 ms are far more than a synchronisation costs (50 us), and every round has to show it.
_OUTLASTING_RATIO = 1.2
_OUTLASTING_SECONDS = 2e-3

_ROUND_SECONDS = 0.25  # of steps between two looks at the wall clock
_WARMUP_ROUND_SECONDS = 0.02


class DeviceClock(Protocol):
    """`resolution` in seconds: the smallest difference that it can show."""

    kind: Clock
    resolution: float

    def mark(self) -> Any:
        """A moment in the device's order of work; does not wait for it."""

    def wait(self) -> None:
        """Until all work of the device is done, on whatever stream."""

    def between(self, start: Any, end: Any) -> float:
        """Seconds; only after `wait`."""


class HostClock:
    kind = Clock.PERF_COUNTER
    resolution = time.get_clock_info("perf_counter").resolution

    def mark(self) -> int:
        return perf_counter_ns()

    def wait(self) -> None:
        pass

    def between(self, start: int, end: int) -> float:
        return (end - start) * 1e-9


class CudaClock:
    kind = Clock.CUDA_EVENT
    resolution = 5e-7  # CUDA's manual states "around 0.5 microseconds" for cudaEventElapsedTime

    def __init__(self) -> None:
        import torch  # noqa: PLC0415  the subject's torch; perfci loads without it

        self._event: Callable[..., Any] = torch.cuda.Event
        self._synchronize: Callable[[], None] = torch.cuda.synchronize

    def mark(self) -> Any:
        event = self._event(enable_timing=True)
        event.record()
        return event

    def wait(self) -> None:
        self._synchronize()

    def between(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end)) * 1e-3


@dataclass(frozen=True, slots=True)
class Timed:
    """cache: `flushed` before each step, `exceeded` by the working set, `resident`, or `unknown`.

    steady: warming up ended because the step was steady, not because time was up.
    outlasted: in every round the host waited much longer than the clock admits.
    """

    timing: Timing
    cache: str
    steady: bool
    outlasted: bool


@dataclass(frozen=True, slots=True)
class _Round:
    """Seconds: one mean a batch; from first to last mark; and by the host's clock, the wait included."""

    samples: tuple[float, ...]
    span: float
    wall: float


def clock_of(device: str) -> DeviceClock:
    return CudaClock() if device == "cuda" else HostClock()


def rules_of(device: str) -> SamplingRules:
    return sampling.CUDA if device == "cuda" else sampling.CPU


def cache_policy(working_set_bytes: int, cache_bytes: int, rules: SamplingRules) -> str:
    """A working set of twice the cache leaves nothing useful in it from one step to the next."""
    if working_set_bytes <= 0 or cache_bytes <= 0:
        return "unknown"
    if working_set_bytes < rules.flush_below * cache_bytes:
        return "flushed"
    return "exceeded" if working_set_bytes >= 2 * cache_bytes else "resident"


def time_step(
    step: Callable[[], None],
    device: str,
    *,
    cache: str = "unknown",
    flush: Callable[[], None] | None = None,
    before_round: Callable[[], None] = lambda: None,
    clock: DeviceClock | None = None,
    rules: SamplingRules | None = None,
) -> Timed:
    """Warm up until steady, then sample.

    device: "cuda" or "cpu". flush: empties the device's caches; called before each step if `cache` is "flushed",
    outside of what is timed. before_round: called outside of what is timed (to poison outputs again).
    Raises ClockError, and whatever the step raises.
    """
    clock = clock or clock_of(device)
    rules = rules or rules_of(device)
    flusher = flush if cache == "flushed" else None

    def play(steps: int, batches: int) -> _Round:
        return _play(step, clock, steps=steps, batches=batches, flush=flusher)

    with _no_collection():
        steps, a_step, steady = _warm_up(play, rules, flushed=flusher is not None)
        rounds = _sample(play, rules, steps=steps, a_step=a_step, before_round=before_round)
    samples = tuple(sample for each in rounds for sample in each.samples)
    # A mean of single timings keeps the rounding of each; a batch's rounding is shared by its steps.
    resolution = clock.resolution if flusher else clock.resolution / steps
    return Timed(
        timing=Timing(samples=samples, clock=clock.kind, iterations=steps, resolution=resolution),
        cache=cache,
        steady=steady,
        outlasted=all(each.wall > _OUTLASTING_RATIO * each.span + _OUTLASTING_SECONDS for each in rounds),
    )


def check_host_clock() -> None:
    """Raises ClockError when a subject replaced the counter that it cannot reach here: it meant to."""
    if time.perf_counter_ns is not perf_counter_ns:
        raise ClockError("time.perf_counter_ns was replaced while the step ran")


def steps_of_batch(a_step: float, rules: SamplingRules, *, flushed: bool) -> int:
    """`a_step` in seconds. Steps between flushes are timed one by one: there a batch only averages them.

    Rounded up to 1, 2 or 5 times a power of ten, so that two processes seldom differ.
    """
    least = rules.short_batch_steps if a_step < rules.short_step else 1
    wanted = least if flushed else max(least, math.ceil(rules.batch / a_step))
    power: int = 10 ** (len(str(wanted)) - 1)
    return min(n * power for n in (1, 2, 5, 10) if n * power >= wanted)


def _play(
    step: Callable[[], None], clock: DeviceClock, *, steps: int, batches: int, flush: Callable[[], None] | None
) -> _Round:
    started = perf_counter_ns()
    marks = [clock.mark()]
    single: list[tuple[Any, Any]] = []
    for _ in range(batches):
        if flush is None:
            for _ in range(steps):
                step()
        else:
            single += [_flushed(step, clock, flush) for _ in range(steps)]
        marks.append(clock.mark())
    clock.wait()
    wall = (perf_counter_ns() - started) * 1e-9
    if flush is None:
        samples = [clock.between(start, end) / steps for start, end in pairwise(marks)]
    else:
        times = [clock.between(start, end) for start, end in single]
        samples = [math.fsum(times[at : at + steps]) / steps for at in range(0, len(times), steps)]
    if min(samples) <= 0:
        raise ClockError(f"{steps} steps took {min(samples) * steps} s by the {clock.kind} clock")
    return _Round(samples=tuple(samples), span=clock.between(marks[0], marks[-1]), wall=wall)


def _flushed(step: Callable[[], None], clock: DeviceClock, flush: Callable[[], None]) -> tuple[Any, Any]:
    flush()
    start = clock.mark()
    step()
    return start, clock.mark()


def _warm_up(play: Callable[[int, int], _Round], rules: SamplingRules, *, flushed: bool) -> tuple[int, float, bool]:
    """Steps in a batch, seconds of a step, and whether it was steady in the end."""
    started = perf_counter_ns()
    last = [median(play(1, 1).samples)]
    while True:
        a_step = min(last[-3:])  # an interruption makes a step look long, nothing makes it look short
        steps = steps_of_batch(a_step, rules, flushed=flushed)
        batches = max(1, min(rules.most_samples, round(_WARMUP_ROUND_SECONDS / (steps * a_step))))
        spent = (perf_counter_ns() - started) * 1e-9
        steady = len(last) > 3 and max(last[-3:]) <= (1 + rules.steady) * min(last[-3:])
        if spent >= rules.warmup_limit or (steady and spent >= rules.warmup):
            return steps, a_step, steady
        last.append(median(play(steps, batches).samples))


def _sample(
    play: Callable[[int, int], _Round],
    rules: SamplingRules,
    *,
    steps: int,
    a_step: float,
    before_round: Callable[[], None],
) -> list[_Round]:
    batch = steps * a_step
    wanted = max(rules.least_samples, min(rules.most_samples, math.ceil(rules.measured / batch)))
    a_round = max(1, min(wanted, round(_ROUND_SECONDS / batch)))
    rounds: list[_Round] = []
    taken, spent = 0, 0.0
    while taken < wanted and (taken < 3 or spent < rules.longest):
        before_round()
        rounds.append(play(steps, min(a_round, wanted - taken)))
        taken += len(rounds[-1].samples)
        spent += rounds[-1].wall
    return rounds


@contextmanager
def _no_collection() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
