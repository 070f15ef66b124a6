"""What implements what: names, where the code is, how exact it must be, where it can run.

Entries are lazy: importing this module imports neither torch nor triton, and `Entry.load` imports one
implementation and no other, so that a broken one cannot take its neighbours down with it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from kernels.workloads import WORKLOADS, Number, Sized

CTX512 = "decode/llama-1b/b1-ctx512-bf16"


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
class Bits:
    """Entries of one family give bitwise equal outputs on equal inputs; `reason`: why others give other bits."""

    family: str
    reason: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One implementation of one operation. What a step of it moves and computes at least is told by the workload.

    target: "module:function"; the function takes (workload, weights, inputs) and returns a bound step.
    bitwise: a repeat on equal inputs gives the same bits.
    language: what the code is written in. Triton has no CPU back end: there the interpreter can tell
        whether it is right, but never how fast it is.
    architectures: CUDA architectures it is written and compiled for, as 10 x major + minor, oldest first; newer ones
        are let try.
    on_cpu: why it cannot run on a CPU at all; empty where it can (or can be checked).
    bits: None where equal bits are promised to no other entry.
    at: tolerances that are others at some workloads, by the workload's name.
    multiprocessors: how many the device may have; None: any number.
    sizes, elsewhere: names of the workloads that it takes or is measured at, and why no other; empty: all.
    """

    operation: str
    name: str
    target: str
    tolerance: Tolerance
    bitwise: bool
    language: Literal["torch", "triton"]
    architectures: tuple[int, ...] = (80, 90)
    on_cpu: str = ""
    bits: Bits | None = None
    sizes: tuple[str, ...] = ()
    elsewhere: str = ""
    at: tuple[tuple[str, Tolerance], ...] = ()
    multiprocessors: range | None = None

    def tolerance_for(self, workload: Sized) -> Tolerance:
        return dict(self.at).get(workload.name, self.tolerance)

    @property
    def least_capability(self) -> int:
        return self.architectures[0]

    def load(self) -> Callable[..., Any]:
        module, _, function = self.target.partition(":")
        loaded: Callable[..., Any] = getattr(importlib.import_module(module), function)
        return loaded

    def unsupported(self, capability: int | None, workload: Sized, *, multiprocessors: int | None = None) -> str:
        """Why it does not run this workload on a device of this capability (None: a CPU); empty if it does.

        multiprocessors: of the device; None where that is not known, and not looked at.
        """
        if capability is None and self.on_cpu:
            return self.on_cpu
        if capability is not None and capability < self.least_capability:
            return f"needs sm_{self.least_capability} or newer; this device is sm_{capability}"
        if multiprocessors is not None and self.multiprocessors and multiprocessors not in self.multiprocessors:
            least, most = self.multiprocessors.start, self.multiprocessors.stop - 1
            return f"is written for {least} to {most} multiprocessors; this device has {multiprocessors}"
        if self.sizes and workload.name not in self.sizes:
            return self.elsewhere
        return ""


_TORCH = Tolerance(
    bf16=6e-2,
    fp32=2e-5,
    reason="bf16: activations are rounded to 8 bits some hundred times a step, 1.5e-2 (max-autotune) to 3.4e-2 seen "
    "with 16 layers on an H200, 3.4e-2 on a CPU; fp32: sums of up to 8192 terms, 1e-6 seen on a CPU",
)
_MODULAR = Tolerance(
    bf16=5e-3,
    fp32=2e-5,
    reason="bf16: activations stay in float32, only the new key and value rows are rounded to 8 bits, "
    "1.9e-3 for the rows and 2.6e-4 for the logits seen on an H200; fp32: 1e-6 seen in the interpreter",
)
_BATCHED = Tolerance(
    bf16=4e-2,
    fp32=2e-5,
    reason="bf16: a projection of several sequences runs on tensor cores, so what it reads is rounded to 8 bits, some "
    "eight times a layer, while residual, norms, softmax and sums stay float32; 1.9e-2 seen on an H200 with 8 and 64 "
    "sequences, where torch-graph has 3.3e-2; fp32: 1e-6 seen in the interpreter",
)
_GENERATED = Tolerance(
    bf16=1.5e-2,
    fp32=2e-5,
    reason="bf16: as a single step, but each step attends to rows that the ones before it rounded to 8 bits, where the "
    "reference keeps its own in float32; 6.2e-3 seen after 127 steps on an H200; fp32: 1e-6 seen in the interpreter",
)
_AT_STEPS = tuple((w.name, _GENERATED) for w in WORKLOADS if w.steps > 1)
_AT_OTHERS = (*_AT_STEPS, *((w.name, _BATCHED) for w in WORKLOADS if w.batch > 1))
_NO_GRAPH = "CUDA graphs need a CUDA device"
_MODULAR_BITS = Bits(
    "modular",
    "the same kernels with the same tiles, launched in three ways. The megakernel sums in another order: there a warp "
    "sums a whole row, here several warps share one and their partial sums are added afterwards",
)
_MEGAKERNEL_BITS = Bits(
    "megakernel",
    "the same kernel, launched or replayed. The modular kernels sum in another order: there several warps share a row "
    "and their partial sums are added afterwards, here a warp sums a whole row",
)
_BATCH_1 = tuple(w.name for w in WORKLOADS if w.batch == 1)
_ONE_TILE_EACH = range(128, 193)  # a block of 16 of 2048 rows for each at most, a tile of 192 of qkv for each at least
_SINGLE = "the megakernel is written for batch 1"
_BASELINE_SIZES = tuple(w.name for w in WORKLOADS if w.device != "cuda" or w.name == CTX512)

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "decode",
        "torch-eager",
        "kernels.llama.torch_eager:prepare",
        _TORCH,
        bitwise=False,
        language="torch",
        sizes=_BASELINE_SIZES,
        elsewhere=f"bound by the host at every size: measured at {CTX512} alone",
    ),
    Entry(
        "decode",
        "torch-graph",
        "kernels.llama.torch_graph:prepare",
        _TORCH,
        bitwise=False,
        language="torch",
        on_cpu=_NO_GRAPH,
    ),
    Entry("decode", "torch-compile", "kernels.llama.torch_compile:prepare", _TORCH, bitwise=False, language="torch"),
    Entry(
        "decode",
        "torch-compile-autotune",
        "kernels.llama.torch_compile_autotune:prepare",
        _TORCH,
        bitwise=False,
        language="torch",
        on_cpu="max-autotune times candidates for a GPU; on a CPU torch-compile stands for it",
        sizes=_BASELINE_SIZES,
        elsewhere=f"it takes 45 s to compile: measured at {CTX512} alone",
    ),
    Entry(
        "decode",
        "modular",
        "kernels.llama.modular:prepare",
        _MODULAR,
        bitwise=True,
        language="triton",
        bits=_MODULAR_BITS,
        at=_AT_OTHERS,
    ),
    Entry(
        "decode",
        "modular-graph",
        "kernels.llama.modular_graph:prepare",
        _MODULAR,
        bitwise=True,
        language="triton",
        bits=_MODULAR_BITS,
        at=_AT_OTHERS,
    ),
    Entry(
        "decode",
        "modular-pdl",
        "kernels.llama.modular_pdl:prepare",
        _MODULAR,
        bitwise=True,
        language="triton",
        architectures=(90,),  # griddepcontrol came with Hopper
        bits=_MODULAR_BITS,
        at=_AT_OTHERS,
    ),
    Entry(
        "decode",
        "megakernel",
        "kernels.llama.megakernel.step:prepare",
        _MODULAR,
        bitwise=True,
        language="triton",
        architectures=(90,),
        bits=_MEGAKERNEL_BITS,
        at=_AT_STEPS,
        multiprocessors=_ONE_TILE_EACH,
        sizes=_BATCH_1,
        elsewhere=_SINGLE,
    ),
    Entry(
        "decode",
        "megakernel-graph",
        "kernels.llama.megakernel.step:prepare_graph",
        _MODULAR,
        bitwise=True,
        language="triton",
        architectures=(90,),
        bits=_MEGAKERNEL_BITS,
        at=_AT_STEPS,
        multiprocessors=_ONE_TILE_EACH,
        sizes=_BATCH_1,
        elsewhere=_SINGLE,
    ),
)


def names(operation: str) -> tuple[str, ...]:
    return tuple(entry.name for entry in ENTRIES if entry.operation == operation)


def entry(operation: str, name: str) -> Entry:
    for candidate in ENTRIES:
        if (candidate.operation, candidate.name) == (operation, name):
            return candidate
    raise KeyError(f"no implementation {name!r} of {operation!r}; there are {', '.join(names(operation))}")
