"""torch-eager: PyTorch operations launched one by one from Python; on a GPU bound by the host, not by memory."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from kernels.llama.torch_model import TorchStep
from kernels.llama.weights import Weights
from kernels.workloads import Decode


def prepare(workload: Decode, weights: Weights, inputs: Mapping[str, Tensor]) -> TorchStep:
    return TorchStep(workload, weights, inputs)
