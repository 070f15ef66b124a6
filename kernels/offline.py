"""Compiles the kernels for a GPU that is not there, and tells what they cost.

    python -m kernels.offline decode/llama-1b/b1-ctx512-bf16 sm_90+pdl sm_80
    python -m kernels.offline decode/llama-1b/b1-gen32+127-bf16 sm_90 --implementation megakernel

prints JSON: for each implementation, target and stage of the step the registers a thread, bytes spilled, shared memory,
sizes of PTX and machine code. Without `--implementation` it is `modular`, and `modular-pdl` for a target with `+pdl`.
The implementation's own code prepares the step and launches it, on tensors without memory (`absent_device`): what is
compiled is what a launch at these sizes would compile. Needs no CUDA device; a process that has TRITON_INTERPRET set
cannot do it.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from triton import knobs
from triton.backends.nvidia.compiler import get_ptxas

from kernels import absent_device, registry, workloads
from kernels.absent_device import Compiled
from kernels.llama.weights import DTYPES, Weights
from kernels.workloads import Decode

Prepare = Callable[[Decode, Weights, Mapping[str, Tensor]], Any]


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


def costs(workload: Decode, prepare: Prepare, *, architecture: int) -> dict[str, Cost]:
    """Cost of each stage of a step, compiled for compute capability `architecture` (90: sm_90)."""
    stages = compiled(workload, prepare, architecture=architecture)
    return {stage: _cost(kernel, architecture) for stage, kernel in stages.items()}


def compiled(workload: Decode, prepare: Prepare, *, architecture: int) -> dict[str, Compiled]:
    """What each stage of a step runs, in the order of first launches.

    prepare: as an implementation's, returns a step; if that has a `plan` of named launches, those are the stages, else
    kernels are. A stage that is launched as several different codes has `.2` and so on behind its name. Raises
    RuntimeError when nothing is launched or the launches are not those of the plan.
    """
    if knobs.runtime.interpret:
        raise RuntimeError("TRITON_INTERPRET is set: kernels are interpreted here; compile in another process")
    with absent_device.installed(architecture) as device:
        step = prepare(workload, absent_weights(workload), absent_inputs(workload))
        step()
    found: dict[str, list[Compiled]] = {}
    for stage, launch in zip(_stages(step, device.launches), device.launches, strict=True):
        variants = found.setdefault(stage, [])
        if launch.ptx not in [variant.ptx for variant in variants]:
            variants.append(launch)
    return {
        stage if number == 1 else f"{stage}.{number}": variant
        for stage, variants in found.items()
        for number, variant in enumerate(variants, 1)
    }


def _stages(step: Any, launches: Sequence[Compiled]) -> list[str]:
    """A graph's step has launched its plan more than once before it was captured."""
    if not launches:
        raise RuntimeError("nothing was launched: the step runs no Triton kernel")
    plan = getattr(step, "plan", None)
    if plan is None:
        return [launch.kernel for launch in launches]
    names = [plan[number % len(plan)].name for number in range(len(launches))]
    kernels = [plan[number % len(plan)].kernel.__name__ for number in range(len(launches))]
    for number, (planned, launch) in enumerate(zip(kernels, launches, strict=True)):
        if planned != launch.kernel:
            raise RuntimeError(f"launch {number} is {launch.kernel}, where the step's plan has {planned}")
    if len(launches) % len(plan):
        raise RuntimeError(f"{len(launches)} launches are no multiple of the plan's {len(plan)}")
    return names


def absent_weights(workload: Decode) -> Weights:
    """Weights with types, shapes and an (aligned) address, but no memory."""
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


def absent_inputs(workload: Decode) -> dict[str, Tensor]:
    """As `inputs.fresh` gives them, but without memory; the position alone is there, since launching code reads it."""
    shape = workload.shape
    rows = (shape.layers, workload.kv_heads, workload.first_position, shape.head_dim)
    return {
        "token": torch.empty(workload.batch, dtype=torch.int64, device="meta"),
        "position": torch.tensor([workload.first_position]),
        "keys": torch.empty(rows, dtype=DTYPES[workload.number], device="meta"),
        "values": torch.empty(rows, dtype=DTYPES[workload.number], device="meta"),
    }


def _cost(kernel: Compiled, architecture: int) -> Cost:
    registers, spilled = _registers(kernel.ptx, architecture)
    return Cost(
        registers=registers,
        spilled_bytes=spilled,
        shared_bytes=kernel.shared_bytes,
        ptx_bytes=len(kernel.ptx.encode()),
        cubin_bytes=len(kernel.cubin),
    )


@functools.cache
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


def _entries(names: Sequence[str], *, pdl: bool) -> list[registry.Entry]:
    names = names or (["modular-pdl"] if pdl else ["modular"])
    if pdl and list(names) != ["modular-pdl"]:
        raise ValueError(f"+pdl stands for modular-pdl, not for {', '.join(names)}; leave it out of the target")
    return [registry.entry("decode", name) for name in names]


def _pairs(
    targets: Sequence[tuple[int, bool]], names: Sequence[str], workload: Decode
) -> list[tuple[registry.Entry, int]]:
    """What to compile for what; an implementation is left out where it does not run, if it runs on another target."""
    asked = [(entry, architecture) for architecture, pdl in targets for entry in _entries(names, pdl=pdl)]
    runs = [(entry, architecture) for entry, architecture in asked if not entry.unsupported(architecture, workload)]
    for entry, architecture in asked:
        if entry.language != "triton":
            raise ValueError(f"{entry.name} is no Triton code; there is nothing to compile")
        if entry.name not in {entry.name for entry, _ in runs}:
            raise ValueError(f"{entry.name}: {entry.unsupported(architecture, workload)}")
    return runs


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels.offline", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workload", choices=[workload.name for workload in workloads.WORKLOADS], metavar="WORKLOAD")
    parser.add_argument("targets", nargs="+", type=_target, metavar="sm_NN[+pdl]")
    parser.add_argument(
        "--implementation", action="append", default=[], choices=registry.names("decode"), metavar="NAME"
    )
    options = parser.parse_args(arguments)
    workload = workloads.named(options.workload)
    try:
        pairs = _pairs(options.targets, options.implementation, workload)
    except ValueError as error:
        parser.error(str(error))
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for entry, architecture in pairs:
        stages = costs(workload, entry.load(), architecture=architecture)
        found.setdefault(entry.name, {})[f"sm_{architecture}"] = {
            stage: dataclasses.asdict(cost) for stage, cost in stages.items()
        }
    json.dump(found, sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
