"""Recording a step into a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable

import torch

_WARM_UP = 2  # first launches compile kernels and create library handles, which a capture may not


def captured(launch: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A graph that does on replay what one `launch()` does, on the same addresses.

    The graph keeps the buffers that it allocated, but not those that `launch` holds: keep both alive.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP):
            launch()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    return graph
