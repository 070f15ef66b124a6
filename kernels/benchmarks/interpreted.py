"""The modular kernels in Triton's interpreter: are they right? Each step once in a process."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from kernels import reference, registry, workloads
from kernels.llama import inputs as fresh_inputs
from kernels.llama import weights as llama_weights
from kernels.llama.batched_pipeline import BatchedStep
from kernels.llama.pipeline import ModularStep, Split, Tile, Tiles
from kernels.llama.weights import Weights
from kernels.workloads import Decode

_SEED = 1  # of the tiny weights

TINY_TILES = Tiles(
    qkv=Tile(16, 4),
    attend=Tile(16, 4),
    out=Tile(64, 4),
    gate_up=Tile(64, 4, programs=3),
    down=Tile(32, 4, programs=3),
    head=Tile(64, 4),
    head_tiles=2,
)
SPLIT_TILES = dataclasses.replace(TINY_TILES, attend=Tile(8, 4), split=Split(heads=2, merge_warps=4))


class Interpreted(Protocol):
    """What is asked of a step here."""

    @property
    def outputs(self) -> Mapping[str, Tensor]: ...

    @property
    def scratch(self) -> Sequence[Tensor]: ...

    def __call__(self) -> None: ...


_ERRORS: dict[tuple[str, int], float] = {}


def worst_error(workload: Decode, weights: Weights, *, seed: int, tiles: Tiles) -> float:
    """Of one step against the float64 reference, outputs and scratch poisoned before. AssertionError for a write
    to the weights."""
    key = (workload.name, seed)
    if key not in _ERRORS:
        inputs = fresh_inputs.fresh(workload, weights, seed)
        step = ModularStep(workload, weights, inputs, tiles=tiles)
        _ERRORS[key] = _error(step, workload, weights, inputs)
    return _ERRORS[key]


@functools.cache
def tiny_errors(seed: int) -> Mapping[str, float]:
    """As `worst_error`, of what else the kernels can do: attention that is split, a generation, several sequences."""
    steps: Mapping[str, tuple[str, Callable[..., Interpreted]]] = {
        "split": ("decode/llama-tiny/b1-ctx21-fp32", functools.partial(ModularStep, tiles=SPLIT_TILES)),
        "generation": ("decode/llama-tiny/b1-gen5+6-fp32", functools.partial(ModularStep, tiles=TINY_TILES)),
        "batch": ("decode/llama-tiny/b4-ctx21-fp32", BatchedStep),
    }
    found: dict[str, float] = {}
    for name, (workload_name, make) in steps.items():
        workload = workloads.named(workload_name)
        weights = llama_weights.random(workload, device="cpu", seed=_SEED)
        inputs = fresh_inputs.fresh(workload, weights, seed)
        found[name] = _error(make(workload, weights, inputs), workload, weights, inputs)
    return found


def poison(step: Interpreted) -> None:
    for tensor in (*step.outputs.values(), *step.scratch):
        tensor.fill_(float("nan") if tensor.is_floating_point() else -1)


def _error(step: Interpreted, workload: Decode, weights: Weights, inputs: Mapping[str, Tensor]) -> float:
    before = [constant.clone() for constant in weights.tensors()]
    poison(step)
    step()
    if not all(map(torch.equal, before, weights.tensors())):
        raise AssertionError(f"{workload.name}: a kernel changed the weights")
    return reference.worst_error(step.outputs, _expected(workload, weights, inputs, step.outputs))


def _expected(
    workload: Decode, weights: Weights, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]
) -> Mapping[str, Tensor]:
    if workload.steps == 1:
        return reference.decode(workload, weights, inputs, dtype=torch.float64)
    slack = reference.slack(registry.entry("decode", "modular").tolerance.of(workload.number))
    return reference.generate_guided(workload, weights, inputs, outputs, dtype=torch.float64, slack=slack)
