"""What implements what: names, where the code is, how exact it must be, where it can run.

Entries are lazy: importing this module imports neither torch nor triton, and `Entry.load` imports one
implementation and no other, so that a broken one cannot take its neighbours down with it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from kernels.workloads import Number


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Largest norm-relative error |out - ref| / |ref| of any output that is still right.

    Each value lies above what rounding costs (`reason`, with what was seen) and below what a planted fault costs
    (tests/kernels/test_planted_faults.py). At the 1B sizes a feed-forward left out in one of 16 layers costs
    0.5, the oldest key left out everywhere 0.15, attention left out in one layer 6.4e-2: with bf16 activations
    that last one is hardly told from rounding.
    """

    bf16: float
    fp32: float
    reason: str

    def of(self, number: Number) -> float:
        return self.bf16 if number == "bf16" else self.fp32


@dataclass(frozen=True, slots=True)
class Entry:
    """One implementation of one operation.

    target: "module:function"; the function takes (workload, weights, inputs) and returns a bound step.
    bitwise: a repeat on equal inputs gives the same bits.
    language: what the code is written in. Triton has no CPU back end: there the interpreter can tell
        whether it is right, but never how fast it is.
    least_capability: first CUDA architecture that has what it needs, as 10 x major + minor.
    on_cpu: why it cannot run on a CPU at all; empty where it can (or can be checked).
    """

    operation: str
    name: str
    target: str
    tolerance: Tolerance
    bitwise: bool
    language: Literal["torch", "triton"]
    least_capability: int = 80
    on_cpu: str = ""

    def load(self) -> Callable[..., Any]:
        module, _, function = self.target.partition(":")
        loaded: Callable[..., Any] = getattr(importlib.import_module(module), function)
        return loaded

    def unsupported(self, capability: int | None) -> str:
        """Why it cannot run on a device of this capability (None: a CPU); empty if it can."""
        if capability is None:
            return self.on_cpu
        if capability < self.least_capability:
            return f"needs sm_{self.least_capability} or newer; this device is sm_{capability}"
        return ""


_TORCH = Tolerance(
    bf16=6e-2,
    fp32=2e-5,
    reason="bf16: activations are rounded to 8 bits some hundred times a step, 3.0e-2 to 3.4e-2 seen with 16 layers "
    "on a CPU; fp32: sums of up to 8192 terms, 1e-6 seen on a CPU",
)
_MODULAR = Tolerance(
    bf16=5e-3,
    fp32=2e-5,
    reason="bf16: activations stay in float32, only the new key and value rows are rounded to 8 bits, "
    "1.7e-3 for the rows and 2.6e-4 for the logits seen on an H200; fp32: 1e-6 seen in the interpreter",
)
_NO_GRAPH = "CUDA graphs need a CUDA device"

ENTRIES = (
    Entry("decode", "torch-eager", "kernels.llama.torch_eager:prepare", _TORCH, bitwise=False, language="torch"),
    Entry("decode", "torch-compile", "kernels.llama.torch_compile:prepare", _TORCH, bitwise=False, language="torch"),
    Entry(
        "decode",
        "torch-graph",
        "kernels.llama.torch_graph:prepare",
        _TORCH,
        bitwise=False,
        language="torch",
        on_cpu=_NO_GRAPH,
    ),
    Entry("decode", "modular", "kernels.llama.modular:prepare", _MODULAR, bitwise=True, language="triton"),
    Entry("decode", "modular-graph", "kernels.llama.modular_graph:prepare", _MODULAR, bitwise=True, language="triton"),
    Entry(
        "decode",
        "modular-pdl",
        "kernels.llama.modular_pdl:prepare",
        _MODULAR,
        bitwise=True,
        language="triton",
        least_capability=90,  # griddepcontrol came with Hopper
    ),
)


def names(operation: str) -> tuple[str, ...]:
    return tuple(entry.name for entry in ENTRIES if entry.operation == operation)


def entry(operation: str, name: str) -> Entry:
    for candidate in ENTRIES:
        if (candidate.operation, candidate.name) == (operation, name):
            return candidate
    raise KeyError(f"no implementation {name!r} of {operation!r}; there are {', '.join(names(operation))}")
