"""A traced step of an implementation that has just been timed: facts and a packed timeline for its result.

    Case(..., trace=lambda: tracing.trace_facts(entry, workload, weights, inputs))

The trace is of launches of its own, after the timing and of a step prepared anew: it gives no latency.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from torch import Tensor

from kernels.llama.weights import Weights
from kernels.registry import Entry
from kernels.timeline import figures, recording, spans
from kernels.timeline.traced import STAMPED
from kernels.workloads import Decode
from perfci.bench.case import Facts

SWITCH = "PERFCI_TRACE"


def wanted(device: str, environment: Mapping[str, str] = os.environ) -> bool:
    """PERFCI_TRACE=1 or 0; unset: on a GPU. ValueError for anything else."""
    asked = environment.get(SWITCH, "")
    if asked not in ("", "0", "1"):
        raise ValueError(f"{SWITCH} = {asked!r}: set it to 1 or 0, or not at all")
    return device == "cuda" if not asked else asked == "1"


def trace_of(
    entry: Entry,
    workload: Decode,
    weights: Callable[[], Weights],
    inputs: Callable[[], Mapping[str, Tensor]],
    *,
    environment: Mapping[str, str] = os.environ,
) -> Callable[[], Facts] | None:
    """For `Case.trace`. None for a workload of several steps, whose trace would show one step over and over; and,
    unless PERFCI_TRACE=1 asks for it, for PyTorch's kernels: the profiler leaves hooks in the driver, under which the
    process would time its other implementations, and what torch.compile makes is compiled anew.
    """
    if workload.steps > 1 or (entry.name not in STAMPED and environment.get(SWITCH) != "1"):
        return None
    return lambda: trace_facts(entry, workload, weights(), inputs())


def trace_facts(entry: Entry, workload: Decode, weights: Weights, inputs: Mapping[str, Tensor]) -> Facts:
    """`trace.*` scalars, the packed timeline as `trace`, and what all of it took as `trace.cost_s`.

    ValueError where a step cannot be traced.
    """
    began = time.perf_counter()
    timeline, _ = recording.recorded(entry, workload, weights, inputs)
    packed = spans.pack(timeline)
    cost = time.perf_counter() - began
    return {**figures.facts(timeline.figures), "trace.cost_s": cost, "trace": packed}
