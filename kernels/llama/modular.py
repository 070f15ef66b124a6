"""modular: one Triton kernel an operation, launched one by one from Python; on a GPU bound by the host."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from kernels.llama.batched_pipeline import BatchedStep
from kernels.llama.pipeline import ModularStep
from kernels.llama.weights import Weights
from kernels.workloads import Decode


def prepare(workload: Decode, weights: Weights, inputs: Mapping[str, Tensor]) -> ModularStep | BatchedStep:
    if workload.batch > 1:
        return BatchedStep(workload, weights, inputs)
    return ModularStep(workload, weights, inputs)
