"""Traced steps of our own kernels: their slots here, their stamps on a GPU."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from kernels import offline, registry, workloads
from kernels.llama import inputs as fresh_inputs
from kernels.llama import weights as llama_weights
from kernels.timeline import recording, spans, traced
from kernels.timeline.stages import stages

ONE_STEP = [workload.name for workload in workloads.WORKLOADS if workload.device == "cuda" and workload.steps == 1]


@pytest.mark.parametrize("name", ONE_STEP)
def test_every_program_of_every_launch_has_a_slot_in_launch_order(name: str) -> None:
    workload = workloads.named(name)
    step, trace = traced.prepare("modular", workload, offline.absent_weights(workload), offline.absent_inputs(workload))
    launched = [
        (launch.name, launch.layer, program)
        for launch in step.plan  # type: ignore[attr-defined]
        for program in range(launch.grid[0])
    ]
    assert [tuple(slot) for slot in trace.slots] == launched
    assert trace.tensor.shape == (len(launched), 4)


@pytest.mark.gpu
@pytest.mark.parametrize("name", traced.STAMPED)
def test_a_trace_of_a_real_step_has_every_program_and_adds_up(name: str) -> None:
    workload = workloads.named("decode/llama-1b/b1-ctx512-bf16")
    weights = llama_weights.random(workload, device="cuda", seed=1)
    drawn = fresh_inputs.fresh(workload, weights, 1)
    with torch.no_grad():
        timeline, traces = recording.recorded(registry.entry("decode", name), workload, weights, drawn, steps=3)
    figures = timeline.figures
    assert all(bool(trace.written.all()) for trace in traces)
    assert sum(sum(stage["parts"].values()) for stage in figures["stages"]) == figures["typical_step"]
    assert 1 <= figures["tick"] <= 1024
    assert 0.8 < figures["overhead"] < 2
    assert figures["multiprocessors"] == torch.cuda.get_device_properties(0).multi_processor_count
    assert len(spans.pack(timeline)) <= spans.MAX_TEXT
    in_order = stages(traces[0])
    gaps = [right.first_start - left.last_end for left, right in pairwise(in_order)]
    if name in ("modular", "modular-graph"):
        assert min(gaps) >= 0  # an ordinary launch starts when the one before has ended
    else:
        assert min(gaps) < 0  # otherwise it hides nothing
