"""The ground truth of a decode step, in plain torch and high precision, one operation a line.

Llama as published (Touvron et al. 2023; Grattafiori et al. 2024): pre-norm, grouped queries, rotary
positions on halves, SwiGLU, tied head. Imports no implementation; nothing here is ever timed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from kernels.llama.weights import Weights
from kernels.workloads import Decode

_HEAD_ROWS = 16384  # rows of the head converted at a time: bounds the temporary to 134 MB at hidden 2048
_SLACK_DEVIATIONS = 8.0


def decode(
    workload: Decode, weights: Weights, inputs: Mapping[str, Tensor], *, dtype: torch.dtype
) -> dict[str, Tensor]:
    """One step of each sequence; how many there are is told by the inputs, which are those of `inputs.fresh`.

    inputs: `token` int64 [batch]; `position` int64 [1]; `keys`, `values` [layers, batch kv_heads, position, head_dim].
    Returns `logits` [batch, vocab] and, for each layer i, `keys.i` and `values.i` [batch kv_heads, 1, head_dim], all
    in `dtype`; `token` int64 [batch], the lowest index of the greatest logit.
    """
    x, rows = _forward(workload, weights, inputs["token"][:, None], inputs, dtype=dtype)
    logits = torch.cat([x[:, 0] @ part.T for _, part in _head(weights, dtype)], dim=-1)
    return {"logits": logits, "token": logits.argmax(dim=-1), **rows}


def slack(tolerance: float) -> float:
    """How far below the greatest logit a chosen token's may be, in the root mean square of its row of logits.

    An output whose norm-relative error is `tolerance` has logits that are off by about that fraction of their root
    mean square, independently of each other; the difference of two by 1.4 times that. Eight of them are more than
    five standard deviations: of a hundred steps with a dozen tokens near the best, no right one is refused.
    """
    return _SLACK_DEVIATIONS * tolerance


def generate_guided(
    workload: Decode,
    weights: Weights,
    inputs: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor],
    *,
    dtype: torch.dtype,
    slack: float,
) -> dict[str, Tensor]:
    """All steps, each fed the token that the implementation chose in the one before (teacher forcing), in one pass.

    Where two logits are nearly equal, either token may be chosen, and everything after it differs. So of `outputs`
    `token` int64 [steps batch] (step-major; any contents) is followed, and nothing else of it is used. A chosen
    token is returned as the expected one where its logit is no more than `slack` root mean squares of its row below
    the greatest; elsewhere that greatest one's index (the lowest) is, and a comparison fails.
    Returns what an implementation does: `token`; `logits` [batch, vocab] of the last step; for each layer i, `keys.i`
    and `values.i` [batch kv_heads, steps, head_dim], in `dtype`.
    """
    vocab = workload.shape.vocab
    chosen = outputs["token"].to(inputs["token"].device).view(workload.steps, workload.batch).T  # [batch, steps]
    # A token that does not exist is refused below; what comes after it has to be computed from some token.
    fed = torch.cat([inputs["token"][:, None], chosen[:, :-1].clamp(0, vocab - 1)], dim=1)
    x, rows = _forward(workload, weights, fed, inputs, dtype=dtype)
    greatest = torch.full(chosen.shape, -torch.inf, dtype=dtype, device=x.device)
    best, of_chosen, squares = torch.zeros_like(chosen), greatest.clone(), torch.zeros_like(greatest)
    last: list[Tensor] = []
    for start, part in _head(weights, dtype):
        logits = x @ part.T
        top, index = logits.max(dim=-1)
        best = torch.where(top > greatest, start + index, best)  # the earlier slice keeps equal ones
        greatest = torch.maximum(greatest, top)
        squares += logits.square().sum(dim=-1)
        inside = (chosen >= start) & (chosen < start + part.shape[0])
        found = logits.gather(-1, (chosen - start).clamp(0, part.shape[0] - 1)[..., None])[..., 0]
        of_chosen = torch.where(inside, found, of_chosen)
        last.append(logits[:, -1])
    token = torch.where(of_chosen >= greatest - slack * (squares / vocab).sqrt(), chosen, best)
    return {"logits": torch.cat(last, dim=-1), "token": token.T.reshape(-1), **rows}


def _head(weights: Weights, dtype: torch.dtype) -> Iterator[tuple[int, Tensor]]:
    """(first row, rows) of the head, a slice at a time."""
    for start in range(0, weights.embedding.shape[0], _HEAD_ROWS):
        yield start, weights.embedding[start : start + _HEAD_ROWS].to(dtype)


def _forward(
    workload: Decode, weights: Weights, tokens: Tensor, inputs: Mapping[str, Tensor], *, dtype: torch.dtype
) -> tuple[Tensor, dict[str, Tensor]]:
    """Normalized hidden states [batch, steps, hidden] in front of the head, and each layer's new keys and values.

    tokens: [batch, steps]; a step attends to the earlier positions and to the steps up to its own.
    """
    shape = workload.shape
    position = int(inputs["position"])
    batch, steps = tokens.shape
    here = slice(position, position + steps)
    cosine, sine = weights.cosine[here].to(dtype)[:, None], weights.sine[here].to(dtype)[:, None]
    later = torch.ones(steps, position + steps, dtype=torch.bool, device=tokens.device).triu(position + 1)
    outputs: dict[str, Tensor] = {}

    def normalized(x: Tensor, index: int) -> Tensor:
        scale = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + shape.norm_epsilon)
        return x * scale * weights.norms[index].to(dtype)

    def rotated(x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)

    def by_head(x: Tensor) -> Tensor:
        """[batch, steps, heads, width] -> [batch kv_heads, steps, queries a key, width]"""
        grouped = x.reshape(batch, steps, shape.kv_heads, -1, shape.head_dim)
        return grouped.transpose(1, 2).flatten(0, 1)

    x = weights.embedding[tokens].to(dtype)
    for layer in range(shape.layers):
        qkv = (normalized(x, 2 * layer) @ weights.qkv[layer].to(dtype).T).unflatten(-1, (-1, shape.head_dim))
        query, key, value = qkv.split([shape.query_heads, shape.kv_heads, shape.kv_heads], dim=2)
        query, key, value = by_head(rotated(query)), by_head(rotated(key))[:, :, 0], by_head(value)[:, :, 0]
        outputs[f"keys.{layer}"], outputs[f"values.{layer}"] = key, value
        keys = torch.cat([inputs["keys"][layer].to(dtype), key], dim=1)
        values = torch.cat([inputs["values"][layer].to(dtype), value], dim=1)
        scores = torch.einsum("ntgd,nsd->ntgs", query, keys) * shape.head_dim**-0.5
        shares = scores.masked_fill(later[:, None], -torch.inf).softmax(dim=-1)
        attended = torch.einsum("ntgs,nsd->ntgd", shares, values).unflatten(0, (batch, shape.kv_heads))
        x = x + attended.transpose(1, 2).reshape(batch, steps, -1) @ weights.out[layer].to(dtype).T
        gate, up = (normalized(x, 2 * layer + 1) @ weights.gate_up[layer].to(dtype).T).chunk(2, dim=-1)
        x = x + (torch.nn.functional.silu(gate) * up) @ weights.down[layer].to(dtype).T
    return normalized(x, 2 * shape.layers), outputs


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
