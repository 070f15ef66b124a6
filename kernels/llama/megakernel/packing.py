"""What the kernel reads besides activations: the tape's lines, and the weights in the order of the tape.

One copy of all matrices, made once: a program's tiles lie one after the other, so that its whole step is one contiguous
stream.
"""

from __future__ import annotations

import itertools
from collections import defaultdict

import torch
from torch import Tensor

from kernels.llama.megakernel.instructions import Kind, Tape
from kernels.llama.megakernel.layout import Layout
from kernels.llama.weights import Weights
from kernels.workloads import Decode

WITHOUT_TILE = (Kind.ATTEND, Kind.PICK)
_FRESH_BIT = 4
_RUN_BIT = 17
_TILES_AT_A_TIME = 1024  # bounds the temporary: 64 MB at 16 rows of 2048


def tile_starts(tape: Tape) -> list[int]:
    """First tile of each program in the packed weights, and the number of all: one more than there are programs."""
    starts = [0]
    for program in tape.programs:
        starts.append(starts[-1] + sum(instruction.kind not in WITHOUT_TILE for instruction in program))
    return starts


def runs(tape: Tape) -> list[list[int]]:
    """Each program's runs, four words a run: those of its first line, and its length from bit 17 of w3 on.

    A run is a line that loads a vector, or that has no tile of weights, and those up to the next such line.
    """
    words, starts = tape.encoded()
    lines = [words[at : at + 4] for at in range(0, len(words), 4)]
    found: list[list[int]] = []
    for begin, end in itertools.pairwise(starts):
        first: list[list[int]] = []
        for line in lines[begin:end]:
            if line[0] >> _FRESH_BIT & 1 or line[0] & 15 in WITHOUT_TILE:
                first.append([*line])
            first[-1][3] += 1 << _RUN_BIT
        found.append([word for line in first for word in line])
    return found


def packed(workload: Decode, weights: Weights, tape: Tape) -> Tensor:
    """[tiles rows, hidden / 256, 256], contiguous, in the weights' number format."""
    layout = Layout(workload, tape.rows, tape.splits)
    hidden, rows = workload.shape.hidden, tape.rows
    device = weights.embedding.device
    count = tile_starts(tape)[-1]
    whole = torch.empty(count, rows, hidden, dtype=weights.embedding.dtype, device=device)
    places: dict[tuple[Kind, int], list[tuple[int, int]]] = defaultdict(list)
    at = 0
    for program in tape.programs:
        for instruction in program:
            if instruction.kind not in WITHOUT_TILE:
                places[instruction.kind, instruction.layer].append((at, instruction.tile))
                at += 1
    for (kind, layer), found in places.items():
        for begin in range(0, len(found), _TILES_AT_A_TIME):
            part = torch.tensor(found[begin : begin + _TILES_AT_A_TIME], device=device)
            whole[part[:, 0]] = _tiles(layout, weights, kind, layer, part[:, 1])
    return whole.view(count * rows, hidden // 256, 256)


def _tiles(layout: Layout, weights: Weights, kind: Kind, layer: int, tile: Tensor) -> Tensor:
    """Tiles of one stage: [n, rows, hidden] for tile numbers int64 [n]."""
    shape = layout.workload.shape
    rows = torch.arange(layout.rows, device=tile.device)
    low = rows[: layout.pairs]
    if kind is Kind.QKV:
        first = (tile // layout.head_tiles) * shape.head_dim + (tile % layout.head_tiles) * layout.pairs
        pairs = torch.cat([low, low + shape.head_dim // 2])
        return weights.qkv[layer][first[:, None] + pairs]
    if kind is Kind.OUT:
        return weights.out[layer][tile[:, None] * layout.rows + rows]
    if kind is Kind.GATE_UP:
        return weights.gate_up[layer][tile[:, None] * layout.pairs + torch.cat([low, low + shape.ffn])]
    if kind is Kind.DOWN:
        chunks = weights.down[layer].view(shape.hidden, layout.chunks, shape.hidden)
        block = tile % layout.row_blocks
        return chunks[block[:, None] * layout.rows + rows, (tile // layout.row_blocks)[:, None]]
    return weights.embedding[tile[:, None] * layout.rows + rows]
