"""megakernel, megakernel-graph: the whole step as one cooperative launch, and that launch in a CUDA graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from kernels.llama.capture import captured
from kernels.llama.inputs import buffers
from kernels.llama.megakernel import packing
from kernels.llama.megakernel.configuration import Configuration, configuration_for, tape_for
from kernels.llama.megakernel.instructions import Tape
from kernels.llama.megakernel.launch import launch, scratch
from kernels.llama.weights import Weights
from kernels.timeline.trace import Slot, TraceBuffer
from kernels.workloads import Decode


class MegakernelStep:
    """One launch a step, or a generation; right at any first position that leaves room for its steps."""

    def __init__(
        self,
        workload: Decode,
        weights: Weights,
        inputs: Mapping[str, Tensor],
        *,
        configuration: Configuration | None = None,
        trace: TraceBuffer | None = None,
    ) -> None:
        device = weights.embedding.device
        configuration = configuration or configuration_for(workload)
        self.tape = device_tape(workload, configuration, device=device)
        self.buffers = buffers(workload, device=device, logits=torch.float32)
        self.between = scratch(workload, self.tape, device=device)
        self.weights = weights
        self.packed = packing.packed(workload, weights, self.tape)
        made = launch(workload, weights, self.buffers, self.between, self.packed, self.tape, configuration, trace=trace)
        self.plan = (made,)
        self.scratch: Sequence[Tensor] = self.between.floating()
        self.load(inputs)

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        position = int(inputs["position"])
        self.buffers.load(inputs)
        self.outputs: Mapping[str, Tensor] = self.buffers.outputs(position)
        live = self.buffers.constants(position)
        self.constants: Sequence[Tensor] = (*self.weights.tensors(), self.packed, *live, *self.between.guards)

    def __call__(self) -> None:
        for made in self.plan:
            made()


class ReplayedMegakernelStep(MegakernelStep):
    """The launch captured once and replayed: what is left of launching from Python goes away."""

    def __init__(
        self,
        workload: Decode,
        weights: Weights,
        inputs: Mapping[str, Tensor],
        *,
        configuration: Configuration | None = None,
        trace: TraceBuffer | None = None,
    ) -> None:
        super().__init__(workload, weights, inputs, configuration=configuration, trace=trace)
        self.graph = captured(super().__call__)

    def __call__(self) -> None:
        self.graph.replay()


def prepare(
    workload: Decode, weights: Weights, inputs: Mapping[str, Tensor], *, trace: TraceBuffer | None = None
) -> MegakernelStep:
    return MegakernelStep(workload, weights, inputs, trace=trace)


def prepare_graph(
    workload: Decode, weights: Weights, inputs: Mapping[str, Tensor], *, trace: TraceBuffer | None = None
) -> ReplayedMegakernelStep:
    return ReplayedMegakernelStep(workload, weights, inputs, trace=trace)


def device_tape(workload: Decode, configuration: Configuration, *, device: torch.device) -> Tape:
    count = torch.cuda.get_device_properties(device).multi_processor_count
    return tape_for(workload, configuration, multiprocessors=count)


def trace_slots(workload: Decode, *, device: torch.device) -> tuple[Slot, ...]:
    """One for each instruction, in the tape's order: what the TraceBuffer of a step needs."""
    layers = workload.shape.layers
    tape = device_tape(workload, configuration_for(workload), device=device)
    return tuple(
        Slot(instruction.kind.name.lower(), instruction.layer if instruction.layer < layers else None, instruction.tile)
        for program in tape.programs
        for instruction in program
    )
