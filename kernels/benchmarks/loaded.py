"""What the kernels of a step take of the GPU that they are loaded on; `offline` tells it of one that is not there."""

from __future__ import annotations

from typing import Any

from perfci.bench.case import Facts

_WORD = 4  # bytes; Triton counts what a thread has in local memory in words


def costs(step: Any) -> Facts:
    """`<stage>.registers` of a thread, `.local_bytes` of a thread (spills), `.shared_bytes` of a block.

    For each name in the step's `plan` the first launch. Compiles and loads what was not yet, launches nothing; on a
    loaded kernel it takes some 0.1 ms. Empty for a step without a plan.
    """
    facts: dict[str, float | int | str | bool] = {}
    plan = getattr(step, "plan", ())
    first = {launch.name: launch for launch in reversed(plan)}
    for launch in reversed(first.values()):
        kernel = launch.kernel.warmup(*launch.arguments, grid=launch.grid, **launch.keywords)
        kernel.run  # noqa: B018  loads it, and only then are its registers known
        facts[f"{launch.name}.registers"] = kernel.n_regs
        facts[f"{launch.name}.local_bytes"] = _WORD * kernel.n_spills
        facts[f"{launch.name}.shared_bytes"] = kernel.metadata.shared
    return facts
