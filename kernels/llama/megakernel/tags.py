"""Which tagged words the kernel's instructions read and post. Standard library only.

The kernel does not wait for the tape's counters but for the words that it computes with, each with the tag of the write
that it needs (`words`). That is less: attention awaits one query of its group. So what `validator` proves of
the counters is proved again for the words, by `tag_order`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.llama.megakernel.instructions import Instruction, Kind
from kernels.llama.megakernel.layout import Layout

_NUMBERS = 1 << 31


def write_number(epoch: int, layer: int, layers: int) -> int:
    """Each buffer is written once a layer: its writes are numbered through, from step to step."""
    return epoch * layers + layer


def tag(number: int) -> int:
    """1, 2 or 3; never 0, which is what poisoned and fresh words hold.

    Numbers are taken modulo 2^31, as the kernel has them. Since 2^31 - 1 gives 2 and the next one 1, any two
    consecutive writes differ even there; a write and the one two before it are equal there, once in 2^31.
    """
    return number % _NUMBERS % 3 + 1


@dataclass(frozen=True, slots=True)
class Words:
    """Parts first .. last - 1 of a buffer, as write `number` leaves them."""

    buffer: str
    first: int
    last: int
    number: int


class TaggedWords:
    """Of one cut of a step. A part of `rows` is a QKV tile, whether of a query, a key or a value."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.layers = layout.workload.shape.layers

    def parts(self) -> dict[str, int]:
        """Parts of each buffer."""
        kinds = {"rows": Kind.QKV, "attended": Kind.ATTEND, "mid": Kind.OUT, "hidden": Kind.GATE_UP, "x": Kind.OUT}
        return {name: self.layout.tiles(kind) for name, kind in kinds.items()}

    def awaited(self, instruction: Instruction, epoch: int) -> tuple[Words, ...]:
        """What is polled before anything is computed."""
        kind, layer, tile = instruction.kind, instruction.layer, instruction.tile
        now = write_number(epoch, layer, self.layers)
        if kind is Kind.ATTEND:
            return self._attended(tile, now)
        if not instruction.fresh or (kind is Kind.QKV and layer == 0):
            return ()
        if kind in (Kind.QKV, Kind.HEAD):
            return (Words("x", 0, self.layout.row_blocks, now - 1),)
        if kind is Kind.DOWN:
            return (self._chunk(self.layout.chunk(kind, tile), now),)
        name = "attended" if kind is Kind.OUT else "mid"
        return (Words(name, 0, self.parts()[name], now),)

    def glanced(self, instruction: Instruction, epoch: int) -> Words | None:
        """What is looked at behind the awaited words, whatever its tags: the next chunk of hidden values."""
        kind, layer = instruction.kind, instruction.layer
        if kind is not Kind.DOWN or self.layout.chunk(kind, instruction.tile) == self.layout.chunks - 1:
            return None
        return self._chunk(self.layout.chunk(kind, instruction.tile) + 1, write_number(epoch, layer, self.layers))

    def posted(self, instruction: Instruction, epoch: int) -> Words | None:
        kind, tile = instruction.kind, instruction.tile
        if kind is Kind.DOWN:
            if self.layout.chunk(kind, tile) < self.layout.chunks - 1:
                return None
            tile %= self.layout.row_blocks
        names = {Kind.QKV: "rows", Kind.ATTEND: "attended", Kind.OUT: "mid", Kind.GATE_UP: "hidden", Kind.DOWN: "x"}
        if kind not in names:
            return None
        return Words(names[kind], tile, tile + 1, write_number(epoch, instruction.layer, self.layers))

    def _attended(self, tile: int, number: int) -> tuple[Words, ...]:
        """Its head's query, and the key and value that its group shares; not the group's other queries."""
        shape, each = self.layout.workload.shape, self.layout.head_tiles
        head = tile % shape.query_heads
        key = shape.query_heads + self.layout.group(head)
        return tuple(Words("rows", row * each, (row + 1) * each, number) for row in (head, key, key + shape.kv_heads))

    def _chunk(self, chunk: int, number: int) -> Words:
        width = self.layout.tiles(Kind.GATE_UP) // self.layout.chunks
        return Words("hidden", chunk * width, (chunk + 1) * width, number)
