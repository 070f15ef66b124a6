"""The modular step as a CUDA graph."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from kernels.llama.capture import captured
from kernels.llama.pipeline import ModularStep, Tiles
from kernels.llama.weights import Weights
from kernels.timeline.trace import TraceBuffer
from kernels.workloads import Decode


class ReplayedStep(ModularStep):
    """Replays what ModularStep launches, all steps in one graph; `load` may change token, contents and position,
    never an address."""

    def __init__(
        self,
        workload: Decode,
        weights: Weights,
        inputs: Mapping[str, Tensor],
        *,
        pdl: bool,
        tiles: Tiles | None = None,
        trace: TraceBuffer | None = None,
    ) -> None:
        super().__init__(workload, weights, inputs, pdl=pdl, tiles=tiles, trace=trace)
        self.graph = captured(super().__call__)

    def __call__(self) -> None:
        self.graph.replay()
