"""What tile-level dependency triggers would make of a modular step: a projection, from traces of today's launches.

A trace calibrates the model of `simulation`: for each stage how many programs fit on a multiprocessor, and the fixed
latency that makes the modelled stage as long as the traced one. The calibrated model then predicts the step as a graph
and with programmatic dependent launch. Where the step was traced in that way too, the error is told: of the mode that
it was calibrated on it says whether the parts make the whole, of the other one whether the model knows more than it
was told. Only then comes what nobody can trace yet.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from kernels.timeline import spread
from kernels.timeline import stages as staging
from kernels.timeline.dependencies import producers
from kernels.timeline.occupancy import Footprint
from kernels.timeline.simulation import MODES, Launch, Machine, Mode, Outcome, Producers, simulate
from kernels.timeline.stages import Stage
from kernels.timeline.trace import Trace
from kernels.timeline.traffic import stage_bytes
from kernels.workloads import Decode

LATENCY = 700.0
"""ns from a program's start to its first bytes: in no trace; a part of each stage's fixed latency, or all of it."""
GAP = 700.0
"""ns between launches of a graph where none was traced: an empty kernel in a graph takes 0.69 us on an H200."""
RELEASE = 400.0
"""ns from the end of a launch to the release of a wait where none was traced: 0.41 us for an empty dependent kernel."""

_FITTED = 1.0  # ns
_ROUNDS = 12


@dataclass(frozen=True, slots=True)
class Prediction:
    """calibrated_on: the mode of the trace that the model knows. predicted, traced: ns of a step by mode.

    errors: predicted over traced, less 1. assumed: what no trace told. outcome: of tile triggers, for a picture.
    saved: ns that tile triggers would have saved by the stamps of the pdl trace alone (kernels.timeline.spread).
    """

    calibrated_on: Mode
    predicted: Mapping[Mode, float]
    traced: Mapping[Mode, float]
    errors: Mapping[Mode, float]
    assumed: tuple[str, ...]
    machine: Machine
    launches: tuple[Launch, ...]
    outcome: Outcome
    saved: int | None = None

    @property
    def gain(self) -> float:
        """Step with tile triggers over the step with programmatic dependent launch, both modelled, less 1."""
        return self.predicted["tiles"] / self.predicted["pdl"] - 1


def predictions(
    traces: Mapping[Mode, Trace],
    workload: Decode,
    *,
    bandwidth: float | None = None,
    multiprocessors: int | None = None,
    footprints: Mapping[str, Footprint] | None = None,
) -> tuple[Prediction, ...]:
    """One for each traced mode (`graph`, `pdl`) that the model is calibrated on.

    bandwidth: bytes a ns that many programs together can read; without it, what the stage with the most bytes reached.
    footprints: of each stage's programs (kernels.timeline.occupancy); without them as many fit on a multiprocessor as
    were seen there at once, which is too few for a launch that did not fill the device, and all bytes are early.
    ValueError for traces that are not of the same modular step of one sequence.
    """
    if not traces or not traces.keys() <= {"graph", "pdl"}:
        raise ValueError(f"traces of {', '.join(traces) or 'nothing'}; the model takes graph and pdl")
    steps = {mode: staging.stages(trace) for mode, trace in traces.items()}
    _check(steps, workload)
    processors = multiprocessors or max(map(staging.multiprocessors, traces.values()))
    machine, assumed = _machine(steps, workload, processors, bandwidth)
    traced = {
        mode: float(max(s.last_end for s in step) - min(s.first_start for s in step)) for mode, step in steps.items()
    }
    seen = residents(steps.values())
    known = footprints or {}
    prints = {
        name: replace(known[name], fits=max(count, known[name].fits)) if name in known else Footprint(count)
        for name, count in seen.items()
    }
    if not known:
        assumed = (*assumed, "no more programs fit on a multiprocessor than were seen at once; all bytes come early")
    releases = _releases(steps["pdl"]) if "pdl" in steps else {}
    tiles = {name: made.tiles for name, made in prints.items()}
    saved = spread.saved(steps["pdl"], workload, tiles=tiles) if "pdl" in steps else None
    found: list[Prediction] = []
    for mode, step in steps.items():
        launches = _calibrated(step, mode, workload, machine, prints=prints, releases=releases)
        outcomes = {each: simulate(launches, machine, each) for each in MODES}
        predicted = {each: outcome.duration for each, outcome in outcomes.items()}
        errors = {each: predicted[each] / traced[each] - 1 for each in traced}
        told = (mode, predicted, traced, errors, assumed, machine, launches, outcomes["tiles"], saved)
        found.append(Prediction(*told))
    return tuple(found)


def residents(steps: Iterable[Sequence[Stage]]) -> Mapping[str, int]:
    """Most programs of each stage that were on one multiprocessor at one moment: as many fit at least."""
    most: Counter[str] = Counter()
    for stage in (stage for step in steps for stage in step):
        for sm in stage.sm.unique().tolist():
            mine = stage.sm == sm
            moments = [(moment, 1) for moment in stage.begin[mine].tolist()]
            moments += [(moment, -1) for moment in stage.done[mine].tolist()]
            here = itertools.accumulate(change for _, change in sorted(moments))  # who leaves comes first
            most[stage.key[0]] = max(most[stage.key[0]], 1, *here)
    return most


def _check(steps: Mapping[Mode, Sequence[Stage]], workload: Decode) -> None:
    if workload.batch > 1 or workload.steps > 1:
        raise ValueError(f"{workload.name}: the model knows the dependencies of one step of one sequence")
    shapes = {mode: [(stage.key, stage.programs) for stage in step] for mode, step in steps.items()}
    first = next(iter(shapes.values()))
    if not first:
        raise ValueError("a trace without a written record")
    for mode, shape in shapes.items():
        if shape != first:
            raise ValueError(f"the {mode} trace is of other launches than the first; trace the same step in both ways")


def _machine(
    steps: Mapping[Mode, Sequence[Stage]], workload: Decode, processors: int, bandwidth: float | None
) -> tuple[Machine, tuple[str, ...]]:
    assumed = [f"{LATENCY:.0f} ns from a program's start to its first bytes"]
    if bandwidth is None:
        bandwidth = max(_reached(step, workload) for step in steps.values())
    gap, release, trigger = GAP, RELEASE, 0.0
    if "graph" in steps:
        gap = _middle(b.first_start - a.last_end for a, b in _pairs(steps["graph"]))
    else:
        assumed.append(f"{GAP:.0f} ns between launches of a graph")
    if "pdl" in steps:
        release = median(_releases(steps["pdl"]).values()) if len(steps["pdl"]) > 1 else RELEASE
        # What is more than the least of them waited for room.
        trigger = max(
            0.0, min((float(b.first_start - int(a.begin.max())) for a, b in _pairs(steps["pdl"])), default=0.0)
        )
    else:
        assumed.append(f"{RELEASE:.0f} ns to release a wait, 0 ns to trigger")
    return Machine(processors, bandwidth, gap, release, trigger), tuple(assumed)


def _releases(step: Sequence[Stage]) -> Mapping[str, float]:
    """ns from the end of what a stage waits for to the end of its first wait, median over layers.

    They differ: some kernels' waits end only when loads that they had under way have come.
    """
    found: dict[str, list[int]] = {}
    for before, stage in _pairs(step):
        found.setdefault(stage.key[0], []).append(int(stage.wait_end.min()) - before.last_end)
    return {name: _middle(values) for name, values in found.items()}


def _pairs(step: Sequence[Stage]) -> list[tuple[Stage, Stage]]:
    return list(pairwise(step))


def _middle(values: Iterable[int]) -> float:
    listed = list(values)
    return max(0.0, median(listed)) if listed else 0.0


def _reached(step: Sequence[Stage], workload: Decode) -> float:
    """Bytes a ns of the stage that moves the most, from its first release to its last end."""
    moved = stage_bytes(workload)
    largest = max(step, key=lambda stage: moved.get(stage.key[0], 0))
    since = max(largest.first_start, int(largest.wait_end.min()))
    return moved.get(largest.key[0], 0) / max(1, largest.last_end - since)


def _calibrated(
    step: Sequence[Stage],
    mode: Mode,
    workload: Decode,
    machine: Machine,
    *,
    prints: Mapping[str, Footprint],
    releases: Mapping[str, float],
) -> tuple[Launch, ...]:
    """The step's launches, with latencies that make each stage last as long as in the trace."""
    moved = stage_bytes(workload)
    models: dict[str, Launch] = {}
    targets: dict[str, float] = {}
    for name in dict.fromkeys(stage.key[0] for stage in step):
        layers = [stage for stage in step if stage.key[0] == name]
        each = moved.get(name, 0) / layers[0].programs
        early = each * prints[name].early
        room, release = prints[name].fits, releases.get(name)
        models[name] = Launch(name, layers[0].programs, room, LATENCY, early, each - early, release=release)
        targets[name] = median(_span(stage, mode) for stage in layers)
    before = dict(zip([stage.key for stage in step[1:]], step, strict=False))

    def launches() -> tuple[Launch, ...]:
        return tuple(
            replace(models[stage.key[0]], producers=_needs(workload, before.get(stage.key), stage, prints))
            for stage in step
        )

    if mode == "graph":
        for name, launch in models.items():
            models[name] = _fitted(launch, machine, target=targets[name])
        return launches()
    for _ in range(_ROUNDS):
        spans = _modelled_spans(launches(), machine)
        off = {name: targets[name] - spans[name] for name in models}
        for name, launch in models.items():
            waves = math.ceil(launch.programs / ((launch.residents or 1) * machine.multiprocessors))
            models[name] = replace(launch, follow=max(0.0, launch.follow + off[name] / waves))
        if max(map(abs, off.values())) < _FITTED:
            break
    return launches()


def _modelled_spans(launches: Sequence[Launch], machine: Machine) -> Mapping[str, float]:
    """ns from a stage's first release to its end, median over layers. A stage's early loads share the memory with the
    stage before it, so that no stage can be fitted by itself."""
    outcome = simulate(launches, machine, "pdl")
    found: dict[str, list[float]] = {}
    for launch, released, ended in zip(launches, outcome.released, outcome.ended, strict=True):
        found.setdefault(launch.name, []).append(ended - released)
    return {name: median(spans) for name, spans in found.items()}


def _needs(workload: Decode, before: Stage | None, stage: Stage, prints: Mapping[str, Footprint]) -> Producers:
    if before is None:
        return lambda program: None
    left, right = (before.key[0], before.programs), (stage.key[0], stage.programs)
    tiles = prints[left[0]].tiles
    return lambda program: producers(workload.shape, before=left, stage=right, program=program, tiles=tiles)


def _span(stage: Stage, mode: Mode) -> int:
    """What the fit must reproduce: a graph's stage from start to end, another's from its first release on."""
    return stage.last_end - (stage.first_start if mode == "graph" else int(stage.wait_end.min()))


def _fitted(launch: Launch, machine: Machine, *, target: float) -> Launch:
    """With the fixed latency that makes it last `target` ns in a graph; as near as the memory lets it come."""

    def with_fixed(fixed: float) -> Launch:
        return replace(launch, lead=min(LATENCY, fixed), follow=max(0.0, fixed - LATENCY))

    return with_fixed(_solved(lambda fixed: simulate([with_fixed(fixed)], machine, "graph").duration, target))


def _solved(lasts: Callable[[float], float], target: float) -> float:
    """Where the growing function `lasts` reaches `target`, by secants kept within a bracket; 0 if it is above there."""
    low, high = 0.0, max(target, _FITTED)
    at_low, at_high = lasts(low), lasts(high)
    if at_low >= target:
        return 0.0
    for _ in range(12):
        guess = low + (target - at_low) * (high - low) / max(at_high - at_low, 1e-9)
        guess = min(max(guess, low + 0.02 * (high - low)), high - 0.02 * (high - low))
        at_guess = lasts(guess)
        if abs(at_guess - target) < _FITTED:
            return guess
        if at_guess < target:
            low, at_low = guess, at_guess
        else:
            high, at_high = guess, at_guess
    return low + (target - at_low) * (high - low) / max(at_high - at_low, 1e-9)


def table(found: Sequence[Prediction], workload: Decode) -> str:
    """For reading in a terminal."""
    moved = workload.bytes_moved
    lines = [f"{workload.name}: model of the schedule, us of a traced step"]
    for prediction in found:
        machine = prediction.machine
        lines += [
            f"calibrated on the {prediction.calibrated_on} trace; {machine.multiprocessors} multiprocessors, "
            f"{machine.bandwidth / 1000:.2f} TB/s, gap {machine.gap:.0f} ns, release {machine.release:.0f} ns, "
            f"trigger {machine.trigger:.0f} ns",
            f"  assumed: {'; '.join(prediction.assumed)}",
        ]
        for mode in ("graph", "pdl"):
            told = f"  {mode:6} {prediction.predicted[mode] / 1000:8.1f} predicted"
            if mode in prediction.traced:
                told += f", {prediction.traced[mode] / 1000:.1f} traced, error {prediction.errors[mode]:+.1%}"
            lines.append(told)
        lines.append(
            f"  tiles  {prediction.predicted['tiles'] / 1000:8.1f} PROJECTION, tile-level triggers: "
            f"{prediction.gain:+.1%} to the model's own pdl"
        )
        lines.append(f"  memory {moved / machine.bandwidth / 1000:8.1f} its traffic alone at that bandwidth")
    if found and (saved := found[0].saved) is not None:
        lines.append(f"by the pdl trace's stamps alone: {saved / 1000:.1f} us less with triggers by tile, PROJECTION")
    lines.append(
        "A projection is no measurement: no device was seen to do it. The largest error above says how far to trust it."
    )
    return "\n".join(lines)
