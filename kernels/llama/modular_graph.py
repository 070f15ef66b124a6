"""modular-graph: the modular kernels captured once into a CUDA graph; each waits for the whole of the one before."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from kernels.llama.replay import ReplayedStep
from kernels.llama.weights import Weights
from kernels.workloads import Decode


def prepare(workload: Decode, weights: Weights, inputs: Mapping[str, Tensor]) -> ReplayedStep:
    return ReplayedStep(workload, weights, inputs, pdl=False)
