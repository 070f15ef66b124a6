"""On a GPU: one implementation traced, and what its test wants to know of the trace, as JSON. A process of its own,
since Triton interprets in the tests' one.

    python -m tests.kernels.timeline.traced_on_gpu modular-pdl
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise

import torch

from kernels import registry, workloads
from kernels.llama import inputs as fresh_inputs
from kernels.llama import weights as llama_weights
from kernels.timeline import recording, spans
from kernels.timeline.stages import stages


def told(name: str) -> dict[str, object]:
    workload = workloads.named("decode/llama-1b/b1-ctx512-bf16")
    weights = llama_weights.random(workload, device="cuda", seed=1)
    drawn = fresh_inputs.fresh(workload, weights, 1)
    with torch.no_grad():
        timeline, traces = recording.recorded(registry.entry("decode", name), workload, weights, drawn, steps=3)
    in_order = stages(traces[0])
    return {
        "figures": timeline.figures,
        "written": all(bool(trace.written.all()) for trace in traces),
        "packed": len(spans.pack(timeline)),
        "gaps": [right.first_start - left.last_end for left, right in pairwise(in_order)],
        "multiprocessors": torch.cuda.get_device_properties(0).multi_processor_count,
    }


if __name__ == "__main__":
    print(json.dumps(told(sys.argv[1])))
