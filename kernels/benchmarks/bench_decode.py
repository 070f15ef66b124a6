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
from kernels.llama import inputs as fresh_inputs
from kernels.llama import weights as llama_weights
from kernels.llama.weights import Weights
from kernels.workloads import Decode, LlamaShape, Number
from perfci.bench.case import Case, CheckOnly, Measure, Tensors
from perfci.model import Workload

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WEIGHTS_SEED = 1

# A library's warning (of a deprecation, of a missing TF32 setting) is no fault of the commit that is measured.
pytestmark = pytest.mark.filterwarnings("default")


# A race shows in some repeats and not in others; PyTorch's own kernels are not what is on trial here.
REPEATED_STEPS = {"triton": 200, "torch": 3}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    try:
        chosen = workloads.chosen(metafunc.config.getoption("--workloads"), DEVICE)
    except (KeyError, ValueError) as error:
        raise pytest.UsageError(f"--workloads: {error.args[0]}") from error
    metafunc.parametrize("workload", [workload.name for workload in chosen])
    metafunc.parametrize("implementation", registry.names("decode"))


def test_decode(measure: Measure, workload: str, implementation: str) -> None:
    measure(decode_case(workloads.named(workload), registry.entry("decode", implementation)))


def decode_case(workload: Decode, entry: registry.Entry) -> Case:
    described = Workload(
        name=workload.name,
        tokens=workload.tokens,
        bytes_moved=workload.bytes_moved,
        flops=workload.flops,
        working_set_bytes=workload.working_set_bytes,
    )
    reason = entry.unsupported(capability(), workload)
    if reason:
        return Case(workload=described, implementation=entry.name, unsupported=reason)
    tolerance = entry.tolerance.of(workload.number)
    return Case(
        workload=described,
        implementation=entry.name,
        fresh_inputs=lambda seed: fresh_inputs.fresh(workload, shared_weights(workload.name), seed),
        reference=None if workload.steps > 1 else lambda inputs: expected(workload, inputs),
        guided_reference=guided(workload, tolerance) if workload.steps > 1 else None,
        prepare=lambda inputs: entry.load()(workload, shared_weights(workload.name), inputs),
        tolerance=tolerance,
        tolerance_reason=entry.tolerance.reason,
        exact=("token",),
        bitwise=entry.bitwise,
        repeats=repeats(workload, entry),
        check_only=check_only(workload, entry) if entry.language == "triton" and DEVICE == "cpu" else None,
    )


def repeats(workload: Decode, entry: registry.Entry) -> int:
    """Launches on equal inputs before the timing: 200 steps of a Triton implementation, however many a launch makes."""
    steps = REPEATED_STEPS[entry.language if DEVICE == "cuda" else "torch"]
    return max(REPEATED_STEPS["torch"], -(-steps // workload.steps))


def check_only(workload: Decode, entry: registry.Entry) -> CheckOnly:
    from kernels.benchmarks import off_device

    seed = int(os.environ.get("PERFCI_SEED", "0"))
    return CheckOnly(
        check=lambda: off_device.check(entry, workload, shared_weights(workload.name), seed=seed),
        reason=off_device.REASON.format(target=off_device.target(entry), compiled=off_device.COMPILED_WORKLOAD),
    )


def capability() -> int | None:
    """Compute capability as 10 x major + minor; None without a GPU."""
    if DEVICE == "cpu":
        return None
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


@functools.cache
def shared_weights(workload: str) -> Weights:
    """One copy of a model for all workloads and implementations of a process: 2.5 GB for the 1B model."""
    wanted = workloads.named(workload)
    return llama_weights.for_context(_model_weights(wanted.shape, wanted.number), wanted)


@functools.cache
def _model_weights(shape: LlamaShape, number: Number) -> Weights:
    first = next(w for w in workloads.WORKLOADS if (w.shape, w.number) == (shape, number))
    return llama_weights.random(first, device=DEVICE, seed=WEIGHTS_SEED)


def expected(workload: Decode, inputs: Tensors) -> Tensors:
    return reference.decode(workload, shared_weights(workload.name), inputs, dtype=precision(workload))


def guided(workload: Decode, tolerance: float) -> Callable[[Tensors, Tensors], Tensors]:
    """The reference for several steps, which follows the tokens that an implementation picked (where it may)."""

    def expected_of(inputs: Tensors, outputs: Tensors) -> Tensors:
        weights = shared_weights(workload.name)
        slack = reference.slack(tolerance)
        return reference.generate_guided(workload, weights, inputs, outputs, dtype=precision(workload), slack=slack)

    return expected_of


def precision(workload: Decode) -> torch.dtype:
    """float64 where weights are float32; float32 where they are bf16, whose rounding is ten thousand times coarser."""
    return torch.float64 if workload.number == "fp32" else torch.float32
