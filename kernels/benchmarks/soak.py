"""Are they right on this device, over and over, and no further off than twice what PyTorch in bf16 is?

    python -m kernels.benchmarks.soak decode/llama-1b/b1-ctx512-bf16 [modular-pdl ...] [--repeats 200] [--seed 0]

prints JSON: an `Examined` for each implementation (those in Triton that run here, unless named) with what is wrong
with it, and for each family of registry.Bits whether its members gave equal bits. Exit code 1 where something is
wrong, 2 where nothing could be tried. Takes no times. An output that moves on equal inputs is a race: each repeat is
compared bit for bit.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from kernels import reference, registry, workloads
from kernels.benchmarks import bench_decode, cases
from kernels.llama import inputs as fresh_inputs
from kernels.llama.weights import Weights
from kernels.workloads import Decode
from perfci.bench import buffers
from perfci.bench.case import Step, Tensors

ERROR_FACTOR = 2.0
"""How many times PyTorch's error an implementation's may be, in each output."""

TWIN = "torch-eager"


@dataclass(frozen=True, slots=True)
class Examined:
    """What one implementation did on one draw of inputs.

    error: worst of its outputs, norm-relative. worst_ratio: greatest error of an output over the twin's error of
    the same output; worst_output: its name. different: repeats whose outputs had other bits than the first launch's.
    changed: whether it wrote to inputs, weights, other positions' keys and values, or beyond a buffer.
    """

    error: float
    twin_error: float
    worst_ratio: float
    worst_output: str
    repeats: int
    different: int
    changed: bool

    def faults(self, *, bitwise: bool) -> tuple[str, ...]:
        """In words; none: it is right. bitwise: whether equal bits were promised."""
        found = []
        if not self.worst_ratio <= ERROR_FACTOR:
            found.append(f"error of {self.worst_output} is {self.worst_ratio:.3g} times that of {TWIN}")
        if bitwise and self.different:
            found.append(f"other bits in {self.different} of {self.repeats} repeats on equal inputs")
        if self.changed:
            found.append("it changed its constants or wrote beyond a buffer")
        return tuple(found)


Errors = Callable[[Tensors], Mapping[str, float]]
"""outputs -> norm-relative error by output; see `output_errors`."""


def examined(
    step: Step, errors_of: Errors, *, twin: Mapping[str, float], repeats: int
) -> tuple[Examined, dict[str, Tensor]]:
    """Launch it `repeats` + 1 times on the inputs that it holds, poisoned before each; and the first outputs.

    twin: the errors of PyTorch's outputs on the same inputs.
    """
    before = buffers.fingerprint(step.constants)
    first = launched(step)
    different = sum(not buffers.same_bits(first, launched(step)) for _ in range(repeats))
    changed = buffers.fingerprint(step.constants) != before
    errors = errors_of(first)
    ratios = {name: _ratio(error, twin[name]) for name, error in errors.items()}
    worst = max(ratios, key=lambda name: ratios[name])
    return Examined(
        error=max(errors.values()),
        twin_error=max(twin.values()),
        worst_ratio=ratios[worst],
        worst_output=worst,
        repeats=repeats,
        different=different,
        changed=changed,
    ), first


def launched(step: Step) -> dict[str, Tensor]:
    """Outputs of one launch, with outputs and scratch poisoned before it."""
    buffers.poison((*step.outputs.values(), *step.scratch))
    step()
    return buffers.snapshot(step.outputs)


def output_errors(
    workload: Decode, weights: Weights, inputs: Tensors, *, tolerance: float
) -> Callable[[Tensors], dict[str, float]]:
    """A function of outputs: norm-relative error by output, infinite for NaN and for a wrong token.

    For several steps a token is wrong that may not be chosen (`reference.generate_guided`, with the slack of
    `tolerance`).
    """
    dtype = bench_decode.precision(workload)

    def errors(outputs: Tensors) -> dict[str, float]:
        if workload.steps == 1:
            expected = reference.decode(workload, weights, inputs, dtype=dtype)
        else:
            slack = reference.slack(tolerance)
            expected = reference.generate_guided(workload, weights, inputs, outputs, dtype=dtype, slack=slack)
        found = {name: reference.worst_error(outputs, {name: right}) for name, right in expected.items()}
        return {name: math.inf if math.isnan(error) else error for name, error in found.items()}

    return errors


def same_bits_by_family(outputs: Mapping[str, Tensors]) -> dict[str, bool]:
    """Family of registry.Bits -> whether all of its members among `outputs` (by implementation) have equal bits."""
    families: dict[str, list[Tensors]] = {}
    for name, found in outputs.items():
        bits = registry.entry("decode", name).bits
        if bits is not None:
            families.setdefault(bits.family, []).append(found)
    return {
        family: all(buffers.same_bits(members[0], other) for other in members[1:])
        for family, members in families.items()
    }


def _ratio(error: float, twin: float) -> float:
    if error == 0.0:
        return 0.0
    return error / twin if 0.0 < twin < math.inf else math.inf


def soak(workload: Decode, names: Sequence[str], *, repeats: int, seed: int) -> dict[str, object]:
    """What `main` prints; `wrong` is whether anything is."""
    weights = bench_decode.shared_weights(workload.name)
    inputs = fresh_inputs.fresh(workload, weights, seed)

    def errors_of(entry: registry.Entry) -> Errors:
        return output_errors(workload, weights, inputs, tolerance=entry.tolerance_for(workload).of(workload.number))

    twin = registry.entry("decode", TWIN)
    twin_errors = errors_of(twin)(launched(twin.load()(workload, weights, inputs)))
    found: dict[str, dict[str, object]] = {}
    outputs: dict[str, Tensors] = {}
    for name in names:
        entry = registry.entry("decode", name)
        step = entry.load()(workload, weights, inputs)
        seen, outputs[name] = examined(step, errors_of(entry), twin=twin_errors, repeats=repeats)
        sys.stderr.write(f"{name}: {repeats} launches, {seen.different} other than the first\n")
        found[name] = {**asdict(seen), "faults": seen.faults(bitwise=entry.bitwise)}
    families = same_bits_by_family(outputs)
    wrong = any(facts["faults"] for facts in found.values()) or not all(families.values())
    return {"workload": workload.name, "implementations": found, "same_bits": families, "wrong": wrong}


def runnable(workload: Decode) -> list[str]:
    """The implementations in Triton that run this workload here."""
    capability = cases.capability(bench_decode.DEVICE)
    return [
        entry.name
        for entry in registry.ENTRIES
        if entry.language == "triton" and not entry.unsupported(capability, workload)
    ]


def refusal(workload: Decode, names: Sequence[str], *, capability: int | None) -> str:
    """Why one of these cannot be tried on a device of this capability (None: a CPU); empty: all can."""
    for name in names:
        try:
            entry = registry.entry("decode", name)
        except KeyError as error:
            return str(error.args[0])
        if reason := entry.unsupported(capability, workload):
            return f"{name}: {reason}"
        if capability is None and entry.language == "triton":
            return f"{name}: Triton needs a GPU, and there is none here; pytest tests/kernels tries it without one"
    return ""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kernels.benchmarks.soak", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("workload", choices=[workload.name for workload in workloads.WORKLOADS])
    parser.add_argument("implementations", nargs="*", metavar="IMPLEMENTATION")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    workload = workloads.named(options.workload)
    names = options.implementations or runnable(workload)
    if why_not := refusal(workload, names, capability=cases.capability(bench_decode.DEVICE)):
        parser.error(why_not)
    with torch.no_grad():
        told = soak(workload, names, repeats=options.repeats, seed=options.seed)
    json.dump(told, sys.stdout, indent=1)
    sys.stdout.write("\n")
    return int(bool(told["wrong"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
