"""Least traffic of each stage: `Decode.bytes_moved`, told apart by where it is moved."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.workloads import NUMBER_BYTES, Decode

_FP32_BYTES = 4
_TOKEN_BYTES = 8

LAYER_STAGES = ("qkv", "attend", "out", "gate_up", "down")
"""Stages of a layer that must move something, in order; all others of a layer live on what is on the chip."""


def stage_bytes(workload: Decode) -> Mapping[str, int]:
    """Bytes that a stage moves at least in all of a workload's steps: those of LAYER_STAGES in one layer.

    embed: the tokens' rows. qkv, out, gate_up, down: weights, with the norm before them; qkv also the new key and value
    rows. attend: the earlier ones. head: the embedding matrix, the last norm, the logits. pick: the tokens out.
    """
    shape, batch, steps = workload.shape, workload.batch, workload.steps
    size = NUMBER_BYTES[workload.number]
    layer_row = batch * workload.kv_row_bytes // shape.layers
    matrices = {
        "qkv": (shape.qkv_rows + 1) * shape.hidden,
        "out": shape.hidden * shape.query_rows,
        "gate_up": (2 * shape.ffn + 1) * shape.hidden,
        "down": shape.hidden * shape.ffn,
        "head": (shape.vocab + 1) * shape.hidden,
    }
    moved = {stage: steps * size * elements for stage, elements in matrices.items()}
    moved["qkv"] += steps * layer_row
    moved["attend"] = (workload.attended - steps) * layer_row
    moved["head"] += batch * _FP32_BYTES * shape.vocab
    moved["embed"] = batch * (steps * size * shape.hidden + _TOKEN_BYTES)
    moved["pick"] = batch * steps * _TOKEN_BYTES
    return moved
