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

COMPILED_WORKLOAD = "decode/llama-1b/b1-ctx512-bf16"
_RAN = {
    "modular": "the kernels ran in Triton's interpreter against the reference",
    "megakernel": "a small tape was proved to be in order, and ran in torch against the reference and in random orders",
}
_COMPILE_TIMEOUT_S = 300
_REPOSITORY = Path(__file__).parents[2]


def target(entry: Entry) -> str:
    """The newest architecture that it is written for."""
    return f"sm_{entry.architectures[-1]}"


def checked_here() -> tuple[Entry, ...]:
    """The implementations that `check` can take."""
    entries = [registry.entry("decode", name) for name in registry.names("decode")]
    return tuple(entry for entry in entries if entry.language == "triton" and not entry.on_cpu)


def reason(entry: Entry) -> str:
    """Why there is no time."""
    return (
        f"no GPU here: {_RAN[_family(entry)]}, and what it launches was compiled for {target(entry)} at the sizes of "
        f"{COMPILED_WORKLOAD}; an interpreter's time is no performance number"
    )


def check(entry: Entry, workload: Decode, weights: Weights, *, seed: int, tiles: Tiles = INTERPRETED) -> Facts:
    """Facts about the implementation; AssertionError when an output is wrong, RuntimeError when it does not compile.

    Members of a family differ in how they launch, which a CPU cannot try; what they launch is the same, so it is
    run once in a process. Each is compiled as it would be launched.
    """
    errors = _tape_facts(seed) if _family(entry) == "megakernel" else _modular_errors(workload, weights, seed, tiles)
    tolerance = entry.tolerance.of(workload.number)
    for name, error in errors.items():
        if not error <= tolerance:
            raise AssertionError(f"{workload.name}: {name} {error:.3g} is over {tolerance:.3g}")
    return {**errors, **compiled_facts(entry)}


def _family(entry: Entry) -> str:
    if entry.bits is None or entry.bits.family not in _RAN:
        raise ValueError(f"{entry.name} is of no family that can be checked without a GPU: {', '.join(_RAN)}")
    return entry.bits.family


def _modular_errors(workload: Decode, weights: Weights, seed: int, tiles: Tiles) -> dict[str, float]:
    return {
        "interpreter_error": interpreted.worst_error(workload, weights, seed=seed, tiles=tiles),
        **{f"interpreter_error.{name}": error for name, error in interpreted.tiny_errors(seed).items()},
    }


def _tape_facts(seed: int) -> dict[str, float]:
    from kernels.benchmarks import taped

    return {"tape_error": taped.worst_error(seed)}


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
    entries = checked_here()
    targets = sorted({f"sm_{architecture}" for entry in entries for architecture in entry.architectures})
    command = [sys.executable, "-m", "kernels.offline", workloads.named(COMPILED_WORKLOAD).name, *targets]
    command += [part for entry in entries for part in ("--implementation", entry.name)]
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False
    )
    if ran.returncode != 0:
        raise RuntimeError(f"compiling for {', '.join(targets)} failed: {ran.stderr.strip()[-2000:]}")
    found: Mapping[str, Mapping[str, Mapping[str, Mapping[str, int]]]] = json.loads(ran.stdout)
    return found
