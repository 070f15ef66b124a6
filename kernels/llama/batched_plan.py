"""A modular step of several sequences as a list of launches, and the memory that they hand to each other."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
import triton
from torch import Tensor

from kernels.llama import batched_operations as operations
from kernels.llama.batched_attention import attend
from kernels.llama.batched_tiles import BatchedTiles, Product, check, columns, programs
from kernels.llama.inputs import Buffers, guarded
from kernels.llama.plan import Launch
from kernels.llama.weights import DTYPES, Weights
from kernels.timeline.trace import Slot, TraceBuffer
from kernels.workloads import Decode


@dataclass(frozen=True, slots=True)
class BatchedScratch:
    """What kernels of one step hand to each other; what a projection reads is in the weights' format.

    x float32 [B, D]; scaled [B, D]; attended [B, QUERY_HEADS HD]; hidden [B, F]; squares_attention, squares_ffn float32
    [parts, B], of x before attention (and the head) and before the feed-forward; partial_qkv float32 [splits, B, rows];
    partial float32 [splits, B, D], of out and down (no elements where neither is split); best float32 and best_row
    int32 [B, tiles of the head]. guards: what lies before and after each of these in memory.
    """

    x: Tensor
    scaled: Tensor
    attended: Tensor
    hidden: Tensor
    squares_attention: Tensor
    squares_ffn: Tensor
    partial_qkv: Tensor
    partial: Tensor
    best: Tensor
    best_row: Tensor
    guards: tuple[Tensor, ...]

    def floating(self) -> tuple[Tensor, ...]:
        tensors = (getattr(self, field.name) for field in fields(self) if field.name != "guards")
        return tuple(tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel())


def scratch(workload: Decode, tiles: BatchedTiles, *, device: torch.device | str) -> BatchedScratch:
    shape, batch = workload.shape, workload.batch
    number = DTYPES[workload.number]
    guards: list[Tensor] = []

    def room(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        tensor, bands = guarded(size, dtype=dtype, device=device)
        guards.extend(bands)
        return tensor

    before_attention, before_ffn = tiles.squares(shape.hidden)
    splits = max(tiles.out.splits, tiles.down.splits)
    best = programs(workload, tiles)["head"]
    return BatchedScratch(
        x=room(batch, shape.hidden),
        scaled=room(batch, shape.hidden, dtype=number),
        attended=room(batch, shape.query_rows, dtype=number),
        hidden=room(batch, shape.ffn, dtype=number),
        squares_attention=room(before_attention, batch),
        squares_ffn=room(before_ffn, batch),
        partial_qkv=room(tiles.qkv.splits, batch, shape.qkv_rows),
        partial=room(splits if splits > 1 else 0, batch, shape.hidden),
        best=room(batch, best),
        best_row=room(batch, best, dtype=torch.int32),
        guards=tuple(guards),
    )


def slots(workload: Decode, tiles: BatchedTiles) -> tuple[Slot, ...]:
    """What a TraceBuffer needs for all launches: one slot a program, in launch order."""
    counts = programs(workload, tiles)
    inner = [name for name in counts if name not in ("embed", "head", "pick")]
    order: list[tuple[str, int | None]] = [("embed", None)]
    order += [(name, layer) for layer in range(workload.shape.layers) for name in inner]
    order += [("head", None), ("pick", None)]
    return tuple(Slot(name, layer, tile) for name, layer in order for tile in range(counts[name]))


def launches(
    workload: Decode,
    weights: Weights,
    live: Buffers,
    between: BatchedScratch,
    *,
    tiles: BatchedTiles,
    pdl: bool,
    trace: TraceBuffer | None = None,
) -> tuple[Launch, ...]:
    """The launches of one step, in order: embed, five to seven a layer, head, pick."""
    check(workload, tiles)
    if trace is not None and len(trace.slots) != len(slots(workload, tiles)):
        raise ValueError(f"{workload.name}: a trace of {len(trace.slots)} slots; make it of batched_plan.slots(...)")
    plan = _Plan(workload, weights, live, between, tiles, pdl, trace)
    plan.embed()
    for layer in range(workload.shape.layers):
        plan.attention(layer)
        plan.feed_forward(layer)
    plan.head()
    return tuple(plan.made)


class _Plan:
    def __init__(
        self,
        workload: Decode,
        weights: Weights,
        live: Buffers,
        between: BatchedScratch,
        tiles: BatchedTiles,
        pdl: bool,
        trace: TraceBuffer | None,
    ) -> None:
        self.weights, self.live, self.between, self.tiles = weights, live, between, tiles
        self.shape, self.batch = workload.shape, workload.batch
        self.context = workload.context
        self.pdl, self.trace = pdl, trace
        self.programs = programs(workload, tiles)
        self.made: list[Launch] = []
        self.traced = 0
        self.parts_attention, self.parts_ffn = tiles.squares(self.shape.hidden)
        self.sequences: dict[str, Any] = {"BATCH": self.batch, "N": columns(workload)}
        self.narrow: dict[str, Any] = {"D": self.shape.hidden, "EPSILON": self.shape.norm_epsilon}

    def add(
        self, name: str, kernel: Any, warps: int, *arguments: Tensor, layer: int | None = None, **constants: object
    ) -> None:
        count = self.programs[name]
        keywords = {**constants, "PDL": self.pdl, "num_warps": warps}
        # The first kernel of a step has nothing in the step to overlap with, and must see what load() copied.
        if self.pdl and self.made:
            keywords["launch_pdl"] = True
        if self.trace is not None:
            keywords |= {"trace_ptr": self.trace.tensor[self.traced : self.traced + count], "TRACE": True}
            self.traced += count
        self.made.append(Launch(name, kernel, (count,), arguments, keywords, layer))

    def embed(self) -> None:
        between = self.between
        self.add(
            "embed",
            operations.embed,
            self.tiles.settle_warps,
            self.live.token_in,
            self.weights.embedding,
            self.weights.norms[0],
            between.x,
            between.scaled,
            between.squares_attention,
            BATCH=self.batch,
            D=self.shape.hidden,
            PARTS=self.parts_attention,
        )

    def attention(self, layer: int) -> None:
        shape, between, tiles = self.shape, self.between, self.tiles
        self.add(
            "qkv",
            operations.project,
            tiles.qkv.warps,
            between.scaled,
            self.weights.qkv[layer],
            between.partial_qkv,
            layer=layer,
            **self.sequences,
            **tiles.qkv.constants(),
            TOTAL=shape.qkv_rows,
            K=shape.hidden,
            SPLITS=tiles.qkv.splits,
        )
        self.add(
            "attend",
            attend,
            tiles.attend.warps,
            between.partial_qkv,
            between.squares_attention,
            self.weights.cosine,
            self.weights.sine,
            self.live.position,
            self.live.keys[layer],
            self.live.values[layer],
            between.attended,
            layer=layer,
            **self.narrow,
            **tiles.attend.constants(),
            BATCH=self.batch,
            QUERY_HEADS=shape.query_heads,
            KV_HEADS=shape.kv_heads,
            HD=shape.head_dim,
            CONTEXT=self.context,
            SPLITS=tiles.qkv.splits,
            PARTS=self.parts_attention,
        )
        self._add_to_residual("out", tiles.out, between.attended, self.weights.out[layer], layer=layer)

    def feed_forward(self, layer: int) -> None:
        between, tiles = self.between, self.tiles
        self.add(
            "gate_up",
            operations.project_gate_up,
            tiles.gate_up.warps,
            between.scaled,
            between.squares_ffn,
            self.weights.gate_up[layer],
            between.hidden,
            layer=layer,
            **self.sequences,
            **self.narrow,
            **tiles.gate_up.constants(),
            F=self.shape.ffn,
            PARTS=self.parts_ffn,
        )
        self._add_to_residual("down", tiles.down, between.hidden, self.weights.down[layer], layer=layer)

    def _add_to_residual(self, name: str, product: Product, activation: Tensor, weight: Tensor, *, layer: int) -> None:
        """A projection that is added to x, and what the next norm needs of x: its values times that norm's weights."""
        between, hidden = self.between, self.shape.hidden
        squares, norm = (
            (between.squares_ffn, 2 * layer + 1) if name == "out" else (between.squares_attention, 2 * layer + 2)
        )
        settled = (self.weights.norms[norm], between.x, between.scaled, squares)
        constants = {**self.sequences, **product.constants(), "K": weight.shape[1]}
        if product.splits == 1:
            kernel = operations.project_and_settle
            self.add(name, kernel, product.warps, activation, weight, *settled, layer=layer, **constants, D=hidden)
            return
        partial = between.partial[: product.splits]
        constants |= {"TOTAL": hidden, "SPLITS": product.splits}
        self.add(name, operations.project, product.warps, activation, weight, partial, layer=layer, **constants)
        self.add(
            "settle_" + name,
            operations.settle,
            self.tiles.settle_warps,
            partial,
            *settled,
            layer=layer,
            BATCH=self.batch,
            D=hidden,
            SPLITS=product.splits,
            PARTS=self.tiles.parts,
        )

    def head(self) -> None:
        between, tiles = self.between, self.tiles
        self.add(
            "head",
            operations.project_head,
            tiles.head.warps,
            between.scaled,
            between.squares_attention,
            self.weights.embedding,
            self.live.logits,
            between.best,
            between.best_row,
            **self.sequences,
            **self.narrow,
            **tiles.head.constants(),
            V=self.shape.vocab,
            PARTS=self.parts_attention,
        )
        count = self.programs["head"]
        self.add(
            "pick",
            operations.pick,
            4,
            between.best,
            between.best_row,
            self.live.token,
            COUNT=count,
            WIDTH=triton.next_power_of_2(count),
        )
