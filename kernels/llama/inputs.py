"""Fresh inputs of a decode step, and the buffers that hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels import reference
from kernels.llama.weights import DTYPES, Weights
from kernels.workloads import Decode

_DECISIVE_GAP = 0.2
_DRAWS = 64


def fresh(workload: Decode, weights: Weights, seed: int, *, position: int | None = None) -> dict[str, Tensor]:
    """A random token and random earlier keys and values, different for each seed.

    Returns `token` int64 [1], `position` int64 [1] (the workload's unless given), `keys` and `values`
    [layers, kv_heads, position, head_dim] in the workload's number format.

    Logits have a standard deviation of about 1, and the best two of a hundred thousand often lie closer
    than bf16 can tell apart: a right implementation would then pick the other one. Draws whose best two
    are nearer than 0.2 (four times what bf16 activations were seen to move a difference by) are thrown
    away: a little more than half.
    """
    shape = workload.shape
    position = workload.position if position is None else position
    if not 0 < position < workload.context:
        raise ValueError(f"position {position} is outside 1 .. {workload.context - 1} of {workload.name}")
    device = weights.embedding.device
    generator = torch.Generator(device=device).manual_seed(seed)
    size = (shape.layers, shape.kv_heads, position, shape.head_dim)
    for _ in range(_DRAWS):
        inputs = {
            "token": torch.randint(shape.vocab, (1,), generator=generator, device=device),
            "position": torch.tensor([position], device=device),
            "keys": torch.randn(size, generator=generator, device=device).to(DTYPES[workload.number]),
            "values": torch.randn(size, generator=generator, device=device).to(DTYPES[workload.number]),
        }
        best = reference.decode(workload, weights, inputs, dtype=torch.float32)["logits"].topk(2).values
        if float(best[0] - best[1]) > _DECISIVE_GAP:
            return inputs
    raise RuntimeError(f"{workload.name}: no draw of {_DRAWS} with seed {seed} has a clear best token")


@dataclass(frozen=True, slots=True)
class Buffers:
    """What every implementation's step has; addresses never change, since a CUDA graph holds them.

    token_in, position, token int64 [1]; logits [vocab];
    keys, values: for each layer [kv_heads, context, head_dim], the row at `position` written by the step.
    """

    token_in: Tensor
    position: Tensor
    token: Tensor
    logits: Tensor
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        position = inputs["keys"].shape[2]
        self.token_in.copy_(inputs["token"])
        self.position.copy_(inputs["position"])
        for layer, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            keys[:, :position].copy_(inputs["keys"][layer])
            values[:, :position].copy_(inputs["values"][layer])

    def outputs(self, position: int) -> dict[str, Tensor]:
        rows = {f"keys.{layer}": keys[:, position] for layer, keys in enumerate(self.keys)}
        rows |= {f"values.{layer}": values[:, position] for layer, values in enumerate(self.values)}
        return {"logits": self.logits, "token": self.token, **rows}

    def earlier(self, position: int) -> tuple[Tensor, ...]:
        """Keys and values that the step reads and must leave as they are."""
        return tuple(cache[:, :position] for cache in (*self.keys, *self.values))


def buffers(workload: Decode, *, device: torch.device | str, logits: torch.dtype) -> Buffers:
    """New buffers. Caches start as NaN: a step that reads past its position, or before load, shows it."""
    shape = workload.shape
    dtype = DTYPES[workload.number]

    def cache() -> tuple[Tensor, ...]:
        size = (shape.kv_heads, workload.context, shape.head_dim)
        return tuple(torch.full(size, float("nan"), dtype=dtype, device=device) for _ in range(shape.layers))

    def integer() -> Tensor:
        return torch.zeros(1, dtype=torch.int64, device=device)

    return Buffers(
        token_in=integer(),
        position=integer(),
        token=integer(),
        logits=torch.full((shape.vocab,), float("nan"), dtype=logits, device=device),
        keys=cache(),
        values=cache(),
    )
