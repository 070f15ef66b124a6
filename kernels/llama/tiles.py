"""How many rows and warps each operation of the modular step takes: pinned for each size of workload."""

from __future__ import annotations

from dataclasses import dataclass, replace

import triton

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
class Split:
    """Attention over positions split among programs.

    heads: query heads of one key head that a program attends for, sharing its loads. merge_warps: of the kernel that
    merges the parts.
    """

    heads: int
    merge_warps: int


@dataclass(frozen=True, slots=True)
class Tiles:
    """Pinned, not autotuned: a benchmark whose base and head pick different tiles compares noise.

    attend.rows is the block of positions; head_tiles the tiles of one program of the head. split: None where one
    program attends for one query head.
    """

    qkv: Tile
    attend: Tile
    out: Tile
    gate_up: Tile
    down: Tile
    head: Tile
    head_tiles: int
    split: Split | None = None


HOPPER = Tiles(
    qkv=Tile(4, 2),
    attend=Tile(512, 8),
    out=Tile(4, 8),
    gate_up=Tile(2, 4, programs=1056),  # eight on each of an H200's 132 multiprocessors
    down=Tile(2, 8, programs=264),  # two on each
    head=Tile(4, 4),
    head_tiles=2,
)
"""Each operation's fastest on an H200 inside the whole step at 512 positions, with programmatic dependent launch."""

HOPPER_SHORT = replace(HOPPER, attend=Tile(256, 8))
"""For at most 257 positions, all but the step's own loaded in one go."""

HOPPER_LONG = replace(HOPPER, attend=Tile(64, 4), split=Split(heads=4, merge_warps=4))
"""Beyond 513 positions one program a query head has more to load than its multiprocessor alone can in time."""

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


def tiles_for(workload: Decode) -> Tiles:
    """The tiles of a workload on a GPU; ties to the context alone, so that base and head get the same ones."""
    if workload.context <= HOPPER_SHORT.attend.rows + 1:
        return HOPPER_SHORT
    return HOPPER if workload.context <= HOPPER.attend.rows + 1 else HOPPER_LONG


def check(workload: Decode, tiles: Tiles) -> None:
    """A size that does not divide would leave rows unwritten or read beyond a matrix: refuse it (ValueError)."""
    shape = workload.shape
    for name, size in (("hidden", shape.hidden), ("query rows", shape.query_rows), ("ffn", shape.ffn)):
        if size != triton.next_power_of_2(size):
            raise ValueError(f"{workload.name}: {name} {size} is no power of two, which tl.arange needs")
    for name, tile in (("qkv", tiles.qkv), ("attend", tiles.attend), ("head", tiles.head)):
        if tile.programs is not None:
            raise ValueError(f"{workload.name}: {name} with {tile.programs} programs, but it cannot walk; give none")
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
    if tiles.split is not None and (shape.query_heads // shape.kv_heads) % tiles.split.heads:
        raise ValueError(f"{workload.name}: {tiles.split.heads} query heads a program do not share a key head")
