"""modular-pdl: the captured modular kernels with programmatic dependent launch, each loading its weights early."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from kernels.llama.batched_pipeline import ReplayedBatchedStep
from kernels.llama.replay import ReplayedStep
from kernels.llama.weights import Weights
from kernels.workloads import Decode


def prepare(workload: Decode, weights: Weights, inputs: Mapping[str, Tensor]) -> ReplayedStep | ReplayedBatchedStep:
    if workload.batch > 1:
        return ReplayedBatchedStep(workload, weights, inputs, pdl=True)
    return ReplayedStep(workload, weights, inputs, pdl=True)
