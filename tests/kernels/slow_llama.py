"""A Llama decode step in loops over Python floats, written from the papers: the oracle for the reference.

Shares no code with it: rotary angles, softmax, norm and the grouping of heads are spelt out.
"""

from __future__ import annotations

import math

Row = list[float]


def decode(shape, weights, inputs) -> dict[str, list]:
    """`weights` and `inputs` are as kernels.reference takes them, for one sequence; nested lists by output name."""
    position = int(inputs["position"])
    group = shape.query_heads // shape.kv_heads
    width = shape.head_dim
    angles = [position * frequency for frequency in frequencies(shape)]
    x = weights.embedding[int(inputs["token"])].tolist()
    outputs: dict[str, list] = {}
    for layer in range(shape.layers):
        y = times(weights.qkv[layer].tolist(), norm(x, weights.norms[2 * layer].tolist(), shape.norm_epsilon))
        heads = [y[start : start + width] for start in range(0, len(y), width)]
        queries = [rotate(head, angles) for head in heads[: shape.query_heads]]
        keys = [rotate(head, angles) for head in heads[shape.query_heads : shape.query_heads + shape.kv_heads]]
        values = heads[shape.query_heads + shape.kv_heads :]
        outputs[f"keys.{layer}"] = [[key] for key in keys]
        outputs[f"values.{layer}"] = [[value] for value in values]
        mixed: Row = []
        for number, query in enumerate(queries):
            kv = number // group
            all_keys = [*inputs["keys"][layer][kv].tolist(), keys[kv]]
            all_values = [*inputs["values"][layer][kv].tolist(), values[kv]]
            scores = [sum(a * b for a, b in zip(query, key, strict=True)) / math.sqrt(width) for key in all_keys]
            total = sum(math.exp(score - max(scores)) for score in scores)
            shares = [math.exp(score - max(scores)) / total for score in scores]
            mixed += [sum(s * v[d] for s, v in zip(shares, all_values, strict=True)) for d in range(width)]
        x = added(x, times(weights.out[layer].tolist(), mixed))
        y = norm(x, weights.norms[2 * layer + 1].tolist(), shape.norm_epsilon)
        both = times(weights.gate_up[layer].tolist(), y)
        gates, ups = both[: shape.ffn], both[shape.ffn :]
        hidden = [gate / (1 + math.exp(-gate)) * up for gate, up in zip(gates, ups, strict=True)]
        x = added(x, times(weights.down[layer].tolist(), hidden))
    logits = times(weights.embedding.tolist(), norm(x, weights.norms[2 * shape.layers].tolist(), shape.norm_epsilon))
    return {"logits": [logits], "token": [logits.index(max(logits))], **outputs}


def frequencies(shape) -> Row:
    found = []
    for pair in range(shape.head_dim // 2):
        frequency = 1 / shape.rope_theta ** (2 * pair / shape.head_dim)
        scaling = shape.rope_scaling
        if scaling is not None:
            wavelength = 2 * math.pi / frequency
            if wavelength > scaling.original_context / scaling.low_frequency_factor:
                frequency /= scaling.factor
            elif wavelength > scaling.original_context / scaling.high_frequency_factor:
                low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
                smooth = (scaling.original_context / wavelength - low) / (high - low)
                frequency = (1 - smooth) * frequency / scaling.factor + smooth * frequency
        found.append(frequency)
    return found


def rotate(head: Row, angles: Row) -> Row:
    half = len(head) // 2
    first = [head[i] * math.cos(a) - head[half + i] * math.sin(a) for i, a in enumerate(angles)]
    second = [head[half + i] * math.cos(a) + head[i] * math.sin(a) for i, a in enumerate(angles)]
    return first + second


def norm(x: Row, weight: Row, epsilon: float) -> Row:
    scale = 1 / math.sqrt(sum(value * value for value in x) / len(x) + epsilon)
    return [value * scale * w for value, w in zip(x, weight, strict=True)]


def times(matrix: list[Row], vector: Row) -> Row:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def added(left: Row, right: Row) -> Row:
    return [a + b for a, b in zip(left, right, strict=True)]
