"""One implementation traced: as a timeline with its figures, beside what tracing itself costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

import torch
from torch import Tensor

from kernels.llama.weights import Weights
from kernels.registry import Entry
from kernels.timeline import figures, profiled, spans, traced
from kernels.timeline.analysis import summarize
from kernels.timeline.spans import Timeline
from kernels.timeline.trace import Trace
from kernels.timeline.traffic import stage_bytes
from kernels.workloads import Decode

STEPS = 5
_OVERHEAD_STEPS = 20
_WARM_UP = 5


class Timed:
    """A launch that takes the time of each call, on the device's clock where there is one.

    These times tell what a trace costs and nothing else.
    """

    def __init__(self, launch: Callable[[], object], *, device: str) -> None:
        self._launch = launch
        self._on_device = device == "cuda"
        self._pairs: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._host: list[float] = []

    def __call__(self) -> None:
        if not self._on_device:
            start = time.perf_counter()
            self._launch()
            self._host.append(time.perf_counter() - start)
            return
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self._launch()
        end.record()
        self._pairs.append((begin, end))

    def seconds(self) -> float:
        """Median; waits for the device."""
        if self._on_device:
            torch.cuda.synchronize()
        return median([*self._host, *(begin.elapsed_time(end) / 1000 for begin, end in self._pairs)])


def recorded(
    entry: Entry, workload: Decode, weights: Weights, inputs: Mapping[str, Tensor], *, steps: int = STEPS
) -> tuple[Timeline, tuple[Trace, ...]]:
    """The timeline of the typical one of `steps` traced steps; and the traces, of implementations that write any.

    ValueError where a step cannot be traced, with the reason.
    """
    device = weights.embedding.device.type
    if workload.steps > 1:
        raise ValueError(f"{workload.name} has {workload.steps} steps; trace a workload of one")
    step = entry.load()(workload, weights, inputs)
    untraced = _seconds(step, device)
    if entry.name not in traced.STAMPED:
        timed = Timed(step, device=device)
        seen = profiled.profiled(timed, device=device, steps=steps)
        found = figures.of_kernels(seen, overhead=timed.seconds() / untraced)
        return profiled.timeline(seen, workload=workload.name, implementation=entry.name, figures=found), ()
    del step  # its graph and buffers, before the traced step asks for its own
    tracing, buffer = traced.prepare(entry.name, workload, weights, inputs)
    traces = traced.record(tracing, buffer, steps=steps)
    overhead = _seconds(tracing, device) / untraced
    return of_traces(traces, workload, implementation=entry.name, overhead=overhead, device=device), traces


def of_traces(
    traces: tuple[Trace, ...], workload: Decode, *, implementation: str, overhead: float, device: str
) -> Timeline:
    processors = torch.cuda.get_device_properties(device).multi_processor_count if device == "cuda" else None
    summary = summarize(traces, stage_bytes=stage_bytes(workload), multiprocessors=processors)
    return spans.of_trace(
        traces[summary.typical],
        workload=workload.name,
        implementation=implementation,
        figures=figures.of_programs(summary, overhead=overhead),
    )


def _seconds(launch: Callable[[], object], device: str) -> float:
    for _ in range(_WARM_UP):
        launch()
    timed = Timed(launch, device=device)
    for _ in range(_OVERHEAD_STEPS):
        timed()
    return timed.seconds()
