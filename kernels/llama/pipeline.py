"""A modular step as a list of launches: built once, then launched eagerly, captured, or compiled without a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from kernels.llama import operations
from kernels.llama.inputs import Buffers, buffers
from kernels.llama.weights import Weights
from kernels.workloads import Decode


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows that a program makes at a time, and the warps that make them.

    programs: how many share all rows, each walking over several tiles; None: as many as there are tiles.
    """

    rows: int
    warps: int
    programs: int | None = None

    def walk(self, rows: int) -> dict[str, int]:
        """ROWS, PROGRAMS and TILES of a kernel that makes so many rows in all."""
        programs = self.programs or rows // self.rows
        return {"ROWS": self.rows, "PROGRAMS": programs, "TILES": triton.cdiv(rows, self.rows * programs)}


@dataclass(frozen=True, slots=True)
class Tiles:
    """Pinned, not autotuned: a benchmark whose base and head pick different tiles compares noise.

    attend.rows is the block of positions; head_tiles the tiles of one program of the head.
    """

    qkv: Tile
    attend: Tile
    out: Tile
    gate_up: Tile
    down: Tile
    head: Tile
    head_tiles: int


HOPPER = Tiles(
    qkv=Tile(4, 2),
    attend=Tile(512, 8),
    out=Tile(4, 8),
    gate_up=Tile(2, 4, programs=1056),  # eight on each of an H200's 132 multiprocessors
    down=Tile(2, 8, programs=264),  # two on each
    head=Tile(4, 4),
    head_tiles=2,
)
"""Each operation's fastest on an H200 inside the whole step, with programmatic dependent launch."""

INTERPRETED = Tiles(
    qkv=Tile(16, 4),
    attend=Tile(16, 4),
    out=Tile(64, 4),
    gate_up=Tile(128, 4, programs=6),
    down=Tile(64, 4, programs=3),
    head=Tile(128, 4),
    head_tiles=2,
)
"""Few, large programs: the interpreter takes some 20 ms for each. Several blocks and tiles, so that loops loop."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel with its grid, its tensors, and its constants and launch options by name.

    `name` is the operation's in reports. All is made beforehand: an eager step is as fast as its launches.
    """

    name: str
    kernel: Any
    grid: tuple[int]
    arguments: tuple[Tensor, ...]
    keywords: Mapping[str, object]

    def __call__(self) -> None:
        self.kernel[self.grid](*self.arguments, **self.keywords)


@dataclass(frozen=True, slots=True)
class Scratch:
    """What kernels of one step hand to each other, float32: x [D], query and attended [QUERY_HEADS HD],
    hidden [F], best [programs of the head]; and best_row int32."""

    x: Tensor
    query: Tensor
    attended: Tensor
    hidden: Tensor
    best: Tensor
    best_row: Tensor

    def floating(self) -> tuple[Tensor, ...]:
        return (self.x, self.query, self.attended, self.hidden, self.best)


def scratch(workload: Decode, tiles: Tiles, *, device: torch.device | str) -> Scratch:
    shape = workload.shape

    def floats(size: int) -> Tensor:
        return torch.full((size,), float("nan"), dtype=torch.float32, device=device)

    programs = shape.vocab // (tiles.head.rows * tiles.head_tiles)
    return Scratch(
        x=floats(shape.hidden),
        query=floats(shape.query_rows),
        attended=floats(shape.query_rows),
        hidden=floats(shape.ffn),
        best=floats(programs),
        best_row=torch.zeros(programs, dtype=torch.int32, device=device),
    )


def launches(
    workload: Decode, weights: Weights, live: Buffers, between: Scratch, *, tiles: Tiles, pdl: bool
) -> tuple[Launch, ...]:
    """The launches of one step, in order: embed, five a layer, head, pick."""
    shape = workload.shape
    _check(workload, tiles)
    plan: list[Launch] = []

    def add(name: str, kernel: Any, tile: Tile, programs: int, *arguments: Tensor, **constants: object) -> None:
        keywords = {**constants, "PDL": pdl, "num_warps": tile.warps}
        # The first kernel of a step has nothing in the step to overlap with, and must see what load() copied.
        if pdl and plan:
            keywords["launch_pdl"] = True
        plan.append(Launch(name, kernel, (programs,), arguments, keywords))

    narrow = {"D": shape.hidden, "EPSILON": shape.norm_epsilon}
    heads = {
        "QUERY_HEADS": shape.query_heads,
        "KV_HEADS": shape.kv_heads,
        "HD": shape.head_dim,
        "CONTEXT": workload.context,
    }
    out, gate_up, down = tiles.out.walk(shape.hidden), tiles.gate_up.walk(shape.ffn), tiles.down.walk(shape.hidden)
    x = between.x
    add("embed", operations.embed, Tile(1, 4), 1, live.token_in, weights.embedding, x, D=shape.hidden)
    for layer in range(shape.layers):
        keys, values = live.keys[layer], live.values[layer]
        add(
            "qkv",
            operations.project_qkv,
            tiles.qkv,
            shape.qkv_rows // 2 // tiles.qkv.rows,
            x,
            weights.norms[2 * layer],
            weights.qkv[layer],
            weights.cosine,
            weights.sine,
            live.position,
            between.query,
            keys,
            values,
            **narrow,
            **heads,
            ROWS=tiles.qkv.rows,
        )
        add(
            "attend",
            operations.attend,
            tiles.attend,
            shape.query_heads,
            between.query,
            keys,
            values,
            live.position,
            between.attended,
            **heads,
            BLOCK=tiles.attend.rows,
        )
        add(
            "out",
            operations.project_and_add,
            tiles.out,
            out["PROGRAMS"],
            between.attended,
            weights.out[layer],
            x,
            **out,
            D=shape.hidden,
            K=shape.query_rows,
        )
        add(
            "gate_up",
            operations.project_gate_up,
            tiles.gate_up,
            gate_up["PROGRAMS"],
            x,
            weights.norms[2 * layer + 1],
            weights.gate_up[layer],
            between.hidden,
            **narrow,
            **gate_up,
            F=shape.ffn,
        )
        add(
            "down",
            operations.project_and_add,
            tiles.down,
            down["PROGRAMS"],
            between.hidden,
            weights.down[layer],
            x,
            **down,
            D=shape.hidden,
            K=shape.ffn,
        )
    programs = between.best.shape[0]
    add(
        "head",
        operations.project_head,
        tiles.head,
        programs,
        x,
        weights.norms[2 * shape.layers],
        weights.embedding,
        live.logits,
        between.best,
        between.best_row,
        **narrow,
        ROWS=tiles.head.rows,
        TILES=tiles.head_tiles,
    )
    add(
        "pick",
        operations.pick,
        Tile(1, 8),
        1,
        between.best,
        between.best_row,
        live.token,
        COUNT=programs,
        WIDTH=triton.next_power_of_2(programs),
    )
    return tuple(plan)


def _check(workload: Decode, tiles: Tiles) -> None:
    """A size that does not divide would leave rows unwritten or read beyond a matrix: refuse it."""
    shape = workload.shape
    for name, size in (("hidden", shape.hidden), ("query rows", shape.query_rows), ("ffn", shape.ffn)):
        if size != triton.next_power_of_2(size):
            raise ValueError(f"{workload.name}: {name} {size} is no power of two, which tl.arange needs")
    for name, size, tile in (
        ("half a head", shape.head_dim // 2, tiles.qkv),
        ("hidden", shape.hidden, tiles.out),
        ("ffn", shape.ffn, tiles.gate_up),
        ("hidden", shape.hidden, tiles.down),
        ("vocab", shape.vocab, Tile(tiles.head.rows * tiles.head_tiles, tiles.head.warps)),
    ):
        if size % tile.rows:
            raise ValueError(f"{workload.name}: {name} {size} is not a multiple of a program's {tile.rows} rows")
        if tile.programs is not None and tile.programs * tile.rows > size:
            raise ValueError(f"{workload.name}: {tile.programs} programs of {tile.rows} rows for {name} {size}")


class ModularStep:
    """The launches with the buffers that they hold; right at any position below the workload's context."""

    def __init__(
        self,
        workload: Decode,
        weights: Weights,
        inputs: Mapping[str, Tensor],
        *,
        pdl: bool = False,
        tiles: Tiles = HOPPER,
    ) -> None:
        device = weights.embedding.device
        self.buffers = buffers(workload, device=device, logits=torch.float32)
        self.between = scratch(workload, tiles, device=device)
        self.plan = launches(workload, weights, self.buffers, self.between, tiles=tiles, pdl=pdl)
        self.weights = weights
        self.scratch: Sequence[Tensor] = self.between.floating()
        self.load(inputs)

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        position = int(inputs["position"])
        self.buffers.load(inputs)
        self.outputs: Mapping[str, Tensor] = self.buffers.outputs(position)
        self.constants: Sequence[Tensor] = (*self.weights.tensors(), *self.buffers.constants(position))

    def __call__(self) -> None:
        for launch in self.plan:
            launch()
