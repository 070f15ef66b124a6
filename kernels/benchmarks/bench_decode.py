"""One decode step of one sequence: every implementation at the sizes that suit the device.

pytest kernels/benchmarks/bench_decode.py -p perfci.bench.plugin
"""

from __future__ import annotations

import functools
import os

import pytest
import torch

from kernels import reference, registry, workloads
from kernels.llama import inputs as fresh_inputs
from kernels.llama import weights as llama_weights
from kernels.llama.weights import Weights
from kernels.workloads import Decode
from perfci.bench.case import Case, CheckOnly, Measure, Tensors
from perfci.model import Workload

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WEIGHTS_SEED = 1

# A library's warning (of a deprecation, of a missing TF32 setting) is no fault of the commit that is measured.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize("implementation", registry.names("decode"))
@pytest.mark.parametrize("workload", [w.name for w in workloads.nightly(DEVICE) if w.steps == 1])
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
    reason = entry.unsupported(capability())
    if reason:
        return Case(workload=described, implementation=entry.name, unsupported=reason)
    return Case(
        workload=described,
        implementation=entry.name,
        fresh_inputs=lambda seed: fresh_inputs.fresh(workload, shared_weights(workload.name), seed),
        reference=lambda inputs: expected(workload, inputs),
        prepare=lambda inputs: entry.load()(workload, shared_weights(workload.name), inputs),
        tolerance=entry.tolerance.of(workload.number),
        tolerance_reason=entry.tolerance.reason,
        exact=("token",),
        bitwise=entry.bitwise,
        check_only=check_only(workload, entry) if entry.language == "triton" and DEVICE == "cpu" else None,
    )


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
    """One copy for all implementations of a process: 2.5 GB for the 1B model."""
    return llama_weights.random(workloads.named(workload), device=DEVICE, seed=WEIGHTS_SEED)


def expected(workload: Decode, inputs: Tensors) -> Tensors:
    """float64 where weights are float32; float32 where they are bf16, whose rounding is ten thousand times coarser."""
    dtype = torch.float64 if workload.number == "fp32" else torch.float32
    return reference.decode(workload, shared_weights(workload.name), inputs, dtype=dtype)
