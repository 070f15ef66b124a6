"""How many programs each operation of the modular step has, and the memory that its kernels hand to each other."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
import triton
from torch import Tensor

from kernels.llama.inputs import guarded
from kernels.llama.tiles import Tiles
from kernels.workloads import Decode


def splits(workload: Decode, tiles: Tiles) -> int:
    return triton.cdiv(workload.context, tiles.attend.rows)


def programs(workload: Decode, tiles: Tiles) -> dict[str, int]:
    """How many programs each operation has, in the order of a step; those between embed and head once a layer."""
    shape = workload.shape
    attention = {"attend": shape.query_heads}
    if tiles.split is not None:
        attention = {
            "attend": shape.query_heads // tiles.split.heads * splits(workload, tiles),
            "merge": shape.query_heads,
        }
    return {
        "embed": 1,
        "qkv": shape.qkv_rows // 2 // tiles.qkv.rows,
        **attention,
        "out": tiles.out.walk(shape.hidden)["PROGRAMS"],
        "gate_up": tiles.gate_up.walk(shape.ffn)["PROGRAMS"],
        "down": tiles.down.walk(shape.hidden)["PROGRAMS"],
        "head": shape.vocab // (tiles.head.rows * tiles.head_tiles),
        "pick": 1,
    }


@dataclass(frozen=True, slots=True)
class Scratch:
    """What kernels hand to each other, float32: x [D], query and attended [QUERY_HEADS HD], hidden [F], best [programs
    of the head]; where attention is split, parts [SPLITS, QUERY_HEADS, HD], peaks and totals [SPLITS, QUERY_HEADS]
    (else of no elements). best_row int32.

    positions int64 [steps, 2]: the position of each step, twice, so that each is as aligned as the first. Written
    when inputs are loaded; the steps only read it.
    guards: what lies before and after each of these in memory.
    """

    x: Tensor
    query: Tensor
    attended: Tensor
    hidden: Tensor
    best: Tensor
    best_row: Tensor
    parts: Tensor
    peaks: Tensor
    totals: Tensor
    positions: Tensor
    guards: tuple[Tensor, ...]

    def floating(self) -> tuple[Tensor, ...]:
        tensors = (getattr(self, field.name) for field in fields(self) if field.name != "guards")
        return tuple(tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel())


def scratch(workload: Decode, tiles: Tiles, *, device: torch.device | str) -> Scratch:
    shape = workload.shape
    guards: list[Tensor] = []

    def room(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        tensor, bands = guarded(size, dtype=dtype, device=device)
        guards.extend(bands)
        return tensor

    best = programs(workload, tiles)["head"]
    parts = splits(workload, tiles) if tiles.split else 0
    return Scratch(
        x=room(shape.hidden),
        query=room(shape.query_rows),
        attended=room(shape.query_rows),
        hidden=room(shape.ffn),
        best=room(best),
        best_row=room(best, dtype=torch.int32),
        parts=room(parts, shape.query_heads, shape.head_dim),
        peaks=room(parts, shape.query_heads),
        totals=room(parts, shape.query_heads),
        positions=room(workload.steps, 2, dtype=torch.int64),
        guards=tuple(guards),
    )
