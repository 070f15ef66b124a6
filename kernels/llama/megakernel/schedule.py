"""Deals the tiles of a decode step to the programs of a megakernel, and wires them with waits and signals.

Standard library only; the same arguments give the same tape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kernels.llama.megakernel.instructions import Instruction, Kind, Tape, Wait
from kernels.llama.megakernel.layout import Layout
from kernels.workloads import Decode

Work = tuple[Kind, int, int]
"""Kind, layer, tile."""


def schedule(workload: Decode, *, programs: int, rows: int, splits: int, attend_cost: float = 1.0) -> Tape:
    """The tape of one step for `programs` programs, all of which must be resident at once.

    Every stage deals its tiles in turn, in increasing order (chunk by chunk for GATE_UP), so that all programs finish
    it at about the same time; what is left over goes to the programs with the least accumulated load, since weights are
    fetched ahead over the borders of stages. An ATTEND tile counts as `attend_cost` others, and programs that attend
    are the last to get QKV tiles. Rows of the residual stream belong to one program: it has their OUT tile and all
    their DOWN tiles. Sizes that do not divide are a ValueError.
    """
    layout = Layout(workload, rows, splits)
    if programs < 1:
        raise ValueError(f"programs {programs}: a tape needs at least one")
    if attend_cost < 0:
        raise ValueError(f"attend_cost {attend_cost} must not be negative")
    work = _dealt(layout, programs=programs, attend_cost=attend_cost)
    return Tape(_wired(layout, work), layout.counters, rows, splits)


def _dealt(layout: Layout, *, programs: int, attend_cost: float) -> tuple[tuple[Work, ...], ...]:
    work: list[list[Work]] = [[] for _ in range(programs)]
    loads = [0.0] * programs

    def give(kind: Kind, layer: int, shares: Sequence[Sequence[int]]) -> None:
        for program, tiles in enumerate(shares):
            work[program] += [(kind, layer, tile) for tile in tiles]

    for layer in range(layout.workload.shape.layers):
        attend = _shares(loads, layout.tiles(Kind.ATTEND), cost=attend_cost)
        busy = frozenset(program for program, tiles in enumerate(attend) if tiles)
        give(Kind.QKV, layer, _shares(loads, layout.tiles(Kind.QKV), last=busy))
        give(Kind.ATTEND, layer, attend)
        owned = [list(range(program, layout.row_blocks, programs)) for program in range(programs)]
        give(Kind.OUT, layer, owned)
        give(Kind.GATE_UP, layer, _shares(loads, layout.tiles(Kind.GATE_UP)))
        give(Kind.DOWN, layer, [_all_chunks(layout, mine) for mine in owned])
        for program, mine in enumerate(owned):
            loads[program] += len(mine) * (1 + layout.chunks)
    layers = layout.workload.shape.layers
    give(Kind.HEAD, layers, _shares(loads, layout.tiles(Kind.HEAD)))
    give(Kind.PICK, layers, _shares(loads, 1))
    return tuple(map(tuple, work))


def _all_chunks(layout: Layout, blocks: Sequence[int]) -> list[int]:
    return [chunk * layout.row_blocks + block for block in blocks for chunk in range(layout.chunks)]


def _shares(
    loads: list[float], tiles: int, *, cost: float = 1.0, last: frozenset[int] = frozenset()
) -> list[list[int]]:
    """Tiles 0, 1, … to the programs in turn, so that early tiles are early everywhere; adds to `loads`.

    What a whole number of rounds leaves over goes to those with the least load, to those in `last` last.
    """
    turns = sorted(range(len(loads)), key=lambda program: (program in last, loads[program], program))
    shares: list[list[int]] = [[] for _ in loads]
    for tile in range(tiles):
        program = turns[tile % len(turns)]
        shares[program].append(tile)
        loads[program] += cost
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
