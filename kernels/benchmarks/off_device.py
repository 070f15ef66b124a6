"""What a machine without a GPU can tell about a Triton implementation: whether it is right, and what it compiles to."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

from kernels import reference, registry, workloads
from kernels.llama import inputs as fresh_inputs
from kernels.llama.pipeline import INTERPRETED, ModularStep, Tiles
from kernels.llama.weights import Weights
from kernels.registry import Entry
from kernels.workloads import Decode

Facts = Mapping[str, float | int | str | bool]

REASON = (
    "no GPU here: the kernels ran in Triton's interpreter against the reference and were compiled for {target} at the "
    "sizes of {compiled}; an interpreter's time is no performance number"
)
COMPILED_WORKLOAD = "decode/llama-1b/b1-ctx512-bf16"
_COMPILED = ("modular", "modular-graph", "modular-pdl")
_COMPILE_TIMEOUT_S = 300
_REPOSITORY = Path(__file__).parents[2]


def target(entry: Entry) -> str:
    """The newest architecture that it is written for."""
    return f"sm_{entry.architectures[-1]}"


def check(entry: Entry, workload: Decode, weights: Weights, *, seed: int, tiles: Tiles = INTERPRETED) -> Facts:
    """Facts about the implementation; AssertionError when an output is wrong, RuntimeError when it does not compile.

    The three modular implementations differ in how they launch, which a CPU cannot try; their kernels are the
    same, so the interpreter runs them once in a process. Each is compiled as it would be launched.
    """
    error = interpreted_error(workload, weights, seed=seed, tiles=tiles)
    tolerance = entry.tolerance.of(workload.number)
    if not error <= tolerance:
        raise AssertionError(f"{workload.name}: error {error:.3g} in the interpreter is over {tolerance:.3g}")
    facts: dict[str, float | int | str | bool] = {"interpreter_error": error, "compiled_for": target(entry)}
    compiled = compiled_costs()[entry.name]
    for operation, cost in compiled[target(entry)].items():
        facts |= {f"{operation}.{name}": value for name, value in cost.items()}
    for architecture in entry.architectures[:-1]:
        facts[f"compiles_for_sm_{architecture}"] = bool(compiled[f"sm_{architecture}"])
    return facts


_ERRORS: dict[tuple[str, int], float] = {}


def interpreted_error(workload: Decode, weights: Weights, *, seed: int, tiles: Tiles) -> float:
    """Worst error of one interpreted step against the float64 reference, outputs and scratch poisoned before."""
    key = (workload.name, seed)
    if key not in _ERRORS:
        inputs = fresh_inputs.fresh(workload, weights, seed)
        expected = reference.decode(workload, weights, inputs, dtype=torch.float64)
        before = [constant.clone() for constant in weights.tensors()]
        step = ModularStep(workload, weights, inputs, tiles=tiles)
        poison(step)
        step()
        if not all(map(torch.equal, before, weights.tensors())):
            raise AssertionError(f"{workload.name}: a kernel changed the weights")
        _ERRORS[key] = reference.worst_error(step.outputs, expected)
    return _ERRORS[key]


def poison(step: ModularStep) -> None:
    for tensor in (*step.outputs.values(), *step.scratch):
        tensor.fill_(float("nan") if tensor.is_floating_point() else -1)


@functools.cache
def compiled_costs() -> Mapping[str, Mapping[str, Mapping[str, Mapping[str, int]]]]:
    """Implementation -> target -> operation -> costs, from one other process: in this one Triton interprets."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_REPOSITORY), environment.get("PYTHONPATH", "")]))
    entries = [registry.entry("decode", name) for name in _COMPILED]
    targets = sorted({f"sm_{architecture}" for entry in entries for architecture in entry.architectures})
    command = [sys.executable, "-m", "kernels.offline", workloads.named(COMPILED_WORKLOAD).name, *targets]
    command += [part for name in _COMPILED for part in ("--implementation", name)]
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False
    )
    if ran.returncode != 0:
        raise RuntimeError(f"compiling for {', '.join(targets)} failed: {ran.stderr.strip()[-2000:]}")
    found: Mapping[str, Mapping[str, Mapping[str, Mapping[str, int]]]] = json.loads(ran.stdout)
    return found
