"""The modular step of several sequences: its launches are built once, then made eagerly or captured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from kernels.llama.batched_plan import launches, scratch
from kernels.llama.batched_tiles import BatchedTiles, tiles_for
from kernels.llama.capture import captured
from kernels.llama.inputs import buffers
from kernels.llama.weights import Weights
from kernels.timeline.trace import TraceBuffer
from kernels.workloads import Decode


class BatchedStep:
    """The launches with the buffers that they hold; right at any position below the workload's context.

    tiles: the workload's own unless given. trace: where to write, of `batched_plan.slots(workload, tiles)`; a traced
    step is slower.
    """

    def __init__(
        self,
        workload: Decode,
        weights: Weights,
        inputs: Mapping[str, Tensor],
        *,
        pdl: bool = False,
        tiles: BatchedTiles | None = None,
        trace: TraceBuffer | None = None,
    ) -> None:
        device = weights.embedding.device
        tiles = tiles_for(workload) if tiles is None else tiles
        self.buffers = buffers(workload, device=device, logits=torch.float32)
        self.between = scratch(workload, tiles, device=device)
        self.plan = launches(workload, weights, self.buffers, self.between, tiles=tiles, pdl=pdl, trace=trace)
        self.weights = weights
        self.scratch: Sequence[Tensor] = self.between.floating()
        self.load(inputs)

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        position = int(inputs["position"])
        self.buffers.load(inputs)
        self.outputs: Mapping[str, Tensor] = self.buffers.outputs(position)
        self.constants: Sequence[Tensor] = (
            *self.weights.tensors(),
            *self.buffers.constants(position),
            *self.between.guards,
        )

    def __call__(self) -> None:
        for launch in self.plan:
            launch()


class ReplayedBatchedStep(BatchedStep):
    """Replays what BatchedStep launches; `load` may change tokens, contents and position, never an address."""

    def __init__(
        self,
        workload: Decode,
        weights: Weights,
        inputs: Mapping[str, Tensor],
        *,
        pdl: bool,
        tiles: BatchedTiles | None = None,
        trace: TraceBuffer | None = None,
    ) -> None:
        super().__init__(workload, weights, inputs, pdl=pdl, tiles=tiles, trace=trace)
        self.graph = captured(super().__call__)

    def __call__(self) -> None:
        self.graph.replay()
