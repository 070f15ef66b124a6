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
    """One step.

    inputs: `token` int64 [1]; `position` int64 [1]; `keys`, `values` [layers, kv_heads, position, head_dim].
    Returns `logits` [vocab] and, for each layer i, `keys.i` and `values.i` [kv_heads, head_dim], all in
    `dtype`; `token` int64 [1], the lowest index of the greatest logit.
    """
    shape = workload.shape
    position = int(inputs["position"])
    queries_per_kv = shape.query_heads // shape.kv_heads
    cosine, sine = weights.cosine[position].to(dtype), weights.sine[position].to(dtype)
    outputs: dict[str, Tensor] = {}

    def normalized(x: Tensor, index: int) -> Tensor:
        scale = torch.rsqrt(x.square().mean() + shape.norm_epsilon)
        return x * scale * weights.norms[index].to(dtype)

    def rotated(x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)

    x = weights.embedding[inputs["token"][0]].to(dtype)
    for layer in range(shape.layers):
        qkv = weights.qkv[layer].to(dtype) @ normalized(x, 2 * layer)
        query, key, value = qkv.split([shape.query_rows, shape.kv_rows, shape.kv_rows])
        query = rotated(query.view(shape.kv_heads, queries_per_kv, shape.head_dim))
        key = rotated(key.view(shape.kv_heads, shape.head_dim))
        value = value.view(shape.kv_heads, shape.head_dim)
        outputs[f"keys.{layer}"], outputs[f"values.{layer}"] = key, value
        keys = torch.cat([inputs["keys"][layer].to(dtype), key[:, None]], dim=1)
        values = torch.cat([inputs["values"][layer].to(dtype), value[:, None]], dim=1)
        scores = torch.einsum("ngd,nsd->ngs", query, keys) * shape.head_dim**-0.5
        attended = torch.einsum("ngs,nsd->ngd", scores.softmax(dim=-1), values).reshape(-1)
        x = x + weights.out[layer].to(dtype) @ attended
        gate, up = (weights.gate_up[layer].to(dtype) @ normalized(x, 2 * layer + 1)).chunk(2)
        x = x + weights.down[layer].to(dtype) @ (torch.nn.functional.silu(gate) * up)
    x = normalized(x, 2 * shape.layers)
    logits = torch.cat([rows.to(dtype) @ x for rows in weights.embedding.split(_HEAD_ROWS)])
    return {"logits": logits, "token": logits.argmax().reshape(1), **outputs}


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
