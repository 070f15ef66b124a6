"""What a machine without a GPU can tell about a Triton implementation: whether it is right, and what it compiles to."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from kernels import registry, workloads
from kernels.benchmarks import interpreted
from kernels.llama.pipeline import INTERPRETED, Tiles
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
    errors = {
        "interpreter_error": interpreted.worst_error(workload, weights, seed=seed, tiles=tiles),
        **{f"interpreter_error.{name}": error for name, error in interpreted.tiny_errors(seed).items()},
    }
    tolerance = entry.tolerance.of(workload.number)
    for name, error in errors.items():
        if not error <= tolerance:
            raise AssertionError(f"{workload.name}: {name} {error:.3g} is over {tolerance:.3g}")
    return {**errors, **compiled_facts(entry)}


def compiled_facts(entry: Entry) -> Facts:
    """Costs of each stage on the newest architecture, and that it compiles for the others."""
    facts: dict[str, float | int | str | bool] = {"compiled_for": target(entry)}
    compiled = compiled_costs()[entry.name]
    for stage, cost in compiled[target(entry)].items():
        facts |= {f"{stage}.{name}": value for name, value in cost.items()}
    for architecture in entry.architectures[:-1]:
        facts[f"compiles_for_sm_{architecture}"] = bool(compiled[f"sm_{architecture}"])
    return facts


@functools.cache
def compiled_costs() -> Mapping[str, Mapping[str, Mapping[str, Mapping[str, int]]]]:
    """Implementation -> target -> stage -> costs, from one other process: in this one Triton interprets."""
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
