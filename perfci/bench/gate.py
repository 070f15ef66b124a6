"""Correct first: no case gets a time whose outputs, the timed ones included, were not checked.

In this order: fresh inputs; outputs and scratch poisoned; a launch; its outputs against a reference that is computed
afterwards and elsewhere; launches again on the same inputs, as many as the case asks for, bit for bit where that is
promised; inputs and constants unchanged; other fresh inputs, poison again, the timing; the timed outputs against their
own reference; and no result beyond the ceiling. What goes wrong is raised (IncorrectOutput, CaseError, ClockError, or
what the subject raised) and becomes a status in perfci.bench.plugin.

What it cannot see: a step that remembers the result of each input and whose workload states no traffic; a thread that
wins every race against the check. Work on another stream shows in `Timed.outlasted`.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from perfci.bench import buffers, controls, timer
from perfci.bench.case import Case, Step, Tensors
from perfci.bench.faults import CaseError, IncorrectOutput
from perfci.bench.verdict import Reference, Repeats, verify, worse
from perfci.model import Control, Measurement, Status, Workload
from perfci.stats.ceiling import floor_latency
from perfci.stats.summary import summarize

# How far beyond the ceiling is impossible. Controls are the best of several tries, and are measured again before anyone
# is refused. What is left on CUDA: a plain reading kernel reaches 4.43 to 4.51 TB/s where the best stream reaches 4.57.
# On a CPU other processes take bandwidth from the control as they like: a third of it was seen, for minutes.
CEILING_MARGIN = {"cuda": 0.10, "cpu": 1.0}
CEILING_TRIES = 3


Window = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Checked:
    """A step whose outputs were right before it was timed. error: None where there is no reference."""

    case: Case
    step: Step
    seed: int
    device: str
    error: float | None


class Rates:
    """The controls of one process: measured when first asked for, and again when a result beats them.

    measure: device -> controls. Best of all tries, since a control can only be disturbed downwards.
    """

    def __init__(self, measure: Callable[[str], tuple[Control, ...]] = controls.measure) -> None:
        self._measure = measure
        self._known: dict[str, tuple[Control, ...]] = {}

    def of(self, device: str) -> tuple[Control, ...]:
        if device not in self._known:
            self._known[device] = self._measure(device)
        return self._known[device]

    def again(self, device: str) -> tuple[Control, ...]:
        self._known[device] = controls.best_of(self.of(device), self._measure(device))
        return self._known[device]

    @property
    def measured(self) -> Mapping[str, tuple[Control, ...]]:
        return dict(self._known)


def seed_of(session_seed: int, workload: str, phase: str) -> int:
    """31 bits. All implementations of a workload get the same contents, so that they can be compared."""
    digest = hashlib.sha256(f"{session_seed}\0{workload}\0{phase}".encode()).digest()
    return int.from_bytes(digest[:4], "big") & 0x7FFFFFFF


def check(case: Case, *, seed: int) -> Checked:
    """`seed` is the session's: another one gives other inputs."""
    if case.prepare is None or case.fresh_inputs is None:
        raise CaseError("the case gives no inputs or no step to prepare")
    _check_case(case)
    inputs = _different_inputs(case, seed)
    step = case.prepare(_draw(case, seed, "prepare"))
    device = _device(step)
    loaded = _load(step, inputs)
    repeats = Repeats(case, Reference(case, inputs, step))
    for number in range(case.repeats):
        # A first launch may start the threads of a library; one that is wrong already is told as that.
        repeats.take(_launch(step, device, watch=number > 0 and not repeats.wrong))
    error = repeats.verdict()
    loaded.check_unchanged()
    return Checked(case=case, step=step, seed=seed, device=device, error=error)


def measure(checked: Checked, *, rates: Rates, window: Window = nullcontext) -> Measurement:
    """Time a checked step on inputs that it has not seen; status `ok`. window: entered around the timing alone."""
    case, step = checked.case, checked.step
    inputs = _draw(case, checked.seed, "time")
    loaded = _load(step, inputs)
    cache, flush = _cache(case.workload, checked.device)
    with window():
        timed = timer.time_step(
            step, checked.device, cache=cache, flush=flush, before_round=lambda: _poison(step, step.outputs)
        )
        outputs = buffers.snapshot(step.outputs)
    timer.check_host_clock()
    reference = Reference(case, inputs, step)
    error = worse(checked.error, verify(case, outputs, reference.of(outputs), timed=True))
    loaded.check_unchanged()
    again = _launch(step, checked.device, watch=True)
    verify(case, again, reference.of(again))
    if case.bitwise and not buffers.same_bits(outputs, again):
        raise IncorrectOutput("other bits when timed than in a launch of its own, against its promise", error=error)
    if timed.outlasted:
        raise IncorrectOutput("its work goes on outside of the stream that is timed", error=error)
    _check_possible(case.workload, timed.timing.samples, checked.device, rates)
    return Measurement(
        workload=case.workload,
        implementation=case.implementation,
        status=Status.OK,
        verified=case.has_reference,
        timing=timed.timing,
        error=error,
        tolerance=_tolerance(case),
        extras={"seed": checked.seed, "cache": timed.cache, "steady": timed.steady},
    )


def not_timed(checked: Checked, *, reason: str) -> Measurement:
    return Measurement(
        workload=checked.case.workload,
        implementation=checked.case.implementation,
        status=Status.CHECKED,
        verified=checked.case.has_reference,
        error=checked.error,
        tolerance=_tolerance(checked.case),
        reason=reason,
        extras={"seed": checked.seed},
    )


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What a step was given: `pristine` never left the gate, `given` was handed to the step."""

    step: Step
    pristine: Tensors
    given: Tensors
    constants: tuple[tuple[int, int], ...]

    def check_unchanged(self) -> None:
        if not buffers.same_bits(self.pristine, self.given):
            raise IncorrectOutput("it changed the inputs that it was given")
        if buffers.fingerprint(self.step.constants) != self.constants:
            raise IncorrectOutput("it changed its constants (weights, earlier keys and values, guard bands)")


def _check_case(case: Case) -> None:
    if not 0 <= case.tolerance < 1:
        raise CaseError(f"tolerance {case.tolerance:g}: with 1 or more an output of zeros would pass")
    if case.reference is not None and case.guided_reference is not None:
        raise CaseError("the case gives reference and guided_reference; give one of them")
    if case.repeats < 1:
        raise CaseError(f"repeats = {case.repeats}: an output must be checked once at least")


def _draw(case: Case, seed: int, phase: str) -> Tensors:
    if case.fresh_inputs is None:
        raise CaseError("the case gives no inputs")
    return case.fresh_inputs(seed_of(seed, case.workload.name, phase))


def _different_inputs(case: Case, seed: int) -> Tensors:
    inputs = _draw(case, seed, "check")
    if buffers.same_bits(inputs, _draw(case, seed, "time")):
        raise CaseError("fresh_inputs ignores its seed: two seeds gave the same contents")
    return inputs


def _device(step: Step) -> str:
    kinds = {tensor.device.type for tensor in step.outputs.values()}
    if len(kinds) != 1:
        raise CaseError(f"outputs on {', '.join(sorted(kinds)) or 'no device'}; they must be on one")
    return str(kinds.pop())


def _load(step: Step, inputs: Tensors) -> _Loaded:
    given = buffers.snapshot(inputs)
    step.load(given)
    return _Loaded(step=step, pristine=inputs, given=given, constants=buffers.fingerprint(step.constants))


def _poison(step: Step, outputs: Mapping[str, Tensor]) -> None:
    buffers.poison(outputs.values())
    buffers.poison(step.scratch)


def _launch(step: Step, device: str, *, watch: bool) -> dict[str, Tensor]:
    """Poison, launch once, wait, copy the outputs. watch: no thread may be at work when the launch returns."""
    before = dict(step.outputs)
    _poison(step, before)
    threads = set(threading.enumerate())
    step()
    left = set(threading.enumerate()) - threads
    copied = buffers.snapshot(before)
    if device == "cuda":
        torch.cuda.synchronize()
    after = step.outputs
    if before.keys() != after.keys() or any(before[k].data_ptr() != after[k].data_ptr() for k in before):
        raise IncorrectOutput("its outputs are other buffers after a launch: they could not be poisoned")
    if watch and left:
        raise IncorrectOutput(f"its work goes on in a thread after it has returned ({min(t.name for t in left)})")
    return copied


def _tolerance(case: Case) -> float | None:
    return case.tolerance if case.has_reference else None


def _cache(workload: Workload, device: str) -> tuple[str, Callable[[], None] | None]:
    size = controls.cache_bytes(device)
    policy = timer.cache_policy(workload.working_set_bytes, size, timer.rules_of(device))
    return policy, controls.flush(device, size) if policy == "flushed" else None


def _check_possible(workload: Workload, samples: Sequence[float], device: str, rates: Rates) -> None:
    median = summarize(samples).median
    allowed = median * (1 + CEILING_MARGIN["cuda" if device == "cuda" else "cpu"])
    floor = floor_latency(workload, rates.of(device))
    for _ in range(CEILING_TRIES - 1):
        if floor is None or floor <= allowed:
            return
        floor = floor_latency(workload, rates.again(device))
    if floor is not None and floor > allowed:
        raise IncorrectOutput(
            f"faster than possible: {median:.4g} s, where its traffic and arithmetic take {floor:.4g} s at least here"
        )
