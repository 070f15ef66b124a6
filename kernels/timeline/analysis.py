"""What traced steps say about where a step's time goes.

Blank is not idle, and spans are occupancy: a program that is there may wait for memory, and a moment without a record
is one without a traced program, not one in which the device did nothing. Times here are those of traced steps; a
latency is never taken from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from kernels.timeline import stages as staging
from kernels.timeline.partition import KINDS, Kind, partition
from kernels.timeline.stages import Key, Stage
from kernels.timeline.trace import Trace


@dataclass(frozen=True, slots=True)
class StageFigures:
    """One stage; of a stage in layers, one typical layer (median over layers) but for `parts`. Times in ns.

    Each figure is the median over the traced steps.

    layers: in how many it is. programs: records of one layer.
    duration: first start to last end. gap: last end of the stage before to its first start; negative: they overlap.
    tail: last end less the median multiprocessor's. barrier: last end of the stage before to the median
    multiprocessor's first end of a wait: what handing over costs. gap and barrier are None for the first stage.
    wait_share, occupancy: fractions, see kernels.timeline.stages.Stage.
    parts: its share of the typical step, summed over layers: busy, tail, wait, gap (kernels.timeline.partition).
    bytes: least traffic, all layers; None where it is not known.
    """

    stage: str
    layers: int
    programs: int
    duration: float
    gap: float | None
    tail: float
    barrier: float | None
    wait_share: float
    occupancy: float
    parts: Mapping[Kind, int]
    bytes: int | None

    @property
    def share(self) -> int:
        """ns of the typical step that belong to it."""
        return sum(self.parts.values())

    @property
    def bytes_per_second(self) -> float | None:
        """Over its share of the step. Weights that came early, while another stage held the front, make it high."""
        return None if self.bytes is None or not self.share else self.bytes / (self.share * 1e-9)


@dataclass(frozen=True, slots=True)
class Summary:
    """Traced steps of one implementation. Times in ns.

    step: median duration, first start to last end, of `steps` traced steps. typical: index of the one nearest to it,
    whose parts the stages hold; they add up to its duration, typical_step, exactly.
    tick: smallest step of the device's clock that shows. occupancy: of all multiprocessors' time in the typical step,
    where a program was there.
    """

    steps: int
    step: float
    typical: int
    typical_step: int
    tick: int
    multiprocessors: int
    occupancy: float
    stages: tuple[StageFigures, ...]

    def parts(self) -> Mapping[Kind, int]:
        return {kind: sum(stage.parts.get(kind, 0) for stage in self.stages) for kind in KINDS}


@dataclass(frozen=True, slots=True)
class _Figures:
    """Of one stage of one layer in one step."""

    duration: float
    gap: float | None
    tail: float
    barrier: float | None
    wait_share: float
    occupancy: float


def summarize(
    traces: Sequence[Trace], *, stage_bytes: Mapping[str, int] | None = None, multiprocessors: int | None = None
) -> Summary:
    """traces: of steps on equal sizes, at least one.

    stage_bytes: bytes of a stage in one layer (kernels.timeline.traffic). multiprocessors: of the device; without it,
    those that wrote a record. ValueError where a trace is empty, or the traces are not of the same stages.
    """
    traced = [staging.stages(trace) for trace in traces]
    _check(traced)
    durations = [_duration(step) for step in traced]
    middle = median(durations)
    typical = min(range(len(traced)), key=lambda index: (abs(durations[index] - middle), index))
    processors = multiprocessors or max(map(staging.multiprocessors, traces))
    parts = partition(traced[typical])
    figures = [_figures(step, processors) for step in traced]
    names = dict.fromkeys(stage.key[0] for stage in traced[typical])
    return Summary(
        steps=len(traced),
        step=middle,
        typical=typical,
        typical_step=durations[typical],
        tick=min(filter(None, map(staging.tick, traces)), default=0),
        multiprocessors=processors,
        occupancy=_occupancy(traces[typical], durations[typical], processors),
        stages=tuple(_summed(name, traced[typical], figures, parts, stage_bytes or {}) for name in names),
    )


def _check(traced: Sequence[Sequence[Stage]]) -> None:
    if not traced or not all(traced):
        raise ValueError("a trace without a written record; launch the traced step before the buffer is read")
    keys = [{stage.key for stage in step} for step in traced]
    if different := next((found ^ keys[0] for found in keys if found != keys[0]), None):
        raise ValueError(f"{sorted(map(str, different))[0]} is in some of the traced steps and not in others")


def _duration(step: Sequence[Stage]) -> int:
    return max(stage.last_end for stage in step) - min(stage.first_start for stage in step)


def _occupancy(trace: Trace, duration: int, processors: int) -> float:
    begin, _, done, sm = trace.stamps[trace.written].unbind(dim=1)
    return staging.occupied(sm, begin, done) / (duration * processors) if duration else 0.0


def _figures(step: Sequence[Stage], processors: int) -> dict[Key, _Figures]:
    found: dict[Key, _Figures] = {}
    before: Stage | None = None
    for stage in step:
        found[stage.key] = _Figures(
            duration=stage.last_end - stage.first_start,
            gap=None if before is None else stage.first_start - before.last_end,
            tail=stage.last_end - stage.middle_end,
            barrier=None if before is None else stage.middle_release - before.last_end,
            wait_share=stage.wait_share,
            occupancy=stage.occupancy(processors),
        )
        before = stage
    return found


def _summed(
    name: str,
    typical: Sequence[Stage],
    figures: Sequence[Mapping[Key, _Figures]],
    parts: Mapping[tuple[Key, Kind], int],
    stage_bytes: Mapping[str, int],
) -> StageFigures:
    layers = [stage for stage in typical if stage.key[0] == name]

    def middle(field: str) -> float | None:
        over_steps = [
            [value for step in figures if (value := getattr(step[stage.key], field)) is not None] for stage in layers
        ]
        medians = [median(values) for values in over_steps if values]
        return median(medians) if medians else None

    moved = stage_bytes.get(name)
    return StageFigures(
        stage=name,
        layers=len(layers),
        programs=int(median(stage.programs for stage in layers)),
        duration=middle("duration") or 0.0,
        gap=middle("gap"),
        tail=middle("tail") or 0.0,
        barrier=middle("barrier"),
        wait_share=middle("wait_share") or 0.0,
        occupancy=middle("occupancy") or 0.0,
        parts={kind: total for kind in KINDS if (total := sum(parts.get((s.key, kind), 0) for s in layers))},
        bytes=None if moved is None else moved * len(layers),
    )
