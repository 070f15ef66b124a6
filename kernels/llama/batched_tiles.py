"""How the operations of a step of several sequences are cut: pinned for each size of workload."""

from __future__ import annotations

from dataclasses import dataclass

import triton

from kernels.llama.batched_prefetch import LINE_BYTES
from kernels.workloads import NUMBER_BYTES, Decode

_LEAST_COLUMNS = {"bf16": 8, "fp32": 16}  # of a tensor core's right operand
_LEAST_LANES = 16  # rows of its left operand


@dataclass(frozen=True, slots=True)
class Product:
    """How a projection is cut.

    rows of one program; splits: programs that share a row's K (1: none); ways: warps that share a program's K;
    first: columns of weights loaded before the wait; block: columns a turn of the loop over the others, both for each
    way; stages: turns that are loaded ahead, and one; prefetched: columns of weights after the first ones that each way
    asks the L2 for before the wait.
    """

    rows: int
    splits: int
    ways: int
    first: int
    block: int
    stages: int
    warps: int
    prefetched: int = 0

    def constants(self) -> dict[str, int]:
        return {
            "ROWS": self.rows,
            "WAYS": self.ways,
            "FIRST": self.first,
            "BLOCK": self.block,
            "STAGES": self.stages,
            "PREFETCHED": self.prefetched,
        }


@dataclass(frozen=True, slots=True)
class Attention:
    """heads: query heads of one program; first: positions loaded before the wait; block: positions a turn of the loop
    over the others; stages: turns that are loaded ahead, and one; prefetched: positions after the first ones that each
    program asks the L2 for before the wait."""

    heads: int
    first: int
    block: int
    stages: int
    warps: int
    prefetched: int = 0

    def constants(self) -> dict[str, int]:
        return {
            "HEADS": self.heads,
            "LANES": max(_LEAST_LANES, triton.next_power_of_2(self.heads)),
            "FIRST": self.first,
            "BLOCK": self.block,
            "STAGES": self.stages,
            "PREFETCHED": self.prefetched,
        }


@dataclass(frozen=True, slots=True)
class BatchedTiles:
    """Pinned, as `tiles.Tiles` are.

    out and down with one split settle the residual themselves; with more, a launch of `parts` programs a sequence does.
    """

    qkv: Product
    attend: Attention
    out: Product
    gate_up: Product
    down: Product
    head: Product
    parts: int
    settle_warps: int = 4

    def squares(self, hidden: int) -> tuple[int, int]:
        """Parts of a row whose squares are summed by themselves, of x before attention and before the feed-forward."""
        before_attention, before_ffn = (
            self.parts if product.splits > 1 else hidden // product.rows for product in (self.down, self.out)
        )
        return before_attention, before_ffn


HOPPER_8 = BatchedTiles(
    qkv=Product(rows=16, splits=1, ways=4, first=256, block=64, stages=3, warps=4),
    attend=Attention(heads=2, first=512, block=128, stages=2, warps=8),
    out=Product(rows=16, splits=1, ways=4, first=256, block=64, stages=3, warps=4),
    gate_up=Product(rows=128, splits=1, ways=1, first=256, block=64, stages=4, warps=8, prefetched=256),
    down=Product(rows=16, splits=1, ways=4, first=256, block=128, stages=4, warps=4),
    head=Product(rows=128, splits=1, ways=1, first=128, block=64, stages=4, warps=8),
    parts=8,
)
"""For up to 16 sequences. Activations are a fraction of the weights, so a program may have few rows and all of K."""

HOPPER_64 = BatchedTiles(
    qkv=Product(rows=64, splits=4, ways=1, first=256, block=64, stages=4, warps=4),
    attend=Attention(heads=4, first=64, block=64, stages=2, warps=2, prefetched=128),
    out=Product(rows=64, splits=4, ways=1, first=256, block=64, stages=4, warps=4),
    gate_up=Product(rows=128, splits=1, ways=1, first=64, block=64, stages=5, warps=8),
    down=Product(rows=128, splits=8, ways=1, first=128, block=64, stages=4, warps=8),
    head=Product(rows=128, splits=1, ways=1, first=64, block=64, stages=4, warps=4),
    parts=4,
)
"""Beyond. A program of r rows reads 64 / r times as much of activations as of weights: many rows, and K is split."""

INTERPRETED = BatchedTiles(
    qkv=Product(rows=128, splits=2, ways=2, first=16, block=8, stages=2, warps=4),
    attend=Attention(heads=2, first=8, block=8, stages=2, warps=4),
    out=Product(rows=64, splits=1, ways=2, first=32, block=16, stages=2, warps=4),
    gate_up=Product(rows=128, splits=1, ways=1, first=64, block=32, stages=2, warps=4),
    down=Product(rows=64, splits=2, ways=1, first=64, block=32, stages=2, warps=4),
    head=Product(rows=128, splits=1, ways=1, first=64, block=64, stages=2, warps=4),
    parts=2,
)
"""Few, large programs, but several blocks, splits, ways and parts, and both ways to settle the residual."""


def tiles_for(workload: Decode) -> BatchedTiles:
    if workload.device != "cuda":
        return INTERPRETED
    return HOPPER_8 if workload.batch <= 16 else HOPPER_64


def columns(workload: Decode) -> int:
    """Sequences, padded to what a tensor core multiplies with at once."""
    return max(_LEAST_COLUMNS[workload.number], triton.next_power_of_2(workload.batch))


def programs(workload: Decode, tiles: BatchedTiles) -> dict[str, int]:
    """How many programs each operation has, in the order of a step; those between embed and head once a layer."""
    shape, batch = workload.shape, workload.batch
    settling = batch * tiles.parts
    return {
        "embed": batch,
        "qkv": shape.qkv_rows // tiles.qkv.rows * tiles.qkv.splits,
        "attend": batch * shape.query_heads // tiles.attend.heads,
        "out": shape.hidden // tiles.out.rows * tiles.out.splits,
        **({"settle_out": settling} if tiles.out.splits > 1 else {}),
        "gate_up": 2 * shape.ffn // tiles.gate_up.rows,
        "down": shape.hidden // tiles.down.rows * tiles.down.splits,
        **({"settle_down": settling} if tiles.down.splits > 1 else {}),
        "head": shape.vocab // tiles.head.rows,
        "pick": batch,
    }


def check(workload: Decode, tiles: BatchedTiles) -> None:
    """A size that does not divide would leave rows unwritten or read beyond a matrix: refuse it."""
    shape, name = workload.shape, workload.name
    if workload.steps != 1:
        raise ValueError(f"{name}: {workload.steps} steps; these kernels make one, loop over them or use batch 1")
    group = shape.query_heads // shape.kv_heads
    if group % tiles.attend.heads:
        raise ValueError(f"{name}: {group} query heads a key head are no multiple of a program's {tiles.attend.heads}")
    if shape.hidden % tiles.parts:
        raise ValueError(f"{name}: hidden {shape.hidden} is no multiple of {tiles.parts} parts")
    for operation, rows, depth, product in (
        ("qkv", shape.qkv_rows, shape.hidden, tiles.qkv),
        ("out", shape.hidden, shape.query_rows, tiles.out),
        ("gate_up", 2 * shape.ffn, shape.hidden, tiles.gate_up),
        ("down", shape.hidden, shape.ffn, tiles.down),
        ("head", shape.vocab, shape.hidden, tiles.head),
    ):
        if rows % product.rows:
            raise ValueError(f"{name}: {operation}'s {rows} rows are no multiple of a program's {product.rows}")
        share, over = divmod(depth, product.splits * product.ways)
        if over or share < product.first or (share - product.first) % product.block:
            raise ValueError(
                f"{name}: {operation}'s {depth} columns in {product.splits} splits of {product.ways} ways do not "
                f"fall into a first {product.first} and blocks of {product.block}"
            )
        _check_prefetched(workload, operation, product.prefetched, share - product.first)
    attend = tiles.attend
    _check_prefetched(workload, "attend", attend.prefetched * shape.head_dim, workload.context * shape.head_dim)
    for operation, product in (("gate_up", tiles.gate_up), ("head", tiles.head)):
        if product.splits > 1:
            raise ValueError(f"{name}: {operation} in {product.splits} splits; it needs whole sums, give it 1")


def _check_prefetched(workload: Decode, operation: str, numbers: int, most: int) -> None:
    line = LINE_BYTES.value // NUMBER_BYTES[workload.number]
    if numbers and (numbers % line or numbers > most or numbers != triton.next_power_of_2(numbers)):
        raise ValueError(
            f"{workload.name}: {operation} prefetches {numbers} numbers of a row; give it a power of two of them, in "
            f"whole lines of {line}, {most} at most"
        )
