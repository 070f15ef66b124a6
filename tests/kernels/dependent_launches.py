"""In a process that compiles: what the modular kernels do before they wait for the kernel before them. Prints JSON.

    python -m tests.kernels.dependent_launches WORKLOAD... [--plant]

workload -> stage -> faults of memory_order; those that are left when attention may read keys and values, of earlier
positions; and how often the stage reads before the wait. --plant: with each of PLANTED in turn, for one workload.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from torch import Tensor

from kernels import absent_device, memory_order, offline, registry, workloads
from kernels.ptx import instructions
from kernels.ptx_paths import before_wait
from tests.kernels.variants import planted

WAIT = "begin, end = wait(begin, PDL, TRACE)"
PLANTED = {
    "input read early": (
        "kernels.llama.operations",
        f"    {WAIT}\n    vector = tl.load(input_ptr + columns)\n",
        f"    vector = tl.load(input_ptr + columns)\n    {WAIT}\n",
    ),
    "token written early": (
        "kernels.llama.operations",
        f"    {WAIT}\n    best = tl.load(best_ptr",
        f"    tl.store(token_ptr, 0)\n    {WAIT}\n    best = tl.load(best_ptr",
    ),
    "no wait": ("kernels.llama.program", "        gdc_wait()\n", "        pass\n"),
}


def told(name: str) -> dict[str, dict[str, Any]]:
    """Stages of modular-pdl on sm_90. Stores tell which tensors a step writes; views of one allocation count as one."""
    workload = workloads.named(name)
    prepare = registry.entry("decode", "modular-pdl").load()
    with absent_device.installed(90) as device:
        step = prepare(workload, offline.absent_weights(workload), offline.absent_inputs(workload))
    pairs = list(zip(step.plan, device.launches[: len(step.plan)], strict=True))
    through = {ptx: memory_order.written_parameters(ptx) for ptx in {compiled.ptx for _, compiled in pairs}}
    written = {_memory(planned.arguments[at]) for planned, compiled in pairs for at in through[compiled.ptx]}
    caches = {_memory(step.buffers.key_cache), _memory(step.buffers.value_cache)}
    found: dict[str, dict[str, Any]] = {}
    seen: set[tuple[str, frozenset[int], frozenset[int]]] = set()
    for planned, compiled in pairs:
        pointers = [_memory(tensor) for tensor in planned.arguments]
        early, allowed = _among(pointers, written), _among(pointers, written - caches)
        allowed = allowed if planned.name == "attend" else early
        if (compiled.ptx, early, allowed) in seen:
            continue
        seen.add((compiled.ptx, early, allowed))
        stage = found.setdefault(planned.name, {"faults": [], "left": [], "loads": _loads_before_wait(compiled.ptx)})
        stage["faults"] += sorted(set(memory_order.dependent_launch_faults(compiled.ptx, early)))
        stage["left"] += sorted(set(memory_order.dependent_launch_faults(compiled.ptx, allowed)))
    return found


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _among(pointers: list[int], memory: set[int]) -> frozenset[int]:
    return frozenset(number for number, pointer in enumerate(pointers) if pointer in memory)


def _loads_before_wait(ptx: str) -> int:
    before, _ = before_wait(instructions(ptx))
    return sum(one.does("ld", "global") or one.does("cp", "async", "global") for one in before)


def main(arguments: list[str]) -> None:
    names = [name for name in arguments if name != "--plant"]
    found: dict[str, Any] = {}
    if "--plant" in arguments:
        for fault, (module, old, new) in PLANTED.items():
            with tempfile.TemporaryDirectory() as folder, planted({module: ((old, new),)}, Path(folder)):
                found[fault] = told(names[0])
    else:
        found = {name: told(name) for name in names}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
