"""The modular step: its launches are built once, then made eagerly, captured, or compiled without a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from kernels.llama.inputs import buffers
from kernels.llama.plan import Launch, launches, slots
from kernels.llama.scratch import Scratch, programs, scratch
from kernels.llama.tiles import HOPPER, HOPPER_LONG, HOPPER_SHORT, INTERPRETED, Split, Tile, Tiles, check, tiles_for
from kernels.llama.weights import Weights
from kernels.timeline.trace import TraceBuffer
from kernels.workloads import Decode

__all__ = [
    "HOPPER",
    "HOPPER_LONG",
    "HOPPER_SHORT",
    "INTERPRETED",
    "Launch",
    "ModularStep",
    "Scratch",
    "Split",
    "Tile",
    "Tiles",
    "check",
    "launches",
    "programs",
    "scratch",
    "slots",
    "tiles_for",
]


class ModularStep:
    """The launches with the buffers that they hold; right at any position that leaves room for the workload's steps.

    tiles: the workload's own unless given. trace: of `slots(workload, tiles)`, where the last step's launches
    stamp when they ran, which makes them slower.
    """

    def __init__(
        self,
        workload: Decode,
        weights: Weights,
        inputs: Mapping[str, Tensor],
        *,
        pdl: bool = False,
        tiles: Tiles | None = None,
        trace: TraceBuffer | None = None,
    ) -> None:
        device = weights.embedding.device
        tiles = tiles or tiles_for(workload)
        self.buffers = buffers(workload, device=device, logits=torch.float32)
        self.between = scratch(workload, tiles, device=device)
        self.plan = launches(workload, weights, self.buffers, self.between, tiles=tiles, pdl=pdl, trace=trace)
        self.weights = weights
        self.scratch: Sequence[Tensor] = self.between.floating()
        self.load(inputs)

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        position = int(inputs["position"])
        self.buffers.load(inputs)
        positions = self.between.positions
        positions.copy_((position + torch.arange(len(positions), device=positions.device))[:, None])
        self.outputs: Mapping[str, Tensor] = self.buffers.outputs(position)
        self.constants: Sequence[Tensor] = (
            *self.weights.tensors(),
            *self.buffers.constants(position),
            positions,
            *self.between.guards,
        )

    def __call__(self) -> None:
        for launch in self.plan:
            launch()
