"""What each instruction of a megakernel's tape reads, computes and stores: the executable specification, in torch.

Sizes as in `operations`: D hidden, HD head width, F feed-forward width, V vocabulary, C context. Activations are
float32 (float64 where the weights are), whatever the weights and caches hold.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.llama.inputs import Buffers
from kernels.llama.megakernel.instructions import Instruction, Kind, Tape, span
from kernels.llama.megakernel.layout import Layout
from kernels.llama.megakernel.tags import TaggedWords
from kernels.llama.weights import Weights
from kernels.workloads import Decode

NOTHING_YET = -1.0e30
"""Greatest score of a split that holds no position yet: finite, so that a difference of two is not NaN."""

_LOG2_E = 1.4426950408889634

Stores = tuple[tuple[Tensor, Tensor], ...]
"""Views into buffers, and what goes there."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """What programs hand to each other: query [HQ, HD]; for each split weighted [splits, HQ, HD], greatest and total
    [splits, HQ] (a softmax in base 2, not yet divided by its total); x, mid [D]; hidden [F]; best, best_row [programs].

    One buffer each for all layers and steps. counters and epoch (int32) live on: they are never poisoned or reset.
    tags (int8): of the words of each tile, where programs wait for those (`tagged_interpreter`); 0 on poisoned ones.
    """

    query: Tensor
    weighted: Tensor
    greatest: Tensor
    total: Tensor
    x: Tensor
    mid: Tensor
    hidden: Tensor
    best: Tensor
    best_row: Tensor
    counters: Tensor
    epoch: Tensor
    tags: Mapping[str, Tensor]

    def poison(self) -> None:
        for buffer in (self.query, self.weighted, self.greatest, self.total, self.x, self.mid, self.hidden, self.best):
            buffer.fill_(math.nan)
        self.best_row.fill_(-1)
        for tags in self.tags.values():
            tags.zero_()


def scratch(workload: Decode, tape: Tape, weights: Weights) -> Scratch:
    """New, poisoned, with counters at zero; beside the weights."""
    shape = workload.shape
    dtype = torch.promote_types(weights.embedding.dtype, torch.float32)
    programs = len(tape.programs)
    layout = Layout(workload, tape.rows, tape.splits)

    def floating(*size: int) -> Tensor:
        return torch.full(size, math.nan, dtype=dtype, device=weights.embedding.device)

    def integers(count: int, value: int, dtype: torch.dtype) -> Tensor:
        return torch.full((count,), value, dtype=dtype, device=weights.embedding.device)

    return Scratch(
        query=floating(shape.query_heads, shape.head_dim),
        weighted=floating(tape.splits, shape.query_heads, shape.head_dim),
        greatest=floating(tape.splits, shape.query_heads),
        total=floating(tape.splits, shape.query_heads),
        x=floating(shape.hidden),
        mid=floating(shape.hidden),
        hidden=floating(shape.ffn),
        best=floating(programs),
        best_row=integers(programs, -1, torch.int64),
        counters=integers(tape.counters, 0, torch.int32),
        epoch=integers(1, 0, torch.int32),
        tags={name: integers(parts, 0, torch.int8) for name, parts in TaggedWords(layout).parts().items()},
    )


@dataclass(slots=True)
class Registers:
    """What a program keeps from one instruction to the next: activation vector, a row block's sum, its best logit."""

    vector: Tensor | None = None
    sums: Tensor | None = None
    best: float = -math.inf
    best_row: int = -1


@dataclass(frozen=True, slots=True)
class Loaded:
    """What one instruction has read: its vector if it is `fresh`, and other rows."""

    vector: Tensor | None
    rows: tuple[Tensor, ...]


class Semantics:
    """The instructions bound to the buffers of a step. Loads copy; computing touches no buffer; stores come last."""

    def __init__(self, workload: Decode, tape: Tape, weights: Weights, buffers: Buffers, between: Scratch) -> None:
        self.workload, self.shape = workload, workload.shape
        self.layout = Layout(workload, tape.rows, tape.splits)
        self.weights, self.buffers, self.between = weights, buffers, between
        self.dtype = between.x.dtype
        self.span = span(workload.context, tape.splits)
        self.first_position = int(buffers.position)
        self.heading = [
            index for index, program in enumerate(tape.programs) if any(i.kind is Kind.HEAD for i in program)
        ]

    # ---- reading

    def early(self, instruction: Instruction, step: int) -> tuple[Tensor, ...]:
        """What may be read before the instruction's wait: keys and values of earlier positions."""
        if instruction.kind is not Kind.ATTEND:
            return ()
        split, head = divmod(instruction.tile, self.shape.query_heads)
        rows = slice(split * self.span, max(split * self.span, min((split + 1) * self.span, self._position(step))))
        group = self.layout.group(head)
        return (
            self.buffers.keys[instruction.layer][group, rows].clone(),
            self.buffers.values[instruction.layer][group, rows].clone(),
        )

    def load(self, instruction: Instruction, step: int) -> Loaded:
        """What is read after the wait."""
        vector = self._vector(instruction, step) if instruction.fresh else None
        return Loaded(vector, self._rows(instruction, step))

    def _rows(self, instruction: Instruction, step: int) -> tuple[Tensor, ...]:
        kind, layer, tile = instruction.kind, instruction.layer, instruction.tile
        between = self.between
        if kind is Kind.ATTEND:
            split, head = divmod(tile, self.shape.query_heads)
            position = self._position(step)
            if position // self.span != split:
                return (between.query[head].clone(),)
            group = self.layout.group(head)
            own = slice(position, position + 1)
            keys, values = self.buffers.keys[layer][group, own], self.buffers.values[layer][group, own]
            return between.query[head].clone(), keys.clone(), values.clone()
        if kind is Kind.OUT:
            return (self._x(layer, step)[self._block(tile)].clone(),)
        if kind is Kind.DOWN and self.layout.chunk(kind, tile) == self.layout.chunks - 1:
            return (between.mid[self._block(tile)].clone(),)
        if kind is Kind.PICK:
            return between.best[self.heading].clone(), between.best_row[self.heading].clone()
        return ()

    def _vector(self, instruction: Instruction, step: int) -> Tensor:
        kind, layer = instruction.kind, instruction.layer
        if kind in (Kind.QKV, Kind.HEAD):
            return self._normalized(self._x(layer, step), 2 * layer)
        if kind is Kind.OUT:
            return self._merged()
        if kind is Kind.GATE_UP:
            return self._normalized(self.between.mid, 2 * layer + 1)
        if kind is Kind.DOWN:
            chunk = self.layout.chunk(kind, instruction.tile)
            return self.between.hidden[chunk * self.shape.hidden : (chunk + 1) * self.shape.hidden].clone()
        raise ValueError(f"{kind.name} multiplies with no vector: {instruction}")

    def _x(self, layer: int, step: int) -> Tensor:
        """The input of a layer; that of the first is the token's embedding, which every program reads itself."""
        if layer:
            return self.between.x
        token = int(self.buffers.token_in[0] if step == 0 else self.buffers.token[step - 1])
        if not 0 <= token < self.shape.vocab:
            return torch.full_like(self.between.x, math.nan)
        return self.weights.embedding[token].to(self.dtype)

    def _normalized(self, x: Tensor, index: int) -> Tensor:
        scale = torch.rsqrt((x * x).mean() + self.shape.norm_epsilon)
        return x * scale * self.weights.norms[index].to(self.dtype)

    def _merged(self) -> Tensor:
        """The splits of each head brought to one maximum, summed in their order, divided by the total."""
        greatest = functools.reduce(torch.maximum, self.between.greatest)
        shrink = torch.exp2(self.between.greatest - greatest)
        weighted = self.between.weighted[0] * shrink[0, :, None]
        total = self.between.total[0] * shrink[0]
        for split in range(1, shrink.shape[0]):
            weighted = weighted + self.between.weighted[split] * shrink[split, :, None]
            total = total + self.between.total[split] * shrink[split]
        return (weighted / total[:, None]).flatten()

    # ---- computing

    def compute(
        self,
        program: int,
        instruction: Instruction,
        step: int,
        *,
        early: tuple[Tensor, ...],
        loaded: Loaded,
        held: Registers,
    ) -> Stores:
        """Changes the registers and returns what is to be stored."""
        if loaded.vector is not None:
            held.vector = loaded.vector
        kind, layer, tile = instruction.kind, instruction.layer, instruction.tile
        if kind is Kind.QKV:
            return self._qkv(layer, tile, step, held)
        if kind is Kind.ATTEND:
            return self._attend(tile, early, loaded.rows)
        if kind is Kind.OUT:
            rows = self._block(tile)
            return ((self.between.mid[rows], loaded.rows[0] + self._product(self.weights.out[layer, rows], held)),)
        if kind is Kind.GATE_UP:
            values = slice(tile * self.layout.pairs, (tile + 1) * self.layout.pairs)
            gate = self._product(self.weights.gate_up[layer, : self.shape.ffn][values], held)
            up = self._product(self.weights.gate_up[layer, self.shape.ffn :][values], held)
            return ((self.between.hidden[values], torch.nn.functional.silu(gate) * up),)
        if kind is Kind.DOWN:
            return self._down(layer, tile, loaded.rows, held)
        if kind is Kind.HEAD:
            return self._head(program, instruction, held)
        return self._pick(step, loaded.rows)

    def _qkv(self, layer: int, tile: int, step: int, held: Registers) -> Stores:
        shape, half = self.shape, self.shape.head_dim // 2
        head = tile // self.layout.head_tiles
        start = tile % self.layout.head_tiles * self.layout.pairs
        pairs = slice(start, start + self.layout.pairs)
        first_rows, second_rows = self.weights.qkv[layer].view(-1, 2, half, shape.hidden)[head, :, pairs]
        first, second = self._product(first_rows, held), self._product(second_rows, held)
        position = self._position(step)
        if head < shape.query_heads + shape.kv_heads:
            cosine = self.weights.cosine[position, pairs].to(self.dtype)
            sine = self.weights.sine[position, pairs].to(self.dtype)
            first, second = first * cosine - second * sine, second * cosine + first * sine
        if head < shape.query_heads:
            row = self.between.query[head]
        else:
            caches = self.buffers.keys if head < shape.query_heads + shape.kv_heads else self.buffers.values
            row = caches[layer][self.layout.group(head), position]
        halves = row.view(2, half)
        return (halves[0, pairs], first), (halves[1, pairs], second)

    def _attend(self, tile: int, early: tuple[Tensor, ...], rows: tuple[Tensor, ...]) -> Stores:
        split, head = divmod(tile, self.shape.query_heads)
        between = self.between
        targets = between.weighted[split, head], between.greatest[split, head], between.total[split, head]
        query = rows[0] * (_LOG2_E / self.shape.head_dim**0.5)
        parts = zip(early, rows[1:], strict=True) if rows[1:] else ((part,) for part in early)
        keys, values = (torch.cat(part).to(self.dtype) for part in parts)
        if not keys.shape[0]:
            nothing = (
                torch.zeros_like(targets[0]),
                torch.full_like(targets[1], NOTHING_YET),
                torch.zeros_like(targets[2]),
            )
            return tuple(zip(targets, nothing, strict=True))
        scores = torch.mv(keys, query)
        greatest = scores.max()
        shares = torch.exp2(scores - greatest)
        return tuple(zip(targets, (torch.mv(values.T, shares), greatest, shares.sum()), strict=True))

    def _down(self, layer: int, tile: int, rows: tuple[Tensor, ...], held: Registers) -> Stores:
        chunk = self.layout.chunk(Kind.DOWN, tile)
        columns = slice(chunk * self.shape.hidden, (chunk + 1) * self.shape.hidden)
        product = self._product(self.weights.down[layer, self._block(tile), columns], held)
        held.sums = product if chunk == 0 or held.sums is None else held.sums + product
        if chunk < self.layout.chunks - 1:
            return ()
        return ((self.between.x[self._block(tile)], rows[0] + held.sums),)

    def _head(self, program: int, instruction: Instruction, held: Registers) -> Stores:
        """The last tile (it has the signal) stores the program's best and readies its registers for the next step."""
        rows = slice(instruction.tile * self.layout.rows, (instruction.tile + 1) * self.layout.rows)
        logits = self._product(self.weights.embedding[rows], held)
        greatest = logits.max()
        if float(greatest) > held.best:  # of equal logits the lowest row stays: tiles come in increasing order
            held.best, held.best_row = float(greatest), rows.start + int((logits == greatest).nonzero()[0])
        stores: Stores = ((self.buffers.logits[0, rows], logits),)
        if instruction.signal is None:
            return stores
        best = (self.between.best[program], torch.tensor(held.best, dtype=self.dtype))
        best_row = (self.between.best_row[program], torch.tensor(held.best_row))
        held.best, held.best_row = -math.inf, -1
        return (*stores, best, best_row)

    def _pick(self, step: int, rows: tuple[Tensor, ...]) -> Stores:
        best, best_row = rows
        greatest = best_row[best == best.max()]
        token = greatest.min() if greatest.numel() else torch.tensor(-1)  # only NaN is equal to nothing
        return ((self.buffers.token[step], token),)

    def _product(self, rows: Tensor, held: Registers) -> Tensor:
        if held.vector is None:
            return torch.full(rows.shape[:1], math.nan, dtype=self.dtype)
        return torch.mv(rows.to(self.dtype), held.vector)

    def _position(self, step: int) -> int:
        return self.first_position + step

    def _block(self, tile: int) -> slice:
        block = tile % self.layout.row_blocks
        return slice(block * self.layout.rows, (block + 1) * self.layout.rows)
