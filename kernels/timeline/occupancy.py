"""How many programs of each launch fit on a multiprocessor, from what the kernels compile to. Needs no GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernels import offline
from kernels.timeline import traced
from kernels.workloads import Decode


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a multiprocessor: registers, warps, programs, bytes of shared memory (and what each program's use adds)."""

    registers: int = 65536
    warps: int = 64
    programs: int = 32
    shared_bytes: int = 233_472
    shared_reserved: int = 1024


HOPPER = Limits()
"""CUDA C++ programming guide, compute capability 9.0. A warp gets registers in 256s, of its quarter of them."""


def fitting(*, registers: int, warps: int, shared_bytes: int, limits: Limits = HOPPER) -> int:
    """Programs of so many registers a thread, warps, and bytes of shared memory; 0: not one."""
    a_warp = -(-registers * 32 // 256) * 256
    by_registers = limits.registers // 4 // a_warp * 4 // warps if a_warp else limits.programs
    by_shared = limits.shared_bytes // (shared_bytes + limits.shared_reserved)
    return min(limits.programs, limits.warps // warps, by_registers, by_shared)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Of a stage's programs: how many fit on a multiprocessor; the share of their bytes that they load before they
    wait; and how many tiles each makes one after the other."""

    fits: int
    early: float = 1.0
    tiles: int = 1


def of_modular(workload: Decode, implementation: str, *, architecture: int = 90) -> Mapping[str, Footprint]:
    """By stage, of the traced kernels. RuntimeError where kernels are interpreted."""
    made: list[Any] = []

    def prepare(*arguments: Any) -> Any:
        step, _ = traced.prepare(implementation, *arguments)
        made.append(step)
        return step

    costs = offline.costs(workload, prepare, architecture=architecture)
    options: dict[str, Mapping[str, Any]] = {launch.name: launch.keywords for launch in made[0].plan}
    return {
        name: Footprint(
            fitting(registers=cost.registers, warps=options[name]["num_warps"], shared_bytes=cost.shared_bytes),
            early_share(options[name]),
            options[name].get("TILES", 1),
        )
        for name, cost in costs.items()
        if name in options
    }


def early_share(options: Mapping[str, Any]) -> float:
    """From a launch's constants: a kernel that walks over TILES has the first of them in flight before it waits;
    one that attends has its first BLOCK of positions; any other has all."""
    if "TILES" in options:
        return 1.0 / options["TILES"]
    if {"BLOCK", "CONTEXT"} <= options.keys() and "SPLITS" not in options:
        return min(1.0, options["BLOCK"] / max(1, options["CONTEXT"] - 1))
    return 1.0
