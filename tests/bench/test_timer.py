"""The sampling loop against a clock that counts: what a step costs is known exactly, no test depends on a real one."""

from __future__ import annotations

import dataclasses
import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perfci.bench import rules, timer
from perfci.bench.faults import ClockError
from perfci.model import Clock


class Device:
    """A device whose time passes only when something is launched on it; marks are ordered among the launches."""

    kind = Clock.CUDA_EVENT
    resolution = 5e-7

    def __init__(self, *costs: float, waits: bool = True) -> None:
        """costs: seconds of the first, second, … launch; the last holds for all that follow."""
        self.now = 0.0
        self.launches = 0
        self.waits = 0
        self.log: list[str] = []
        self._costs = costs

    def launch(self) -> None:
        self.now += self._costs[min(self.launches, len(self._costs) - 1)]
        self.launches += 1
        self.log.append("step")

    def flush(self) -> None:
        self.now += 1.0  # far more than any step: it would show
        self.log.append("flush")

    def mark(self) -> float:
        self.log.append("mark")
        return self.now

    def wait(self) -> None:
        self.waits += 1
        self.log.append("wait")

    def between(self, start: float, end: float) -> float:
        return end - start


QUICK = dataclasses.replace(rules.CUDA, warmup=0.0, warmup_limit=0.05)


def timed(device: Device, **options: object) -> timer.Timed:
    given_rules = options.pop("rules", QUICK)
    return timer.time_step(device.launch, "cuda", clock=device, rules=given_rules, **options)  # type: ignore[arg-type]


@pytest.fixture(params=[5e-6, 1e-4, 9e-4, 2e-3, 0.05, 3.0])
def cost(request: pytest.FixtureRequest) -> float:
    found: float = request.param
    return found


def test_every_sample_is_the_mean_of_a_batch_that_is_long_enough(cost: float) -> None:
    device = Device(cost)
    found = timed(device).timing
    assert found.samples == pytest.approx([cost] * len(found.samples))
    assert found.iterations * cost >= QUICK.batch * (1 - 1e-9)
    assert found.iterations >= (10 if cost < 1e-3 else 1)
    assert found.clock is Clock.CUDA_EVENT
    assert found.resolution == pytest.approx(5e-7 / found.iterations)


def test_the_time_that_is_sampled_is_bounded_from_both_sides(cost: float) -> None:
    found = timed(Device(cost)).timing
    sampled = len(found.samples) * found.iterations * cost
    assert len(found.samples) >= 10
    assert sampled >= QUICK.measured * (1 - 1e-9)
    assert len(found.samples) == 10 or sampled < 2 * QUICK.measured


def test_nothing_waits_for_the_device_inside_a_batch(cost: float) -> None:
    device = Device(cost)
    timed(device)
    between = 0
    for word in device.log:
        if word == "wait":
            assert between == 0, "a wait between the steps of a batch"
        between = 0 if word == "mark" else between + (word == "step")


def test_a_first_step_that_compiles_does_not_decide_how_large_a_batch_is() -> None:
    device = Device(20.0, 0.5, 1e-3, 1e-4)
    found = timed(device, rules=dataclasses.replace(QUICK, warmup_limit=5.0))
    assert found.timing.iterations == 100
    assert found.steady
    assert found.timing.samples == pytest.approx([1e-4] * len(found.timing.samples))


def test_warming_up_goes_on_until_three_rounds_agree_and_is_no_sample() -> None:
    falling = [1e-3 * (1 + 0.5 / n) for n in range(1, 3000)]
    device = Device(*falling, 1e-3)
    found = timed(device, rules=dataclasses.replace(QUICK, warmup_limit=5.0))
    assert found.steady
    assert found.timing.samples[0] < 1e-3 * 1.01


def test_a_step_that_is_never_steady_is_sampled_and_says_so() -> None:
    class Slowing(Device):
        def launch(self) -> None:
            super().launch()
            self._costs = (self._costs[0] * 1.01,)

    found = timed(device := Slowing(1e-3))
    assert device.waits > 3
    assert not found.steady
    assert len(found.timing.samples) >= 10


def test_a_cache_is_flushed_before_each_step_and_is_not_timed() -> None:
    device = Device(5e-6)
    found = timed(device, cache="flushed", flush=device.flush)
    assert found.cache == "flushed"
    assert found.timing.samples == pytest.approx([5e-6] * len(found.timing.samples), rel=1e-4)
    assert found.timing.resolution == 5e-7  # each of its steps was rounded
    steps = [i for i, word in enumerate(device.log) if word == "step"]
    assert all(device.log[i - 2 : i + 2] == ["flush", "mark", "step", "mark"] for i in steps)


def test_a_flush_that_is_not_called_for_is_not_made() -> None:
    device = Device(1e-3)
    assert timed(device, cache="exceeded", flush=device.flush).cache == "exceeded"
    assert "flush" not in device.log


def test_outputs_are_poisoned_before_each_sampled_round_and_never_inside_one() -> None:
    device = Device(1e-3)
    timed(device, before_round=lambda: device.log.append("poison"))
    places = [i for i, word in enumerate(device.log) if word == "poison"]
    assert places
    assert all(device.log[i - 1] == "wait" and device.log[i + 1] == "mark" for i in places)


def test_work_that_outlasts_the_events_of_every_round_is_told() -> None:
    class Elsewhere(Device):
        def wait(self) -> None:
            super().wait()
            time.sleep(0.01)  # on a stream that no event stands on

    elsewhere = Elsewhere(1e-5)
    assert timed(elsewhere, rules=dataclasses.replace(QUICK, measured=0.003, batch=1e-4)).outlasted
    # A clock that tells the truth, as the host's does, is never outlasted.
    honest = timer.time_step(lambda: sum(range(1000)), "cpu", rules=dataclasses.replace(rules.CPU, measured=0.02))
    assert not honest.outlasted


@pytest.mark.parametrize("cost", [0.0, -1.0])
def test_a_clock_that_stands_still_or_runs_backwards_is_an_error(cost: float) -> None:
    with pytest.raises(ClockError, match="cuda_event clock"):
        timed(Device(cost))


def test_a_replaced_counter_changes_no_sample_and_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)
    quick = dataclasses.replace(rules.CPU, measured=0.02, warmup=0.0, warmup_limit=0.01)
    found = timer.time_step(lambda: sum(range(1000)), "cpu", rules=quick)
    assert min(found.timing.samples) > 0
    with pytest.raises(ClockError, match="perf_counter_ns was replaced"):
        timer.check_host_clock()


def test_garbage_is_collected_before_the_timing_and_not_during_it() -> None:
    seen: list[bool] = []
    quick = dataclasses.replace(rules.CPU, measured=0.01, warmup=0.0, warmup_limit=0.01)
    timer.time_step(lambda: seen.append(gc.isenabled()), "cpu", rules=quick)
    assert not any(seen)
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        timer.time_step(lambda: 1 // 0, "cpu", rules=quick)  # type: ignore[arg-type,return-value]
    assert gc.isenabled()


@settings(deadline=None)
@given(st.floats(1e-8, 100.0), st.booleans())
def test_the_size_of_a_batch_is_a_round_number(a_step: float, flushed: bool) -> None:
    for device in (rules.CUDA, rules.CPU):
        steps = timer.steps_of_batch(a_step, device, flushed=flushed)
        assert str(steps).rstrip("0") in {"1", "2", "5"}
        if not flushed:
            assert device.batch <= steps * a_step * (1 + 1e-9) or steps == 1
            assert steps == 1 or steps * a_step <= 2.5 * max(device.batch, 10 * a_step) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("working_set", "cuda", "cpu"),
    [
        (0, "unknown", "unknown"),
        (1 << 20, "flushed", "resident"),
        (119 << 20, "flushed", "resident"),
        (120 << 20, "exceeded", "exceeded"),
        (2 << 30, "exceeded", "exceeded"),
    ],
)
def test_what_is_done_about_a_cache_of_60_mib(working_set: int, cuda: str, cpu: str) -> None:
    assert timer.cache_policy(working_set, 60 << 20, rules.CUDA) == cuda
    assert timer.cache_policy(working_set, 60 << 20, rules.CPU) == cpu
    assert timer.cache_policy(working_set, 0, rules.CUDA) == "unknown"


def test_the_sampling_rules_are_part_of_the_harness(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    before = rules.harness()
    assert before.startswith(f"perfci/{rules.__version__} ")
    assert before == rules.harness()
    monkeypatch.setattr(rules, "CPU", dataclasses.replace(rules.CPU, short_batch_steps=1))
    assert rules.harness() != before


def test_the_host_clock_keeps_time_with_the_system() -> None:
    clock = timer.clock_of("cpu")
    start = clock.mark()
    began = time.monotonic()
    time.sleep(0.02)
    ended = time.monotonic()
    assert clock.between(start, clock.mark()) >= ended - began
    assert clock.kind is Clock.PERF_COUNTER
    assert 0 < clock.resolution <= 1e-6


class Event:
    """torch.cuda.Event's face, for a machine without one: milliseconds, as float32."""

    now_ms = 0.0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self.at: float | None = None

    def record(self) -> None:
        self.at = Event.now_ms

    def elapsed_time(self, end: Event) -> float:
        assert self.at is not None
        assert end.at is not None
        return float(torch.tensor(end.at - self.at, dtype=torch.float32))


@pytest.fixture
def cuda_events(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    waits: list[int] = []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))
    yield lambda: len(waits)


def test_cuda_events_are_read_in_milliseconds_after_one_wait_a_round(cuda_events: Callable[[], int]) -> None:
    def step() -> None:
        Event.now_ms += 0.75

    found = timer.time_step(step, "cuda", rules=QUICK)
    assert found.timing.clock is Clock.CUDA_EVENT
    assert found.timing.samples == pytest.approx([0.75e-3] * len(found.timing.samples), rel=1e-4)
    assert 0 < cuda_events() < len(found.timing.samples) + 20
