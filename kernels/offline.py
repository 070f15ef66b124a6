"""Compiles an implementation's Triton kernels for a GPU that is not there, and tells what they cost.

    python -m kernels.offline decode/llama-1b/b1-ctx512-bf16 sm_90+pdl sm_80

prints JSON: for each target and operation the registers a thread, bytes spilled, shared memory, sizes of
PTX and machine code. Signature and specialization are made by Triton's own launcher from tensors without memory,
so what is compiled is what a launch at these sizes would compile. Needs no CUDA device; a process that has
TRITON_INTERPRET set cannot do it, since Triton decides at import whether kernels are compiled.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas

from kernels import workloads
from kernels.llama import pipeline
from kernels.llama.inputs import buffers
from kernels.llama.pipeline import Tiles
from kernels.llama.weights import DTYPES, Weights
from kernels.workloads import Decode


@dataclass(frozen=True, slots=True)
class Cost:
    """What one compiled kernel takes: registers a thread; bytes of the rest.

    spilled_bytes counts what a thread stores to and loads from local memory because registers ran out;
    shared_bytes is what a launch asks for (ptxas does not know it).
    """

    registers: int
    spilled_bytes: int
    shared_bytes: int
    ptx_bytes: int
    cubin_bytes: int


class AbsentDevice:
    """Stands where Triton looks for a driver: it names the target and launches nothing.

    Triton keeps what it compiled by device number, so each architecture is a device of its own.
    """

    def __init__(self, architecture: int) -> None:
        self.architecture = architecture

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.architecture, 32)

    def get_current_device(self) -> int:
        return self.architecture

    def get_current_stream(self, device: int) -> int:
        return 0


def costs(workload: Decode, *, architecture: int, pdl: bool, tiles: Tiles = pipeline.HOPPER) -> dict[str, Cost]:
    """Cost of each operation of the modular step, compiled for compute capability `architecture` (90: sm_90)."""
    kernels = compiled(workload, architecture=architecture, pdl=pdl, tiles=tiles)
    return {name: _cost(kernel, architecture) for name, kernel in kernels.items()}


def compiled(workload: Decode, *, architecture: int, pdl: bool, tiles: Tiles = pipeline.HOPPER) -> dict[str, Any]:
    """Each operation's compiled kernel; its `asm` has "ptx" and "cubin". One of each name: the layers' are equal."""
    triton.runtime.driver.set_active(AbsentDevice(architecture))
    weights = absent_weights(workload)
    live = buffers(workload, device="meta", logits=torch.float32)
    between = pipeline.scratch(workload, tiles, device="meta")
    plan = pipeline.launches(workload, weights, live, between, tiles=tiles, pdl=pdl)
    first = {launch.name: launch for launch in reversed(plan)}
    return {
        launch.name: launch.kernel.warmup(*launch.arguments, grid=launch.grid, **launch.keywords)
        for launch in reversed(first.values())
    }


def absent_weights(workload: Decode) -> Weights:
    """Weights with types, shapes and an (aligned) address of 0, but no memory."""
    shape = workload.shape
    empty = functools.partial(torch.empty, dtype=DTYPES[workload.number], device="meta")
    angles = torch.empty(workload.context, shape.head_dim // 2, dtype=torch.float32, device="meta")
    return Weights(
        embedding=empty(shape.vocab, shape.hidden),
        qkv=empty(shape.layers, shape.qkv_rows, shape.hidden),
        out=empty(shape.layers, shape.hidden, shape.query_rows),
        gate_up=empty(shape.layers, 2 * shape.ffn, shape.hidden),
        down=empty(shape.layers, shape.hidden, shape.ffn),
        norms=empty(2 * shape.layers + 1, shape.hidden),
        cosine=angles,
        sine=angles,
    )


def _cost(kernel: Any, architecture: int) -> Cost:
    ptx: str = kernel.asm["ptx"]
    registers, spilled = _registers(ptx, architecture)
    return Cost(
        registers=registers,
        spilled_bytes=spilled,
        shared_bytes=kernel.metadata.shared,
        ptx_bytes=len(ptx.encode()),
        cubin_bytes=len(kernel.asm["cubin"]),
    )


def _registers(ptx: str, architecture: int) -> tuple[int, int]:
    """(registers a thread, bytes spilled) as the assembler that Triton ships reports them."""
    target = re.search(r"^\.target (\w+)", ptx, re.MULTILINE)
    if target is None:
        raise ValueError("PTX without a .target line")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        command = [get_ptxas(architecture).path, "-v", f"--gpu-name={target[1]}", str(source), "-o", f"{folder}/cubin"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    used = re.search(r"Used (\d+) registers", said)
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", said)
    if used is None or spills is None:
        raise ValueError(f"ptxas did not tell registers and spills: {said!r}")
    return int(used[1]), int(spills[1]) + int(spills[2])


def _target(text: str) -> tuple[int, bool]:
    """`sm_90+pdl` -> (90, True)."""
    match = re.fullmatch(r"sm_(\d+)(\+pdl)?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no target; write sm_90 or sm_90+pdl")
    return int(match[1]), match[2] is not None


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels.offline", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workload", choices=[workload.name for workload in workloads.WORKLOADS])
    parser.add_argument("targets", nargs="+", type=_target, metavar="sm_NN[+pdl]")
    options = parser.parse_args(arguments)
    workload = workloads.named(options.workload)
    found = {
        f"sm_{architecture}{'+pdl' if pdl else ''}": {
            name: dataclasses.asdict(cost) for name, cost in costs(workload, architecture=architecture, pdl=pdl).items()
        }
        for architecture, pdl in options.targets
    }
    json.dump(found, sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
