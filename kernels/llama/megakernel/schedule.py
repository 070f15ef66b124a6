"""Deals the tiles of a decode step to the programs of a megakernel, and wires them with waits and signals.

Standard library only; the same arguments give the same tape.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence

from kernels.llama.megakernel.instructions import Instruction, Kind, Tape, Wait
from kernels.llama.megakernel.layout import Layout
from kernels.workloads import Decode

Work = tuple[Kind, int, int]
"""Kind, layer, tile."""


def schedule(
    workload: Decode, *, programs: int, rows: int, splits: int, attend_cost: float = 1.0, ahead: int = 1
) -> Tape:
    """The tape of one step for `programs` programs, all of which must be resident at once.

    Weights are fetched ahead over the borders of stages, so what has to be even is the load that a program has
    accumulated, not its share of each stage: every tile goes to the program with the least so far, in increasing order
    (chunk by chunk for GATE_UP). An ATTEND tile counts as `attend_cost` others, and programs that attend are
    the last to get QKV tiles. A program may catch up by at most `ahead` tiles above the even share of a
    stage (its weights' ring holds no more), and never by an ATTEND tile: all wait for those. Sizes that do not divide
    are a ValueError.
    """
    layout = Layout(workload, rows, splits)
    if programs < 1:
        raise ValueError(f"programs {programs}: a tape needs at least one")
    if attend_cost < 0 or ahead < 0:
        raise ValueError(f"attend_cost {attend_cost} and ahead {ahead} must not be negative")
    work = _dealt(layout, programs=programs, attend_cost=attend_cost, ahead=ahead)
    return Tape(_wired(layout, work), layout.counters, rows, splits)


def _dealt(layout: Layout, *, programs: int, attend_cost: float, ahead: int) -> tuple[tuple[Work, ...], ...]:
    work: list[list[Work]] = [[] for _ in range(programs)]
    loads = [0.0] * programs

    def give(kind: Kind, layer: int, shares: Sequence[Sequence[int]]) -> None:
        for program, tiles in enumerate(shares):
            work[program] += [(kind, layer, tile) for tile in tiles]

    for layer in range(layout.workload.shape.layers):
        attend = _shares(loads, layout.tiles(Kind.ATTEND), cost=attend_cost, ahead=0)
        busy = frozenset(program for program, tiles in enumerate(attend) if tiles)
        give(Kind.QKV, layer, _shares(loads, layout.tiles(Kind.QKV), ahead=ahead, last=busy))
        give(Kind.ATTEND, layer, attend)
        give(Kind.OUT, layer, _shares(loads, layout.tiles(Kind.OUT), ahead=ahead))
        give(Kind.GATE_UP, layer, _shares(loads, layout.tiles(Kind.GATE_UP), ahead=ahead))
        blocks = _shares(loads, layout.row_blocks, cost=layout.chunks, ahead=ahead // layout.chunks)
        give(Kind.DOWN, layer, [_all_chunks(layout, mine) for mine in blocks])
    layers = layout.workload.shape.layers
    give(Kind.HEAD, layers, _shares(loads, layout.tiles(Kind.HEAD), ahead=ahead))
    give(Kind.PICK, layers, _shares(loads, 1, ahead=ahead))
    return tuple(map(tuple, work))


def _all_chunks(layout: Layout, blocks: Sequence[int]) -> list[int]:
    return [chunk * layout.row_blocks + block for block in blocks for chunk in range(layout.chunks)]


def _shares(
    loads: list[float], tiles: int, *, cost: float = 1.0, ahead: int, last: frozenset[int] = frozenset()
) -> list[list[int]]:
    """Tiles 0, 1, … each to the program with the least load, of equal ones those in `last` last; adds to `loads`."""
    programs = len(loads)
    most = -(-tiles // programs) + ahead
    shares: list[list[int]] = [[] for _ in range(programs)]
    queue = [(load, program in last, program) for program, load in enumerate(loads)]
    heapq.heapify(queue)
    for tile in range(tiles):
        load, late, program = heapq.heappop(queue)
        shares[program].append(tile)
        loads[program] = load + cost
        if len(shares[program]) < most:
            heapq.heappush(queue, (loads[program], late, program))
    return shares


def _wired(layout: Layout, work: Sequence[Sequence[Work]]) -> tuple[tuple[Instruction, ...], ...]:
    announcing = [{layout.announced(*item): index for index, item in enumerate(mine)} for mine in work]
    arrivals = Counter(counter for last in announcing for counter in last if counter is not None)

    def instructions(mine: Sequence[Work], last: dict[int | None, int]) -> list[Instruction]:
        wired: list[Instruction] = []
        waited: set[int] = set()
        held = None
        for index, item in enumerate(mine):
            awaited, announced, vector = layout.awaited(*item), layout.announced(*item), layout.vector(*item)
            wait = None
            if awaited not in waited:
                wait = Wait(awaited, arrivals[awaited], lag=int(awaited == layout.token))
            signal = announced if announced is not None and last[announced] == index else None
            wired.append(Instruction(*item, vector is not None and vector != held, wait, signal))
            waited.add(awaited)
            held = vector or held
        return wired

    return tuple(tuple(instructions(mine, last)) for mine, last in zip(work, announcing, strict=True))
