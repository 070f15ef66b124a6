"""Which programs of a launch each program of the next one needs: the modular step's dependencies, tile by tile.

Derived from what the operations read and write; the one place that knows it. A launch depends on the one before it and,
through that, on all before. What a matrix product reads, it reads whole, so only attention has tiles of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernels.workloads import LlamaShape


def producers(
    shape: LlamaShape, *, before: tuple[str, int], stage: tuple[str, int], program: int, tiles: int = 1
) -> Sequence[range] | None:
    """Programs of the launch before that `program` of this one needs; None: all of them.

    before, stage: name and programs of the two launches, which follow each other. tiles: how many each program of the
    launch before makes.

    qkv -> attend: the query heads of its group, and its group's key and value head. A program attends either for one
    query head, or for one key and value head over a part of the positions (program = head x parts + part).
    attend -> merge: the parts of its query head's group. embed, out, down -> anything: the norm reads all of x.
    gate_up -> down, attend or merge -> out: a row of the product reads the whole vector. head -> pick: all.
    Programs that make several tiles, or no whole number of which makes a head: all, which is never too few.
    """
    if not 0 <= program < stage[1]:
        raise ValueError(f"program {program} of {stage[0]}, which has {stage[1]}")
    if tiles > 1:
        return None
    group = shape.query_heads // shape.kv_heads
    heads = shape.query_heads + 2 * shape.kv_heads
    if (before[0], stage[0]) == ("qkv", "attend") and not before[1] % heads and not stage[1] % shape.kv_heads:
        a_head = before[1] // heads
        head = program // group if stage[1] == shape.query_heads else program // (stage[1] // shape.kv_heads)
        key = shape.query_heads + head
        value = key + shape.kv_heads
        return (
            range(head * group * a_head, (head + 1) * group * a_head),
            range(key * a_head, (key + 1) * a_head),
            range(value * a_head, (value + 1) * a_head),
        )
    if (before[0], stage[0]) == ("attend", "merge") and not before[1] % shape.kv_heads:
        parts = before[1] // shape.kv_heads
        head = program // group
        return (range(head * parts, (head + 1) * parts),)
    return None
