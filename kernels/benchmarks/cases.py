"""A registry entry at a workload, as perfci takes it: the same for every operation."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernels.registry import Entry
from kernels.workloads import Sized
from perfci.bench.case import Case, CheckOnly, Facts, Step, Tensors
from perfci.model import Workload

# A race shows in some repeats and not in others; PyTorch's own kernels are not what is on trial here.
REPEATED_STEPS = {"triton": 200, "torch": 3}
LEAST_REPEATS = 3


def case_of(
    workload: Sized,
    entry: Entry,
    *,
    device: str,
    fresh_inputs: Callable[[int], Tensors],
    prepare: Callable[[Tensors], Step],
    reference: Callable[[Tensors], Tensors] | None = None,
    guided_reference: Callable[[Tensors, Tensors], Tensors] | None = None,
    exact: tuple[str, ...] = (),
    steps: int = 1,
    check_only: CheckOnly | None = None,
    trace: Callable[[], Facts] | None = None,
) -> Case:
    """`device`: `cuda` or `cpu`, where it is to run; `steps`: of one launch; the rest is as in Case."""
    described = Workload(
        name=workload.name,
        tokens=workload.tokens,
        bytes_moved=workload.bytes_moved,
        flops=workload.flops,
        working_set_bytes=workload.working_set_bytes,
    )
    if reason := entry.unsupported(capability(device), workload, multiprocessors=multiprocessors(device)):
        return Case(workload=described, implementation=entry.name, unsupported=reason)
    return Case(
        workload=described,
        implementation=entry.name,
        fresh_inputs=fresh_inputs,
        reference=reference,
        guided_reference=guided_reference,
        prepare=prepare,
        tolerance=entry.tolerance_for(workload).of(workload.number),
        tolerance_reason=entry.tolerance_for(workload).reason,
        exact=exact,
        bitwise=entry.bitwise,
        repeats=repeats(entry, device=device, steps=steps),
        check_only=check_only,
        trace=trace,
    )


def repeats(entry: Entry, *, device: str, steps: int) -> int:
    """Launches on equal inputs before the timing: on a GPU 200 steps in Triton, however many a launch makes."""
    wanted = REPEATED_STEPS[entry.language] if device == "cuda" else LEAST_REPEATS
    return max(LEAST_REPEATS, -(-wanted // steps))


def capability(device: str) -> int | None:
    """Compute capability as 10 x major + minor; None for a CPU."""
    if device == "cpu":
        return None
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


def multiprocessors(device: str) -> int | None:
    """None for a CPU."""
    return None if device == "cpu" else torch.cuda.get_device_properties(0).multi_processor_count
