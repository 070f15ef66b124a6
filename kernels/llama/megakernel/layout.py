"""How a decode step is cut into tiles of equal size, which counters order them, and which vector each tile needs.

Standard library only. All matrices are cut into tiles of `rows` rows x hidden columns, so that each is one copy of the
same shape; a down projection's rows are longer and are cut into chunks.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.llama.megakernel.instructions import Kind
from kernels.workloads import Decode

ROWS = (16, 8, 4)

Vector = tuple[str, int, int]
"""An activation vector that a program holds in registers: name, layer, chunk."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Tiles and counters of one workload; a size that does not divide is a ValueError.

    Counters, layer by layer: qkv of each key/value head's group, attended, mid, hidden of each chunk, x of the next
    layer; then best and token. Sequences of a batch are not cut yet: the workload's batch is 1.
    """

    workload: Decode
    rows: int
    splits: int

    def __post_init__(self) -> None:
        shape, name = self.workload.shape, self.workload.name
        if self.workload.batch != 1:
            raise ValueError(f"{name}: batch {self.workload.batch}; the megakernel is written for batch 1")
        if self.rows not in ROWS:
            raise ValueError(f"rows {self.rows} is none of {', '.join(map(str, ROWS))}")
        if self.splits < 1:
            raise ValueError(f"splits {self.splits}: attention needs at least one")
        if shape.query_rows != shape.hidden:
            raise ValueError(f"{name}: {shape.query_rows} query rows, but tiles are {shape.hidden} columns wide")
        for what, size, divisor in (
            ("half a head", shape.head_dim // 2, self.pairs),
            ("hidden", shape.hidden, self.rows),
            ("ffn", shape.ffn, shape.hidden),
            ("vocab", shape.vocab, self.rows),
        ):
            if size % divisor:
                raise ValueError(f"{name}: {what} {size} is not a multiple of {divisor}; choose other rows")

    @property
    def pairs(self) -> int:
        """Rotated pairs of a QKV tile, hidden values of a GATE_UP tile."""
        return self.rows // 2

    @property
    def chunks(self) -> int:
        return self.workload.shape.ffn // self.workload.shape.hidden

    @property
    def row_blocks(self) -> int:
        """Blocks of `rows` rows of the hidden vector."""
        return self.workload.shape.hidden // self.rows

    @property
    def head_tiles(self) -> int:
        """QKV tiles of one head."""
        return self.workload.shape.head_dim // 2 // self.pairs

    @property
    def heads(self) -> int:
        """Query, key and value heads, in this order."""
        return self.workload.shape.query_heads + 2 * self.workload.shape.kv_heads

    def tiles(self, kind: Kind) -> int:
        """Tiles of one stage (one layer's, or the step's for HEAD and PICK)."""
        shape = self.workload.shape
        return {
            Kind.QKV: self.heads * self.head_tiles,
            Kind.ATTEND: self.splits * shape.query_heads,
            Kind.OUT: self.row_blocks,
            Kind.GATE_UP: shape.ffn // self.pairs,
            Kind.DOWN: self.chunks * self.row_blocks,
            Kind.HEAD: shape.vocab // self.rows,
            Kind.PICK: 1,
        }[kind]

    def stages(self) -> tuple[tuple[Kind, int], ...]:
        """(kind, layer) of every stage in the order of every program; HEAD and PICK stand at layer `layers`."""
        layered = (Kind.QKV, Kind.ATTEND, Kind.OUT, Kind.GATE_UP, Kind.DOWN)
        layers = self.workload.shape.layers
        inside = tuple((kind, layer) for layer in range(layers) for kind in layered)
        return (*inside, (Kind.HEAD, layers), (Kind.PICK, layers))

    # ---- what a tile is

    def group(self, head: int) -> int:
        """The key/value head that a query, key or value head (numbered through, in this order) belongs to."""
        shape = self.workload.shape
        if head < shape.query_heads:
            return head // (shape.query_heads // shape.kv_heads)
        return (head - shape.query_heads) % shape.kv_heads

    def chunk(self, kind: Kind, tile: int) -> int:
        """The chunk of hidden values that a GATE_UP tile makes, or that a DOWN tile reads."""
        if kind is Kind.GATE_UP:
            return tile * self.pairs // self.workload.shape.hidden
        return tile // self.row_blocks

    def vector(self, kind: Kind, layer: int, tile: int) -> Vector | None:
        """The activation vector that the tile is multiplied with."""
        name = {Kind.QKV: "x", Kind.OUT: "attended", Kind.GATE_UP: "mid", Kind.DOWN: "hidden", Kind.HEAD: "x"}.get(kind)
        if name is None:
            return None
        return name, layer, self.chunk(kind, tile) if kind is Kind.DOWN else 0

    # ---- counters

    @property
    def best(self) -> int:
        return self.workload.shape.layers * self._layer_counters

    @property
    def token(self) -> int:
        return self.best + 1

    @property
    def counters(self) -> int:
        return self.token + 1

    def qkv(self, layer: int, group: int) -> int:
        return layer * self._layer_counters + group

    def attended(self, layer: int) -> int:
        return layer * self._layer_counters + self.workload.shape.kv_heads

    def mid(self, layer: int) -> int:
        return self.attended(layer) + 1

    def hidden(self, layer: int, chunk: int) -> int:
        return self.mid(layer) + 1 + chunk

    def x(self, layer: int) -> int:
        """The input of layer 1 .. layers (the last is the head's); that of layer 0 comes with the token."""
        return self.token if layer == 0 else self.hidden(layer - 1, self.chunks)

    def counter_name(self, counter: int) -> str:
        if counter == self.best:
            return "best"
        if counter == self.token:
            return "token"
        layer, rest = divmod(counter, self._layer_counters)
        groups = self.workload.shape.kv_heads
        if rest < groups:
            return f"qkv[{layer}, {rest}]"
        if rest < groups + 2:
            return f"{('attended', 'mid')[rest - groups]}[{layer}]"
        chunk = rest - groups - 2
        return f"hidden[{layer}, {chunk}]" if chunk < self.chunks else f"x[{layer + 1}]"

    def awaited(self, kind: Kind, layer: int, tile: int) -> int:
        """The counter that says that what this tile reads is there."""
        return {
            Kind.QKV: lambda: self.x(layer),
            Kind.ATTEND: lambda: self.qkv(layer, self.group(tile % self.workload.shape.query_heads)),
            Kind.OUT: lambda: self.attended(layer),
            Kind.GATE_UP: lambda: self.mid(layer),
            Kind.DOWN: lambda: self.hidden(layer, self.chunk(kind, tile)),
            Kind.HEAD: lambda: self.x(layer),
            Kind.PICK: lambda: self.best,
        }[kind]()

    def announced(self, kind: Kind, layer: int, tile: int) -> int | None:
        """The counter that says that this tile is there; none for a chunk of a down projection that is not the last."""
        if kind is Kind.DOWN and self.chunk(kind, tile) < self.chunks - 1:
            return None
        return {
            Kind.QKV: lambda: self.qkv(layer, self.group(tile // self.head_tiles)),
            Kind.ATTEND: lambda: self.attended(layer),
            Kind.OUT: lambda: self.mid(layer),
            Kind.GATE_UP: lambda: self.hidden(layer, self.chunk(kind, tile)),
            Kind.DOWN: lambda: self.x(layer + 1),
            Kind.HEAD: lambda: self.best,
            Kind.PICK: lambda: self.token,
        }[kind]()

    @property
    def _layer_counters(self) -> int:
        return self.workload.shape.kv_heads + 2 + self.chunks + 1
