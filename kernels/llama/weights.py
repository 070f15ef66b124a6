"""A Llama's weights: random, but of the scale that a trained one has, and shared by all implementations."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.workloads import Decode, LlamaShape, Number

DTYPES: dict[Number, torch.dtype] = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True, slots=True)
class Weights:
    """Layers are stacked; rows are outputs, so that a row is contiguous. All in the workload's number format.

    embedding [vocab, hidden]     also the head
    qkv       [layers, query_rows + 2 kv_rows, hidden]     queries, then keys, then values
    out       [layers, hidden, query_rows]
    gate_up   [layers, 2 ffn, hidden]     gates, then ups
    down      [layers, hidden, ffn]
    norms     [2 layers + 1, hidden]     before attention, before the feed-forward, …, before the head
    cosine, sine [context, head_dim / 2] float32     of position times frequency
    """

    embedding: Tensor
    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    norms: Tensor
    cosine: Tensor
    sine: Tensor

    def tensors(self) -> tuple[Tensor, ...]:
        return (
            self.embedding,
            self.qkv,
            self.out,
            self.gate_up,
            self.down,
            self.norms,
            self.cosine,
            self.sine,
        )


def random(workload: Decode, *, device: str, seed: int) -> Weights:
    """Weights with variance 1 / fan-in, so that every projection keeps unit variance and logits have about 1.

    Zeros or constants would draw less power and could run faster than real contents do.
    """
    shape = workload.shape
    dtype = DTYPES[workload.number]
    generator = torch.Generator(device=device).manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.empty(size, dtype=dtype, device=device).normal_(0.0, size[-1] ** -0.5, generator=generator)

    norms = torch.randn(2 * shape.layers + 1, shape.hidden, generator=generator, device=device)
    cosine, sine = rotation(shape, workload.context)
    return Weights(
        embedding=normal(shape.vocab, shape.hidden),
        qkv=normal(shape.layers, shape.qkv_rows, shape.hidden),
        out=normal(shape.layers, shape.hidden, shape.query_rows),
        gate_up=normal(shape.layers, 2 * shape.ffn, shape.hidden),
        down=normal(shape.layers, shape.hidden, shape.ffn),
        norms=(1.0 + 0.1 * norms).to(dtype),
        cosine=cosine.to(device),
        sine=sine.to(device),
    )


def for_context(weights: Weights, workload: Decode) -> Weights:
    """The same matrices, in the same memory, with rotary angles for another workload of their shape."""
    cosine, sine = rotation(workload.shape, workload.context)
    device = weights.embedding.device
    return dataclasses.replace(weights, cosine=cosine.to(device), sine=sine.to(device))


def rotation(shape: LlamaShape, context: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of position x frequency, float32 [context, head_dim / 2], computed in float64."""
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    frequencies = shape.rope_theta**-exponents
    if shape.rope_scaling is not None:
        frequencies = _stretched(frequencies, shape)
    angles = torch.arange(context, dtype=torch.float64)[:, None] * frequencies[None, :]
    return angles.cos().float(), angles.sin().float()


def _stretched(frequencies: Tensor, shape: LlamaShape) -> Tensor:
    """Llama 3.1's rope scaling (Grattafiori et al. 2024; the model's published configuration)."""
    scaling = shape.rope_scaling
    assert scaling is not None
    turns = scaling.original_context * frequencies / (2 * math.pi)  # full turns within the original context
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return frequencies * (kept + (1.0 - kept) / scaling.factor)
