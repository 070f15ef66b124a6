"""The megakernel's one launch: its scratch, its tape on the device, its arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.llama.inputs import Buffers, guarded
from kernels.llama.megakernel import packing
from kernels.llama.megakernel.configuration import Configuration
from kernels.llama.megakernel.instructions import Tape, span
from kernels.llama.megakernel.kernel import megakernel
from kernels.llama.megakernel.synchronization import COUNTER_STRIDE
from kernels.llama.plan import Launch
from kernels.llama.weights import Weights
from kernels.timeline.trace import TraceBuffer
from kernels.workloads import Decode

_WORDS = 4  # int32 of a line


@dataclass(frozen=True, slots=True)
class Scratch:
    """What programs hand to each other, float32 but for best_row int32; see `kernel.megakernel`.

    guards: what lies before and after each in memory.
    """

    x: Tensor
    mid: Tensor
    rows: Tensor
    attended: Tensor
    hidden: Tensor
    best: Tensor
    best_row: Tensor
    guards: tuple[Tensor, ...]

    def floating(self) -> tuple[Tensor, ...]:
        return (self.x, self.mid, self.rows, self.attended, self.hidden, self.best)


def scratch(workload: Decode, tape: Tape, *, device: torch.device | str) -> Scratch:
    shape = workload.shape
    guards: list[Tensor] = []

    def buffer(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        inner, bands = guarded(size, dtype=dtype, device=device)
        guards.extend(bands)
        return inner

    return Scratch(
        x=buffer(shape.hidden),
        mid=buffer(shape.hidden),
        rows=buffer(shape.query_heads + 2 * shape.kv_heads, shape.head_dim),
        attended=buffer(tape.splits, shape.hidden // 8, 16),
        hidden=buffer(shape.ffn),
        best=buffer(len(tape.programs)),
        best_row=buffer(len(tape.programs), dtype=torch.int32),
        guards=tuple(guards),
    )


def launch(
    workload: Decode,
    weights: Weights,
    live: Buffers,
    between: Scratch,
    packed: Tensor,
    tape: Tape,
    configuration: Configuration,
    *,
    trace: TraceBuffer | None,
) -> Launch:
    shape = workload.shape
    device = weights.embedding.device
    programs = len(tape.programs)
    _, starts = tape.encoded()
    runs = packing.runs(tape)
    most = _power_of_two(max(len(mine) // _WORDS for mine in runs) + 1)  # the line after the last may be looked at

    def integers(values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32).to(device)

    swizzled = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=3)
    width = span(workload.context, tape.splits)
    arguments = (
        TensorDescriptor.from_tensor(packed, [configuration.rows, shape.hidden // 256, 256], swizzled),
        integers([word for mine in runs for word in (*mine, *[0] * (most * _WORDS - len(mine)))]).view(torch.int64),
        integers([len(mine) // _WORDS for mine in runs]),
        integers(starts),
        integers(packing.tile_starts(tape)),
        weights.embedding,
        weights.norms,
        weights.cosine,
        weights.sine,
        live.token_in,
        live.position,
        live.token,
        between.x,
        between.mid,
        between.rows,
        live.key_cache,
        live.value_cache,
        between.attended,
        between.hidden,
        live.logits,
        between.best,
        between.best_row,
        integers([0]),
        integers([0] * (tape.counters * COUNTER_STRIDE)),
        trace.tensor if trace is not None else integers([0, 0]).view(torch.int64),
    )
    keywords = {
        "LAYERS": shape.layers,
        "D": shape.hidden,
        "QUERY_HEADS": shape.query_heads,
        "KV_HEADS": shape.kv_heads,
        "HD": shape.head_dim,
        "F": shape.ffn,
        "CONTEXT": workload.context,
        "STEPS": workload.steps,
        "EPSILON": shape.norm_epsilon,
        "PROGRAMS": programs,
        "RUNS": most,
        "WIDTH": _power_of_two(max(programs, 32)),
        "SPLITS": tape.splits,
        "SPAN": width,
        "BLOCK": min(configuration.block, _power_of_two(width)),
        "SLOTS": configuration.slots,
        "FLIGHT": configuration.flight,
        "WARPS": configuration.warps,
        "TOKEN": tape.counters - 1,
        "REGISTERS": configuration.fetch_registers,
        "TRACE": trace is not None,
        "num_warps": configuration.warps,
        "launch_cooperative_grid": True,
    }
    return Launch("megakernel", megakernel, (programs,), arguments, keywords)


def _power_of_two(least: int) -> int:
    return 1 << math.ceil(math.log2(least))
