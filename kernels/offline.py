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


def costs(workload: Decode, *, architecture: int, pdl: bool) -> dict[str, Cost]:
    """Cost of each operation of the modular step, compiled for compute capability `architecture` (90: sm_90)."""
    triton.runtime.driver.set_active(AbsentDevice(architecture))
    found: dict[str, Cost] = {}
    for launch in _plan(workload, pdl=pdl):
        if launch.name not in found:
            compiled = launch.kernel.warmup(*launch.arguments, grid=launch.grid, **launch.constants, **launch.options)
            found[launch.name] = _cost(compiled, architecture)
    return found


def _plan(workload: Decode, *, pdl: bool) -> tuple[pipeline.Launch, ...]:
    """The launches over tensors that have a type and an (aligned) address of 0, but no memory."""
    weights = absent_weights(workload)
    live = buffers(workload, device="meta", logits=torch.float32)
    between = pipeline.scratch(workload, pipeline.HOPPER, device="meta")
    return pipeline.launches(workload, weights, live, between, tiles=pipeline.HOPPER, pdl=pdl)


def absent_weights(workload: Decode) -> Weights:
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


def _cost(compiled: Any, architecture: int) -> Cost:
    ptx: str = compiled.asm["ptx"]
    registers, spilled = _registers(ptx, architecture)
    return Cost(
        registers=registers,
        spilled_bytes=spilled,
        shared_bytes=compiled.metadata.shared,
        ptx_bytes=len(ptx.encode()),
        cubin_bytes=len(compiled.asm["cubin"]),
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
