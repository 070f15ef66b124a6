"""A modular step as a list of launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import triton
from torch import Tensor

from kernels.llama import operations, split_attention
from kernels.llama.inputs import Buffers
from kernels.llama.scratch import Scratch, programs, splits
from kernels.llama.tiles import Split, Tile, Tiles, check
from kernels.llama.weights import Weights
from kernels.timeline.trace import Slot, TraceBuffer
from kernels.workloads import Decode


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel with its grid, its tensors, and its constants and launch options by name.

    `name` is the operation's in reports; layer: None outside of the layers. All is made beforehand: an eager step is
    as fast as its launches.
    """

    name: str
    kernel: Any
    grid: tuple[int]
    arguments: tuple[Tensor, ...]
    keywords: Mapping[str, object]
    layer: int | None = None

    def __call__(self) -> None:
        self.kernel[self.grid](*self.arguments, **self.keywords)


def slots(workload: Decode, tiles: Tiles) -> tuple[Slot, ...]:
    """What a TraceBuffer needs: one slot a program of every launch of the last step, in launch order."""
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
    between: Scratch,
    *,
    tiles: Tiles,
    pdl: bool,
    trace: TraceBuffer | None = None,
) -> tuple[Launch, ...]:
    """The launches of all steps, in order: embed, five or six a layer, head, pick; each step fed by the one before.

    trace: where the last step's launches are to stamp, of `slots`. (All of 127 steps would be seven million rows.)
    """
    check(workload, tiles)
    if trace is not None and len(trace.slots) != len(slots(workload, tiles)):
        raise ValueError(f"{workload.name}: a trace of {len(trace.slots)} slots; make it of pipeline.slots(...)")
    plan = _Plan(workload, weights, live, between, tiles, pdl)
    for step in range(workload.steps):
        plan.traced = trace if step == workload.steps - 1 else None
        plan.step(step)
    return tuple(plan.made)


class _Plan:
    def __init__(
        self,
        workload: Decode,
        weights: Weights,
        live: Buffers,
        between: Scratch,
        tiles: Tiles,
        pdl: bool,
    ) -> None:
        self.workload, self.weights, self.live, self.between, self.tiles = workload, weights, live, between, tiles
        self.pdl = pdl
        self.programs = programs(workload, tiles)
        self.made: list[Launch] = []
        self.traced: TraceBuffer | None = None
        self.stamped = 0
        shape = workload.shape
        self.narrow: dict[str, Any] = {"D": shape.hidden, "EPSILON": shape.norm_epsilon}
        self.heads: dict[str, Any] = {
            "QUERY_HEADS": shape.query_heads,
            "KV_HEADS": shape.kv_heads,
            "HD": shape.head_dim,
            "CONTEXT": workload.context,
        }
        self.layers = [self._of_layer(layer) for layer in range(shape.layers)]

    def _of_layer(self, layer: int) -> dict[str, Tensor]:
        """Views of a layer's weights and caches, made once and not again for each step."""
        weights = self.weights
        return {
            "attention_norm": weights.norms[2 * layer],
            "ffn_norm": weights.norms[2 * layer + 1],
            "qkv": weights.qkv[layer],
            "out": weights.out[layer],
            "gate_up": weights.gate_up[layer],
            "down": weights.down[layer],
            "keys": self.live.keys[layer],
            "values": self.live.values[layer],
        }

    def add(
        self, name: str, kernel: Any, tile: Tile, *arguments: Tensor, layer: int | None = None, **constants: object
    ) -> None:
        count = self.programs[name]
        keywords = {**constants, "PDL": self.pdl, "num_warps": tile.warps}
        # The first kernel of a graph has nothing in it to overlap with, and must see what load() copied.
        if self.pdl and self.made:
            keywords["launch_pdl"] = True
        if self.traced is not None:
            keywords |= {"trace_ptr": self.traced.tensor[self.stamped : self.stamped + count], "TRACE": True}
            self.stamped += count
        self.made.append(Launch(name, kernel, (count,), arguments, keywords, layer))

    def step(self, step: int) -> None:
        live, between, weights, shape = self.live, self.between, self.weights, self.workload.shape
        token_in = live.token_in if step == 0 else live.token[step - 1 : step]
        position = live.position if self.workload.steps == 1 else between.positions[step]
        fed = {"FED": True} if step else {}
        self.add("embed", operations.embed, Tile(1, 4), token_in, weights.embedding, between.x, D=shape.hidden, **fed)
        for layer in range(shape.layers):
            self.attention(layer, position)
            self.feed_forward(layer)
        self.head(live.token if self.workload.steps == 1 else live.token[step : step + 1])

    def head(self, token: Tensor) -> None:
        """The head and the choice of the token, which goes to `token` [1]."""
        between, tiles, count = self.between, self.tiles, self.programs["head"]
        self.add(
            "head",
            operations.project_head,
            tiles.head,
            between.x,
            self.weights.norms[2 * self.workload.shape.layers],
            self.weights.embedding,
            self.live.logits,
            between.best,
            between.best_row,
            **self.narrow,
            ROWS=tiles.head.rows,
            TILES=tiles.head_tiles,
        )
        self.add(
            "pick",
            operations.pick,
            Tile(1, 8),
            between.best,
            between.best_row,
            token,
            COUNT=count,
            WIDTH=triton.next_power_of_2(count),
        )

    def attention(self, layer: int, position: Tensor) -> None:
        between, tiles, shape = self.between, self.tiles, self.workload.shape
        of_layer = self.layers[layer]
        cache = (of_layer["keys"], of_layer["values"])
        self.add(
            "qkv",
            operations.project_qkv,
            tiles.qkv,
            between.x,
            of_layer["attention_norm"],
            of_layer["qkv"],
            self.weights.cosine,
            self.weights.sine,
            position,
            between.query,
            *cache,
            layer=layer,
            **self.narrow,
            **self.heads,
            ROWS=tiles.qkv.rows,
        )
        asked = (between.query, *cache, position)
        block: dict[str, Any] = {**self.heads, "BLOCK": tiles.attend.rows}
        if tiles.split is None:
            self.add("attend", operations.attend, tiles.attend, *asked, between.attended, layer=layer, **block)
        else:
            self.attend_in_parts(tiles.split, layer, asked, block)
        self.add(
            "out",
            operations.project_and_add,
            tiles.out,
            between.attended,
            of_layer["out"],
            between.x,
            layer=layer,
            **tiles.out.walk(shape.hidden),
            D=shape.hidden,
            K=shape.query_rows,
        )

    def attend_in_parts(self, split: Split, layer: int, asked: tuple[Tensor, ...], block: Mapping[str, Any]) -> None:
        """Attention in parts, and the merge of the parts."""
        between, shape, count = self.between, self.workload.shape, splits(self.workload, self.tiles)
        parts = (between.parts, between.peaks, between.totals)
        self.add(
            "attend",
            split_attention.attend_split,
            self.tiles.attend,
            *asked,
            *parts,
            layer=layer,
            **block,
            SPLITS=count,
            HEADS=split.heads,
        )
        self.add(
            "merge",
            split_attention.merge_splits,
            Tile(1, split.merge_warps),
            *parts,
            between.attended,
            layer=layer,
            QUERY_HEADS=shape.query_heads,
            HD=shape.head_dim,
            SPLITS=count,
            WIDTH=triton.next_power_of_2(count),
        )

    def feed_forward(self, layer: int) -> None:
        between, tiles, shape = self.between, self.tiles, self.workload.shape
        of_layer = self.layers[layer]
        self.add(
            "gate_up",
            operations.project_gate_up,
            tiles.gate_up,
            between.x,
            of_layer["ffn_norm"],
            of_layer["gate_up"],
            between.hidden,
            layer=layer,
            **self.narrow,
            **tiles.gate_up.walk(shape.ffn),
            F=shape.ffn,
        )
        self.add(
            "down",
            operations.project_and_add,
            tiles.down,
            between.hidden,
            of_layer["down"],
            between.x,
            layer=layer,
            **tiles.down.walk(shape.hidden),
            D=shape.hidden,
            K=shape.ffn,
        )
