"""In a process that compiles: how programs of the megakernel hand over to each other. Prints JSON.

    python -m tests.kernels.hand_overs

kernel -> faults of memory_order, signals and waits in its code: the megakernel of each workload that it takes, with the
plain accesses to tagged words that there are, and that there were if its relaxed loads were plain; and a small kernel
with the same `signal` and `wait`, as they are ("right") and with each of PLANTED.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels import memory_order, offline, registry, workloads
from tests.kernels.variants import planted

SYNCHRONIZATION = "kernels.llama.megakernel.synchronization"
PLANTED = {
    "relaxed signal": ("red.release.gpu", "red.relaxed.gpu"),
    "signal to the block alone": ("red.release.gpu", "red.release.cta"),
    "relaxed wait": ("ld.acquire.gpu", "ld.relaxed.gpu"),
    "volatile wait": ("ld.acquire.gpu.global", "ld.volatile.global"),
    "no barriers": ("    thread_barrier()\n", ""),
}


def small(signal: Callable[..., Any], wait: Callable[..., Any]) -> Any:
    """A kernel that waits, works and signals."""

    @gluon.jit
    def hand_over(counters, values, target):
        cells = gl.arange(0, 128, layout=gl.BlockedLayout([1], [32], [4], [0]))
        wait(counters, target)
        value = gl.load(values + cells)
        gl.store(values + 128 + cells, value + 1.0)
        signal(counters + 32)

    return hand_over


class SmallStep:
    def __init__(self) -> None:
        synchronization = importlib.import_module(SYNCHRONIZATION)
        self.kernel = small(synchronization.signal, synchronization.wait)
        self.counters = torch.empty(64, dtype=torch.int32, device="meta")
        self.values = torch.empty(256, device="meta")

    def __call__(self) -> None:
        self.kernel[(2,)](self.counters, self.values, 7, num_warps=4)


WORDS = ("x", "mid", "rows", "attended", "hidden")


def words(ptx: str) -> set[int]:
    """Numbers of the megakernel's parameters that point to tagged words: its tensors' come last but for two of Triton's
    own, since a descriptor counts as several."""
    names = importlib.import_module("kernels.llama.megakernel.kernel").megakernel.arg_names
    tensors = names[: names.index("trace") + 1]
    parameters = 1 + max(int(number) for number in re.findall(r"\.param .*_param_(\d+)", ptx))
    return {parameters - 2 - len(tensors) + tensors.index(name) for name in WORDS}


def accesses(ptx: str) -> dict[str, Any]:
    return {
        "plain": memory_order.plain_accesses(ptx, words(ptx)),
        "planted": memory_order.plain_accesses(ptx.replace("ld.relaxed.gpu.global", "ld.global"), words(ptx)),
        "touched": sorted(words(ptx) & memory_order.written_parameters(ptx)),
    }


def told(prepare: Callable[..., Any], workload: workloads.Decode) -> dict[str, Any]:
    (kernel,) = offline.compiled(workload, prepare, architecture=90).values()
    large = accesses(kernel.ptx) if kernel.kernel == "megakernel" else {}
    return {
        **large,
        "faults": sorted(set(memory_order.hand_over_faults(kernel.ptx, tagged=True))),
        "signals": memory_order.signals(kernel.ptx),
        "waits": memory_order.waits(kernel.ptx),
    }


def main() -> None:
    entry = registry.entry("decode", "megakernel")
    large = [w for w in workloads.WORKLOADS if w.device == "cuda" and not entry.unsupported(90, w)]
    found = {workload.name: told(entry.load(), workload) for workload in large}
    found["right"] = told(lambda *_: SmallStep(), large[0])
    for fault, pair in PLANTED.items():
        with tempfile.TemporaryDirectory() as folder, planted({SYNCHRONIZATION: (pair,)}, Path(folder)):
            found[fault] = told(lambda *_: SmallStep(), large[0])
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
