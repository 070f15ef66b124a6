"""modular-graph: the modular kernels captured once into a CUDA graph; each waits for the whole of the one before."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from kernels.llama.batched_pipeline import ReplayedBatchedStep
from kernels.llama.replay import ReplayedStep
from kernels.llama.weights import Weights
from kernels.workloads import Decode


def prepare(workload: Decode, weights: Weights, inputs: Mapping[str, Tensor]) -> ReplayedStep | ReplayedBatchedStep:
    if workload.batch > 1:
        return ReplayedBatchedStep(workload, weights, inputs, pdl=False)
    return ReplayedStep(workload, weights, inputs, pdl=False)
