"""torch-graph: PyTorch's own kernels, captured once into a CUDA graph and replayed."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from kernels.llama.capture import captured
from kernels.llama.torch_model import TorchStep
from kernels.llama.weights import Weights
from kernels.workloads import Decode


def prepare(workload: Decode, weights: Weights, inputs: Mapping[str, Tensor]) -> TorchStep:
    step = TorchStep(workload, weights, inputs)
    with torch.no_grad():
        graph = captured(step.model)
    step.launch = graph.replay
    return step
