"""The megakernel's tape without a GPU: validated, run in torch against the reference, and in random orders."""

from __future__ import annotations

import functools

import torch

from kernels import reference, workloads
from kernels.llama import inputs as fresh_inputs
from kernels.llama import weights as llama_weights
from kernels.llama.megakernel.fuzzer import fuzz, launched
from kernels.llama.megakernel.schedule import schedule
from kernels.llama.megakernel.tag_order import validate_tags
from kernels.llama.megakernel.validator import validate

_WORKLOAD = "decode/llama-tiny/b1-ctx21-fp32"
_WEIGHTS_SEED = 1
_PROGRAMS, _ROWS, _SPLITS = 5, 8, 2
_SEEDS = 20


@functools.cache
def worst_error(seed: int) -> float:
    """Of two launches in order, one after the other on different inputs, against the float64 reference.

    InvalidTape where accesses are not ordered, by counters or by tags; AssertionError for a random order, of twenty,
    that changes a bit or comes to a deadlock.
    """
    workload = workloads.named(_WORKLOAD)
    weights = llama_weights.random(workload, device="cpu", seed=_WEIGHTS_SEED)
    tape = schedule(workload, programs=_PROGRAMS, rows=_ROWS, splits=_SPLITS)
    validate(tape, workload)
    validate_tags(tape, workload)
    launches = [fresh_inputs.fresh(workload, weights, seed + number) for number in range(2)]
    right = list(launched(tape, workload, weights, launches))
    errors = [
        reference.worst_error(outputs, reference.decode(workload, weights, inputs, dtype=torch.float64))
        for inputs, outputs in zip(launches, right, strict=True)
    ]
    for verdict in fuzz(tape, workload, weights, launches, seeds=range(seed, seed + _SEEDS), expected=right):
        if verdict.wrong:
            raise AssertionError(f"{workload.name}: in the random order {verdict.seed}, {verdict.wrong}")
    return max(errors)
