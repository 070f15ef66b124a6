"""On a GPU: the megakernel with one fault, and what the gate says of it. One fault a process: it may end in a trap.

    python -m tests.kernels.faults_on_gpu FAULT [--compile]

prints the gate's reason for refusing it, or nothing where it passes. A relaxed counter is not among them: the two that
are left order only what one step leaves to the next, 200 launches did not show it, and test_hand_overs finds it in the
machine's code. --compile: needs no GPU and goes as far as the
launch.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernels import offline, registry, workloads
from tests.kernels.cheats import CHEATS, Around
from tests.kernels.variants import Replacements, planted

WORKLOAD = workloads.named("decode/llama-1b/b1-ctx512-bf16")
REPEATS = 200
SEED = 1
_PACKAGE = "kernels.llama.megakernel"

PLANTED: Mapping[str, Replacements] = {
    "tags not looked at": {f"{_PACKAGE}.words": (("@missing bra POLL;", ""),)},
    "leftover counters": {f"{_PACKAGE}.kernel": (("gl.store(epoch_ptr, epoch)", "gl.store(epoch_ptr, base)"),)},
    "unwritten row": {
        f"{_PACKAGE}.kernel": (
            (
                "gl.store(logits + logit_rows, product_low)",
                "gl.store(logits + logit_rows, product_low, logit_rows != 99)",
            ),
        )
    },
}
FAULTS = (*PLANTED, *CHEATS)


def prepared(fault: str, *given: Any) -> Any:
    """The step with this fault; the right one for a name that is none."""
    step = importlib.import_module(f"{_PACKAGE}.step").prepare(*given)
    return CHEATS.get(fault, Around)(step)


def refused(fault: str) -> str:
    """The gate's reason; empty where it accepts."""
    from kernels.benchmarks import bench_decode
    from perfci.bench import gate
    from perfci.bench.case import Case
    from perfci.bench.faults import IncorrectOutput
    from perfci.model import Workload

    weights = bench_decode.shared_weights(WORKLOAD.name)
    entry = registry.entry("decode", "megakernel")
    case = Case(
        workload=Workload(WORKLOAD.name),
        implementation=fault,
        fresh_inputs=lambda seed: bench_decode.fresh_inputs.fresh(WORKLOAD, weights, seed),
        reference=lambda inputs: bench_decode.expected(WORKLOAD, inputs),
        prepare=lambda inputs: prepared(fault, WORKLOAD, weights, inputs),
        tolerance=entry.tolerance.of(WORKLOAD.number),
        exact=("token",),
        bitwise=True,
        repeats=REPEATS,
    )
    try:
        gate.check(case, seed=SEED)
    except IncorrectOutput as wrong:
        return str(wrong)
    return ""


def main(fault: str, *, compile_only: bool) -> str:
    with tempfile.TemporaryDirectory() as folder, planted(PLANTED.get(fault, {}), Path(folder)):
        if not compile_only:
            return refused(fault)
        found = offline.compiled(WORKLOAD, lambda *given: prepared(fault, *given), architecture=90)
        return f"compiled {', '.join(found)}"


if __name__ == "__main__":
    print(main(sys.argv[1], compile_only="--compile" in sys.argv))
