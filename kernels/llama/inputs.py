"""Fresh inputs of a decode step, and the buffers that hold them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels import reference
from kernels.llama.weights import DTYPES, Weights
from kernels.workloads import Decode

_DECISIVE_GAP = 0.2
_DRAWS = 64

GUARD_BYTES = 4096
"""Before and after each buffer; a multiple of the 256 bytes that a tensor's address has to be a multiple of."""

# Bits that no honest kernel writes; as floating-point numbers not numbers, so that who reads them shows it too.
_GUARD_BITS: dict[torch.dtype, tuple[torch.dtype, int]] = {
    torch.float64: (torch.int64, 0x7FFA5A5A5A5A5A5A),
    torch.float32: (torch.int32, 0x7FCA5A5A),
    torch.bfloat16: (torch.int16, 0x7FEA),
    torch.int64: (torch.int64, 0x5A5A5A5A5A5A5A5A),
    torch.int32: (torch.int32, 0x5A5A5A5A),
}


def fresh(workload: Decode, weights: Weights, seed: int, *, position: int | None = None) -> dict[str, Tensor]:
    """Random tokens and random earlier keys and values, different for each seed.

    Returns `token` int64 [batch], `position` int64 [1] (the workload's first unless given), `keys` and `values`
    [layers, batch kv_heads, position, head_dim] in the workload's number format; row b kv_heads + h is head h of
    sequence b.

    Logits have a standard deviation of about 1, and the best two of a hundred thousand often lie closer
    than bf16 can tell apart: a right implementation would then pick the other one. For a single step, tokens
    whose best two are nearer than 0.2 (four times what bf16 activations were seen to move a difference by) are
    thrown away, a little more than half, each sequence's on its own. Nothing is thrown away for several steps, which
    all would have to be decisive: their reference is guided (`reference.generate_guided`).
    """
    shape = workload.shape
    position = workload.first_position if position is None else position
    if not 0 < position <= workload.first_position:
        raise ValueError(f"position {position} is outside 1 .. {workload.first_position} of {workload.name}")
    device = weights.embedding.device
    generator = torch.Generator(device=device).manual_seed(seed)
    size = (shape.layers, workload.kv_heads, position, shape.head_dim)

    def tokens(count: int) -> Tensor:
        return torch.randint(shape.vocab, (count,), generator=generator, device=device)

    def rows() -> Tensor:
        return torch.empty(size, dtype=DTYPES[workload.number], device=device).normal_(generator=generator)

    inputs = {
        "token": tokens(workload.batch),
        "position": torch.tensor([position], device=device),
        "keys": rows(),
        "values": rows(),
    }
    if workload.steps > 1:
        return inputs
    open_ones = torch.arange(workload.batch, device=device)  # sequences without a clear best token so far
    for _ in range(_DRAWS):
        open_ones = open_ones[~_decisive(workload, weights, _of(inputs, open_ones, shape.kv_heads))]
        if not open_ones.numel():
            return inputs
        inputs["token"][open_ones] = tokens(open_ones.numel())
    raise RuntimeError(f"{workload.name}: no draw of {_DRAWS} with seed {seed} has a clear best token")


def _of(inputs: Mapping[str, Tensor], sequences: Tensor, kv_heads: int) -> dict[str, Tensor]:
    """The inputs of some of the sequences."""
    if sequences.numel() == inputs["token"].numel():
        return dict(inputs)
    heads = (sequences[:, None] * kv_heads + torch.arange(kv_heads, device=sequences.device)).flatten()
    return {
        "token": inputs["token"][sequences],
        "position": inputs["position"],
        "keys": inputs["keys"][:, heads],
        "values": inputs["values"][:, heads],
    }


def _decisive(workload: Decode, weights: Weights, inputs: Mapping[str, Tensor]) -> Tensor:
    """For each sequence, whether its best token is clear."""
    best = reference.decode(workload, weights, inputs, dtype=torch.float32)["logits"].topk(2).values
    return best[:, 0] - best[:, 1] > _DECISIVE_GAP


@dataclass(frozen=True, slots=True)
class Buffers:
    """What every implementation's step has; addresses never change, since a CUDA graph holds them.

    token_in int64 [batch]; position int64 [1], of the first step; token int64 [steps batch], step-major;
    logits [batch, vocab], of the last step; key_cache, value_cache [layers, batch kv_heads, context, head_dim], and
    as keys, values the layers of them, whose rows at the steps' positions are written.
    guards: what lies before and after each of these in memory, and is nobody's to write.
    """

    token_in: Tensor
    position: Tensor
    token: Tensor
    logits: Tensor
    key_cache: Tensor
    value_cache: Tensor
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    guards: tuple[Tensor, ...]

    @property
    def steps(self) -> int:
        return self.token.numel() // self.token_in.numel()

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        position = inputs["keys"].shape[2]
        self.token_in.copy_(inputs["token"])
        self.position.copy_(inputs["position"])
        self.key_cache[:, :, :position].copy_(inputs["keys"])
        self.value_cache[:, :, :position].copy_(inputs["values"])

    def outputs(self, position: int) -> dict[str, Tensor]:
        """`position`: of the first step."""
        written = slice(position, position + self.steps)
        rows = {f"keys.{layer}": keys[:, written] for layer, keys in enumerate(self.keys)}
        rows |= {f"values.{layer}": values[:, written] for layer, values in enumerate(self.values)}
        return {"logits": self.logits, "token": self.token, **rows}

    def constants(self, position: int) -> tuple[Tensor, ...]:
        """What steps from this position on must leave as it is: the inputs, other keys and values, and the guards."""
        earlier = tuple(cache[:, :position] for cache in (*self.keys, *self.values))
        later = tuple(cache[:, position + self.steps :] for cache in (*self.keys, *self.values))
        # Several steps may move token and position in place, as long as a second call starts at the first again.
        loaded = (self.token_in, self.position) if self.steps == 1 else ()
        return (*loaded, *earlier, *(rows for rows in later if rows.numel()), *self.guards)


def buffers(workload: Decode, *, device: torch.device | str, logits: torch.dtype) -> Buffers:
    """New buffers. Caches start as NaN: a step that reads past its position, or before load, shows it."""
    shape = workload.shape
    cache = (shape.layers, workload.kv_heads, workload.context, shape.head_dim)
    guards: list[Tensor] = []

    def guarded_buffer(*size: int, dtype: torch.dtype) -> Tensor:
        buffer, bands = guarded(size, dtype=dtype, device=device)
        guards.extend(bands)
        return buffer

    key_cache = guarded_buffer(*cache, dtype=DTYPES[workload.number])
    value_cache = guarded_buffer(*cache, dtype=DTYPES[workload.number])
    return Buffers(
        token_in=guarded_buffer(workload.batch, dtype=torch.int64),
        position=guarded_buffer(1, dtype=torch.int64),
        token=guarded_buffer(workload.steps * workload.batch, dtype=torch.int64),
        logits=guarded_buffer(workload.batch, shape.vocab, dtype=logits),
        key_cache=key_cache,
        value_cache=value_cache,
        keys=tuple(key_cache),
        values=tuple(value_cache),
        guards=tuple(guards),
    )


def guarded(
    size: tuple[int, ...], *, dtype: torch.dtype, device: torch.device | str
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """A tensor (NaN, or zeros if it holds integers) and the bands before and after it, in one allocation.

    Its address is the allocation's plus GUARD_BYTES.
    """
    numbers, bits = _GUARD_BITS[dtype]
    band = GUARD_BYTES // dtype.itemsize
    count = math.prod(size)
    whole = torch.full((count + 2 * band,), bits, dtype=numbers, device=device).view(dtype)
    inner = whole[band : band + count].view(size)
    inner.fill_(math.nan if dtype.is_floating_point else 0)
    return inner, (whole[:band], whole[band + count :])
