"""Steps that write a trace, of the implementations whose kernels can be stamped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch import Tensor

from kernels.llama.weights import Weights
from kernels.timeline.trace import Trace, TraceBuffer
from kernels.workloads import Decode

STAMPED = ("modular", "modular-graph", "modular-pdl", "megakernel", "megakernel-graph")
_WARM_UP = 3


class Launchable(Protocol):
    def __call__(self) -> None: ...


def prepare(
    implementation: str, workload: Decode, weights: Weights, inputs: Mapping[str, Tensor]
) -> tuple[Launchable, TraceBuffer]:
    """The step as `registry.Entry.load` prepares it, but tracing; and where it writes.

    ValueError for an implementation whose kernels have no stamps, or a workload of several steps: a launch of a
    hundred steps would write a hundred times what one of a single step shows.
    """
    if workload.steps > 1:
        raise ValueError(f"{workload.name} has {workload.steps} steps; trace a workload of one")
    device = weights.embedding.device
    if implementation.startswith("megakernel"):
        return _megakernel(implementation, workload, weights, inputs)
    if implementation not in STAMPED:
        raise ValueError(f"{implementation} writes no stamps; those that do are {', '.join(STAMPED)}")
    if workload.batch > 1:
        return _batched(implementation, workload, weights, inputs)
    from kernels.llama import pipeline, replay

    trace = TraceBuffer(pipeline.slots(workload, pipeline.tiles_for(workload)), device=device)
    if implementation == "modular":
        return pipeline.ModularStep(workload, weights, inputs, trace=trace), trace
    return replay.ReplayedStep(workload, weights, inputs, pdl=implementation == "modular-pdl", trace=trace), trace


def _batched(
    implementation: str, workload: Decode, weights: Weights, inputs: Mapping[str, Tensor]
) -> tuple[Launchable, TraceBuffer]:
    from kernels.llama import batched_pipeline, batched_plan, batched_tiles

    slots = batched_plan.slots(workload, batched_tiles.tiles_for(workload))
    trace = TraceBuffer(slots, device=weights.embedding.device)
    if implementation == "modular":
        return batched_pipeline.BatchedStep(workload, weights, inputs, trace=trace), trace
    pdl = implementation == "modular-pdl"
    return batched_pipeline.ReplayedBatchedStep(workload, weights, inputs, pdl=pdl, trace=trace), trace


def _megakernel(
    implementation: str, workload: Decode, weights: Weights, inputs: Mapping[str, Tensor]
) -> tuple[Launchable, TraceBuffer]:
    from kernels.llama.megakernel import step as megakernel

    device = weights.embedding.device
    trace = TraceBuffer(megakernel.trace_slots(workload, device=device), device=device)
    prepared: dict[str, Callable[..., Any]] = {
        "megakernel": megakernel.prepare,
        "megakernel-graph": megakernel.prepare_graph,
    }
    return prepared[implementation](workload, weights, inputs, trace=trace), trace


def record(launch: Callable[[], object], buffer: TraceBuffer, *, steps: int) -> tuple[Trace, ...]:
    """Traces of `steps` launches, each after some others, so that it does not show a device that was idle before."""
    found = []
    for _ in range(steps):
        for _ in range(_WARM_UP):
            launch()
        buffer.clear()
        launch()
        found.append(buffer.read())
    return tuple(found)
