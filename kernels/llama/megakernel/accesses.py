"""Which parts of which buffers an instruction reads and writes: what a validator has to find in order.

Standard library only. A buffer is a name and a number (of a layer and step where there is one each, else 0), a part of
it is a tile, and its contents have a version: which layer of which step they belong to.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.llama.megakernel.instructions import Instruction, Kind, Tape
from kernels.llama.megakernel.layout import Layout

Buffer = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Access:
    """Parts first .. last - 1 of a buffer, expected in (or brought to) this version.

    early: may be read before the instruction's wait.
    """

    buffer: Buffer
    first: int
    last: int
    version: int
    early: bool = False


class Accesses:
    """Of the instructions of one tape. One buffer each serves all layers and steps; a cache row is new in each step."""

    def __init__(self, layout: Layout, tape: Tape) -> None:
        self.layout, self.programs = layout, len(tape.programs)
        self.heading = tuple(
            program
            for program, instructions in enumerate(tape.programs)
            if any(instruction.kind is Kind.HEAD for instruction in instructions)
        )
        shape = layout.workload.shape
        self._layers = shape.layers
        self._queries = shape.query_heads * layout.head_tiles

    def parts(self, buffer: Buffer) -> int:
        layout, name = self.layout, buffer[0]
        if name in ("x", "mid"):
            return layout.row_blocks
        return {
            "token": 1,
            "query": self._queries,
            "rows": layout.tiles(Kind.QKV) - self._queries,
            "attended": layout.tiles(Kind.ATTEND),
            "hidden": layout.tiles(Kind.GATE_UP),
            "logits": layout.tiles(Kind.HEAD),
            "best": self.programs,
        }[name]

    def reads(self, instruction: Instruction, epoch: int) -> tuple[Access, ...]:
        kind, layer, tile = instruction.kind, instruction.layer, instruction.tile
        layout, now = self.layout, self.version(epoch, layer)
        vector = (self._vector(instruction, epoch),) if instruction.fresh else ()
        if kind is Kind.ATTEND:
            return self._attended(layer, tile, epoch)
        if kind is Kind.PICK:
            return tuple(Access(("best", 0), program, program + 1, now) for program in self.heading)
        if kind is Kind.OUT:
            return (*vector, self._x(layer, tile, tile + 1, epoch))
        if kind is Kind.DOWN and layout.chunk(kind, tile) == layout.chunks - 1:
            block = tile % layout.row_blocks
            return (*vector, Access(("mid", 0), block, block + 1, now))
        return vector

    def writes(self, program: int, instruction: Instruction, epoch: int) -> tuple[Access, ...]:
        kind, layer, tile = instruction.kind, instruction.layer, instruction.tile
        now = self.version(epoch, layer)
        if kind is Kind.QKV:
            if tile < self._queries:
                return (Access(("query", 0), tile, tile + 1, now),)
            row = tile - self._queries
            return (Access(self._rows(layer, epoch), row, row + 1, now),)
        if kind is Kind.DOWN:
            if self.layout.chunk(kind, tile) < self.layout.chunks - 1:
                return ()
            block = tile % self.layout.row_blocks
            return (Access(("x", 0), block, block + 1, self.version(epoch, layer + 1)),)
        if kind is Kind.HEAD:
            logits = Access(("logits", 0), tile, tile + 1, now)
            best = (Access(("best", 0), program, program + 1, now),) if instruction.signal is not None else ()
            return (logits, *best)
        if kind is Kind.PICK:
            return (Access(("token", 0), 0, 1, self.version(epoch, 0)),)
        name = {Kind.ATTEND: "attended", Kind.OUT: "mid", Kind.GATE_UP: "hidden"}[kind]
        return (Access((name, 0), tile, tile + 1, now),)

    def version(self, epoch: int, layer: int) -> int:
        return epoch * (self._layers + 1) + layer

    def _vector(self, instruction: Instruction, epoch: int) -> Access:
        kind, layer = instruction.kind, instruction.layer
        now, layout = self.version(epoch, layer), self.layout
        if kind in (Kind.QKV, Kind.HEAD):
            return self._x(layer, 0, layout.row_blocks, epoch)
        if kind is Kind.DOWN:
            width = layout.tiles(Kind.GATE_UP) // layout.chunks
            chunk = layout.chunk(kind, instruction.tile)
            return Access(("hidden", 0), chunk * width, (chunk + 1) * width, now)
        name = "attended" if kind is Kind.OUT else "mid"
        return Access((name, 0), 0, self.parts((name, 0)), now)

    def _x(self, layer: int, first: int, last: int, epoch: int) -> Access:
        """The input of the first layer is the embedding of the token that the step before has picked."""
        if layer == 0:
            return Access(("token", 0), 0, 1, self.version(epoch - 1, 0))
        return Access(("x", 0), first, last, self.version(epoch, layer))

    def _rows(self, layer: int, epoch: int) -> Buffer:
        """The key and value rows of this step's position: keys, then values."""
        return "rows", self.version(epoch, layer)

    def _attended(self, layer: int, tile: int, epoch: int) -> tuple[Access, ...]:
        """The query; this step's row, whatever split it falls into; and the row of the step before, maybe early."""
        shape, each = self.layout.workload.shape, self.layout.head_tiles
        head = tile % shape.query_heads
        group = self.layout.group(head)
        query = Access(("query", 0), head * each, (head + 1) * each, self.version(epoch, layer))
        firsts = group * each, (shape.kv_heads + group) * each

        def rows(step: int, *, early: bool) -> tuple[Access, ...]:
            buffer, version = self._rows(layer, step), self.version(step, layer)
            return tuple(Access(buffer, first, first + each, version, early) for first in firsts)

        before = rows(epoch - 1, early=True) if epoch > 1 else ()
        return (query, *rows(epoch, early=False), *before)
