"""The ground truth of a decode step, in plain torch and high precision, one operation a line.

Llama as published (Touvron et al. 2023; Grattafiori et al. 2024): pre-norm, grouped queries, rotary
positions on halves, SwiGLU, tied head. Imports no implementation; nothing here is ever timed.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from kernels.llama.weights import Weights
from kernels.workloads import Decode

_HEAD_ROWS = 16384  # rows of the head converted at a time: bounds the temporary to 134 MB at hidden 2048


def decode(
    workload: Decode, weights: Weights, inputs: Mapping[str, Tensor], *, dtype: torch.dtype
) -> dict[str, Tensor]:
    """One step of each sequence; how many there are is told by the inputs, which are those of `inputs.fresh`.

    inputs: `token` int64 [batch]; `position` int64 [1]; `keys`, `values` [layers, batch kv_heads, position, head_dim].
    Returns `logits` [batch, vocab] and, for each layer i, `keys.i` and `values.i` [batch kv_heads, 1, head_dim], all
    in `dtype`; `token` int64 [batch], the lowest index of the greatest logit.
    """
    shape = workload.shape
    position = int(inputs["position"])
    batch = inputs["token"].numel()
    queries_per_kv = shape.query_heads // shape.kv_heads
    cosine, sine = weights.cosine[position].to(dtype), weights.sine[position].to(dtype)
    outputs: dict[str, Tensor] = {}

    def normalized(x: Tensor, index: int) -> Tensor:
        scale = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + shape.norm_epsilon)
        return x * scale * weights.norms[index].to(dtype)

    def rotated(x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)

    x = weights.embedding[inputs["token"]].to(dtype)
    for layer in range(shape.layers):
        qkv = normalized(x, 2 * layer) @ weights.qkv[layer].to(dtype).T
        query, key, value = qkv.split([shape.query_rows, shape.kv_rows, shape.kv_rows], dim=-1)
        query = rotated(query.reshape(batch * shape.kv_heads, queries_per_kv, shape.head_dim))
        key = rotated(key.reshape(batch * shape.kv_heads, 1, shape.head_dim))
        value = value.reshape(batch * shape.kv_heads, 1, shape.head_dim)
        outputs[f"keys.{layer}"], outputs[f"values.{layer}"] = key, value
        keys = torch.cat([inputs["keys"][layer].to(dtype), key], dim=1)
        values = torch.cat([inputs["values"][layer].to(dtype), value], dim=1)
        scores = torch.einsum("ngd,nsd->ngs", query, keys) * shape.head_dim**-0.5
        attended = torch.einsum("ngs,nsd->ngd", scores.softmax(dim=-1), values).reshape(batch, -1)
        x = x + attended @ weights.out[layer].to(dtype).T
        gate, up = (normalized(x, 2 * layer + 1) @ weights.gate_up[layer].to(dtype).T).chunk(2, dim=-1)
        x = x + (torch.nn.functional.silu(gate) * up) @ weights.down[layer].to(dtype).T
    x = normalized(x, 2 * shape.layers)
    logits = torch.cat([x @ rows.to(dtype).T for rows in weights.embedding.split(_HEAD_ROWS)], dim=-1)
    return {"logits": logits, "token": logits.argmax(dim=-1), **outputs}


def worst_error(outputs: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """Largest norm-relative error |out - ref| / |ref| of the floating-point outputs; infinite for a wrong token.

    The criterion that perfci's gate applies too. NaN in an output makes the result NaN, which no tolerance admits.
    """
    worst = 0.0
    for name, right in expected.items():
        found = outputs[name]
        if not right.is_floating_point():
            error = 0.0 if torch.equal(found, right) else float("inf")
        else:
            error = float((found.double() - right.double()).norm() / right.double().norm())
        if error != error:
            return error
        worst = max(worst, error)
    return worst
