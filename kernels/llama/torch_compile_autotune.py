"""torch-compile-autotune: as torch-compile, with the fastest of the kernels that Inductor knows for each product."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from kernels.llama.torch_model import TorchStep
from kernels.llama.weights import Weights
from kernels.workloads import Decode


def prepare(workload: Decode, weights: Weights, inputs: Mapping[str, Tensor]) -> TorchStep:
    """Compiles at the first launch, in 45 s on an H200: `max-autotune` times its candidates, then captures a graph.

    What it picks depends on what it timed: two processes need not run the same kernels.
    """
    step = TorchStep(workload, weights, inputs)
    step.launch = torch.compile(step.model, fullgraph=True, dynamic=False, mode="max-autotune")
    return step
