"""The workloads of this suite: an operation at concrete sizes, and what one step of it must move and compute.

Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Number = Literal["bf16", "fp32"]
NUMBER_BYTES: dict[Number, int] = {"bf16": 2, "fp32": 4}
_FP32_BYTES = 4
_TOKEN_BYTES = 8


class Sized(Protocol):
    """What every workload tells, whatever its operation: a name, and what one launch at least moves and computes."""

    @property
    def name(self) -> str: ...
    @property
    def number(self) -> Number: ...
    @property
    def tokens(self) -> int: ...
    @property
    def bytes_moved(self) -> int: ...
    @property
    def flops(self) -> int: ...
    @property
    def working_set_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Llama 3.1's stretching of the slow rotary frequencies to contexts longer than it was trained on.

    Wavelengths below `original_context / high_frequency_factor` stay, those above
    `original_context / low_frequency_factor` grow by `factor`, those between are interpolated.
    """

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_context: int


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """Sizes of a Llama decoder whose head shares the embedding matrix (`tied`)."""

    layers: int
    hidden: int
    query_heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    rope_theta: float = 500000.0
    rope_scaling: RopeScaling | None = None
    norm_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        if self.query_heads % self.kv_heads or self.head_dim % 2:
            raise ValueError(f"{self.query_heads} query heads over {self.kv_heads} of width {self.head_dim}")

    @property
    def query_rows(self) -> int:
        return self.query_heads * self.head_dim

    @property
    def kv_rows(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def qkv_rows(self) -> int:
        return self.query_rows + 2 * self.kv_rows

    @property
    def matrix_elements(self) -> int:
        """Elements of all matrices that a step multiplies with: the layers' and the head's."""
        layer = self.qkv_rows * self.hidden + self.hidden * self.query_rows + 3 * self.ffn * self.hidden
        return self.layers * layer + self.vocab * self.hidden

    @property
    def norm_elements(self) -> int:
        return (2 * self.layers + 1) * self.hidden


@dataclass(frozen=True, slots=True)
class Decode:
    """`steps` decode steps of `batch` sequences: a token in, logits and next tokens out, for each sequence.

    `context` positions are there when all steps are done. The first step runs at `first_position`: so many keys and
    values of each sequence are there before it. A step adds one row to each layer's and attends to all that are
    there then. With more than one step, each feeds the tokens that it picked to the next one. `device` is the kind
    of device that this size is for.
    """

    name: str
    shape: LlamaShape
    context: int
    number: Number
    device: Literal["cuda", "cpu", "test"]
    batch: int = 1
    steps: int = 1

    @property
    def first_position(self) -> int:
        return self.context - self.steps

    @property
    def position(self) -> int:
        """Of the last step."""
        return self.context - 1

    @property
    def tokens(self) -> int:
        """Tokens that all steps of all sequences produce."""
        return self.batch * self.steps

    @property
    def kv_heads(self) -> int:
        """Rows of a key or value cache: those of sequence b are b * shape.kv_heads and following."""
        return self.batch * self.shape.kv_heads

    @property
    def attended(self) -> int:
        """Key rows that the steps of one sequence attend to, summed over the steps."""
        return sum(range(self.first_position + 1, self.context + 1))

    @property
    def kv_row_bytes(self) -> int:
        """Keys and values of one position of one sequence, all layers."""
        return 2 * self.shape.layers * self.shape.kv_rows * NUMBER_BYTES[self.number]

    @property
    def bytes_moved(self) -> int:
        """Least traffic of all steps.

        In each step every matrix and norm weight is read once, whatever the batch, and each sequence's embedding row
        once more; each sequence's earlier key and value rows are read and one is written. The last step's logits are
        written in float32 (no other step's need leave the chip, nor do activations); a token is 8 bytes.
        """
        size = NUMBER_BYTES[self.number]
        rows = self.steps * self.batch * self.shape.hidden
        return size * (self.steps * self._weights + rows) + self.batch * self.attended * self.kv_row_bytes + self._ends

    @property
    def working_set_bytes(self) -> int:
        """Distinct bytes that the steps touch; an embedding row is part of the head."""
        return NUMBER_BYTES[self.number] * self._weights + self.batch * self.context * self.kv_row_bytes + self._ends

    @property
    def flops(self) -> int:
        """Two for each matrix element, two for each element of a key or value and query head that attends to it."""
        attention = 4 * self.shape.layers * self.shape.query_rows * self.attended
        return self.batch * (2 * self.steps * self.shape.matrix_elements + attention)

    @property
    def _weights(self) -> int:
        return self.shape.matrix_elements + self.shape.norm_elements

    @property
    def _ends(self) -> int:
        """Bytes of tokens in, tokens out, and logits out."""
        return self.batch * (_FP32_BYTES * self.shape.vocab + (1 + self.steps) * _TOKEN_BYTES)


LLAMA_1B = LlamaShape(
    layers=16,
    hidden=2048,
    query_heads=32,
    kv_heads=8,
    head_dim=64,
    ffn=8192,
    vocab=128256,
    rope_scaling=RopeScaling(factor=32.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_context=8192),
)
"""Llama 3.2 1B."""

LLAMA_MINI = LlamaShape(layers=4, hidden=512, query_heads=8, kv_heads=2, head_dim=64, ffn=2048, vocab=8192)
"""61 MB of layers and 17 MB of head in float32: a few milliseconds a step on two cores."""

LLAMA_TINY = LlamaShape(layers=2, hidden=128, query_heads=4, kv_heads=2, head_dim=32, ffn=256, vocab=256)
"""For slow oracles and the interpreter."""


def decode_workload(
    model: str, shape: LlamaShape, *, context: int, number: Number, device: str, batch: int = 1, steps: int = 1
) -> Decode:
    """The one place that builds a workload's name from its sizes."""
    if device not in ("cuda", "cpu", "test"):
        raise ValueError(f"device {device!r} is none of cuda, cpu, test")
    if batch < 1 or steps < 1:
        raise ValueError(f"batch {batch}, steps {steps}: a decode workload needs one or more of both")
    if context <= steps:
        raise ValueError(f"context {context} after {steps} steps: a decode step needs at least one earlier position")
    size = f"ctx{context}" if steps == 1 else f"gen{context - steps}+{steps}"
    name = f"decode/{model}/b{batch}-{size}-{number}"
    return Decode(name, shape, context, number, device, batch, steps)  # type: ignore[arg-type]


WORKLOADS = (
    decode_workload("llama-1b", LLAMA_1B, context=512, number="bf16", device="cuda"),
    decode_workload("llama-1b", LLAMA_1B, context=159, number="bf16", device="cuda", steps=127),
    decode_workload("llama-1b", LLAMA_1B, context=4096, number="bf16", device="cuda"),
    decode_workload("llama-1b", LLAMA_1B, context=512, number="bf16", device="cuda", batch=8),
    decode_workload("llama-1b", LLAMA_1B, context=512, number="bf16", device="cuda", batch=64),
    decode_workload("llama-mini", LLAMA_MINI, context=128, number="fp32", device="cpu"),
    decode_workload("llama-tiny", LLAMA_TINY, context=21, number="fp32", device="test"),
    decode_workload("llama-tiny", LLAMA_TINY, context=11, number="fp32", device="test", steps=6),
    decode_workload("llama-tiny", LLAMA_TINY, context=21, number="fp32", device="test", batch=4),
)

GROUPS: dict[str, tuple[str, ...]] = {
    "nightly": (
        "decode/llama-1b/b1-ctx512-bf16",
        "decode/llama-1b/b1-gen32+127-bf16",
        "decode/llama-mini/b1-ctx128-fp32",
    ),
    "ctx512": ("decode/llama-1b/b1-ctx512-bf16",),
    "generation": ("decode/llama-1b/b1-gen32+127-bf16",),
    "ctx4096": ("decode/llama-1b/b1-ctx4096-bf16",),
    "batch": ("decode/llama-1b/b8-ctx512-bf16", "decode/llama-1b/b64-ctx512-bf16"),
    "all": tuple(workload.name for workload in WORKLOADS),
}
"""What is measured together. `nightly` where nobody asks for more: a night has to stay short."""


def named(name: str) -> Decode:
    for workload in WORKLOADS:
        if workload.name == name:
            return workload
    raise KeyError(f"no workload {name!r}; there are {', '.join(w.name for w in WORKLOADS)}")


def for_device(device: str) -> tuple[Decode, ...]:
    """The workloads whose size gives a steady time on this kind of device (`cuda` or `cpu`)."""
    return tuple(workload for workload in WORKLOADS if workload.device == device)


def chosen(group: str, device: str) -> tuple[Decode, ...]:
    """Those workloads of a group (or the one of that name) that suit a device (`cuda` or `cpu`); at least one."""
    if group not in GROUPS and all(workload.name != group for workload in WORKLOADS):
        raise KeyError(f"no group or workload {group!r}; there are the groups {', '.join(GROUPS)}")
    members = GROUPS.get(group, (group,))
    found = tuple(workload for workload in for_device(device) if workload.name in members)
    if not found:
        fitting = [name for name, members in GROUPS.items() if any(w.name in members for w in for_device(device))]
        raise ValueError(f"nothing in {group!r} is for the device {device}; try the groups {', '.join(fitting)}")
    return found
