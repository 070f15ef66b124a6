"""Decode steps: every implementation at the sizes that suit the device, or those of a group of workloads.

pytest kernels/benchmarks/bench_decode.py -p perfci.bench.plugin --workloads ctx4096
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import pytest
import torch

from kernels import reference, registry, workloads
from kernels.benchmarks import loaded, tracing
from kernels.benchmarks.cases import case_of
from kernels.llama import inputs as fresh_inputs
from kernels.llama import weights as llama_weights
from kernels.llama.weights import Weights
from kernels.workloads import Decode, LlamaShape, Number
from perfci.bench.case import Case, CheckOnly, Measure, Step, Tensors

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WEIGHTS_SEED = 1
TRACE_SEED = 1
TRACED = tracing.wanted(DEVICE)

# A library's warning (of a deprecation, of a missing TF32 setting) is no fault of the commit that is measured.
pytestmark = pytest.mark.filterwarnings("default")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    try:
        chosen = workloads.chosen(metafunc.config.getoption("--workloads"), DEVICE)
    except (KeyError, ValueError) as error:
        raise pytest.UsageError(f"--workloads: {error.args[0]}") from None
    metafunc.parametrize("workload", [workload.name for workload in chosen])
    metafunc.parametrize("implementation", registry.names("decode"))


def test_decode(measure: Measure, workload: str, implementation: str) -> None:
    measure(decode_case(workloads.named(workload), registry.entry("decode", implementation)))


def decode_case(workload: Decode, entry: registry.Entry) -> Case:
    def weights() -> Weights:
        return shared_weights(workload.name)

    taken: dict[str, float | int | str | bool] = {}

    def prepare(inputs: Tensors) -> Step:
        step: Step = entry.load()(workload, weights(), inputs)
        if DEVICE == "cuda" and entry.language == "triton":
            taken.update(loaded.costs(step))
        return step

    traced = tracing.trace_of(entry, workload, weights, lambda: traced_inputs(workload)) if TRACED else None
    return case_of(
        workload,
        entry,
        device=DEVICE,
        fresh_inputs=lambda seed: fresh_inputs.fresh(workload, weights(), seed),
        prepare=prepare,
        reference=None if workload.steps > 1 else lambda inputs: expected(workload, inputs),
        guided_reference=guided(workload, entry) if workload.steps > 1 else None,
        exact=("token",),
        steps=workload.steps,
        trace=lambda: {**taken, **(traced() if traced is not None else {})},
        check_only=check_only(workload, entry) if entry.language == "triton" and DEVICE == "cpu" else None,
    )


def check_only(workload: Decode, entry: registry.Entry) -> CheckOnly:
    from kernels.benchmarks import off_device

    seed = int(os.environ.get("PERFCI_SEED", "0"))
    return CheckOnly(
        check=lambda: off_device.check(entry, workload, shared_weights(workload.name), seed=seed),
        reason=off_device.reason(entry),
    )


@functools.cache
def shared_weights(workload: str) -> Weights:
    """One copy of a model for all workloads and implementations of a process: 2.5 GB for the 1B model."""
    wanted = workloads.named(workload)
    return llama_weights.for_context(_model_weights(wanted.shape, wanted.number), wanted)


@functools.cache
def _model_weights(shape: LlamaShape, number: Number) -> Weights:
    first = next(w for w in workloads.WORKLOADS if (w.shape, w.number) == (shape, number))
    return llama_weights.random(first, device=DEVICE, seed=WEIGHTS_SEED)


def traced_inputs(workload: Decode) -> Tensors:
    return fresh_inputs.fresh(workload, shared_weights(workload.name), TRACE_SEED)


def expected(workload: Decode, inputs: Tensors) -> Tensors:
    return reference.decode(workload, shared_weights(workload.name), inputs, dtype=precision(workload))


def guided(workload: Decode, entry: registry.Entry) -> Callable[[Tensors, Tensors], Tensors]:
    """The reference for several steps, which follows the tokens that an implementation picked (where it may)."""
    slack = reference.slack(entry.tolerance.of(workload.number))

    def expected_of(inputs: Tensors, outputs: Tensors) -> Tensors:
        weights = shared_weights(workload.name)
        return reference.generate_guided(workload, weights, inputs, outputs, dtype=precision(workload), slack=slack)

    return expected_of


def precision(workload: Decode) -> torch.dtype:
    """float64 where weights are float32; float32 where they are bf16, whose rounding is ten thousand times coarser."""
    return torch.float64 if workload.number == "fp32" else torch.float32
