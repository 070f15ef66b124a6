"""Does an output agree with its reference?

Two bounds, both set by a case's tolerance t. Over an output as a whole: |out - ref| <= t |ref| in the 2-norm, the
error that is reported. For each element: |out_i - ref_i| <= 10 t (rms(ref) + |ref_i|). The first alone would let one
wrong element of a hundred thousand pass; rounding errors of a whole output that keep to the first lie within five
standard deviations, half of what the second allows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from perfci.bench.faults import CaseError, IncorrectOutput

ELEMENT_FACTOR = 10.0


def compare(
    outputs: Mapping[str, Tensor], expected: Mapping[str, Tensor], *, exact: Sequence[str], tolerance: float
) -> float:
    """Largest norm-relative error of any output; 0 where all are exact.

    Outputs and reference have equal names and shapes; integers, truth values and the names in `exact` must be equal.
    Raises IncorrectOutput, and CaseError for a reference that cannot judge.
    """
    _check_names(outputs, expected, exact)
    if not any(bool(torch.count_nonzero(tensor)) for tensor in expected.values()):
        raise CaseError("the reference is zero everywhere: it could not tell an output of zeros from a right one")
    for name in sorted(expected):
        _check_form(name, outputs[name], expected[name])
    discrete = [n for n in sorted(expected) if n in exact or not expected[n].dtype.is_floating_point]
    # Those with a distance first: it tells more than a token that came out wrong because of it.
    close = [n for n in sorted(expected) if n not in discrete]
    worst = max((_check_close(n, outputs[n], expected[n], tolerance) for n in close), default=0.0)
    for name in discrete:
        _check_equal(name, outputs[name], expected[name])
    return worst


def _check_names(outputs: Mapping[str, Tensor], expected: Mapping[str, Tensor], exact: Sequence[str]) -> None:
    if absent := sorted(expected.keys() - outputs.keys()):
        raise IncorrectOutput(f"no output named {', '.join(absent)}; there are {', '.join(sorted(outputs)) or 'none'}")
    if unknown := sorted(outputs.keys() - expected.keys()):
        raise CaseError(f"no reference for output {', '.join(unknown)}")
    if unknown := sorted(set(exact) - expected.keys()):
        raise CaseError(f"exact names {', '.join(unknown)}, which the reference does not have")


def _check_form(name: str, output: Tensor, expected: Tensor) -> None:
    if type(output) not in (Tensor, torch.nn.Parameter):
        raise IncorrectOutput(f"{name} is a {type(output).__name__}, no plain tensor")
    if output.shape != expected.shape:
        raise IncorrectOutput(f"{name} has shape {tuple(output.shape)}, the reference {tuple(expected.shape)}")
    if output.dtype.is_floating_point != expected.dtype.is_floating_point:
        raise IncorrectOutput(f"{name} is {output.dtype}, the reference {expected.dtype}")
    if expected.dtype.is_complex or output.dtype.is_complex:
        raise CaseError(f"{name} is complex; hand over its real and imaginary part")
    if expected.dtype.is_floating_point and not bool(torch.isfinite(expected).all()):
        raise CaseError(f"the reference of {name} is not finite")


def _check_equal(name: str, output: Tensor, expected: Tensor) -> None:
    wrong = output.cpu().to(expected.dtype) != expected.cpu()
    if count := int(wrong.sum()):
        at = tuple(int(i) for i in wrong.nonzero()[0])
        place = at if wrong.dim() else ()
        raise IncorrectOutput(
            f"{name} differs in {count} of {wrong.numel()} elements: {output.cpu()[place].item()!r}"
            f" at {list(place)}, the reference has {expected.cpu()[place].item()!r}"
        )


def _check_close(name: str, output: Tensor, expected: Tensor, tolerance: float) -> float:
    reference = expected.to(output.device, torch.float64)
    difference = (output.to(torch.float64) - reference).abs_()
    if bad := int((~torch.isfinite(difference)).sum()):
        raise IncorrectOutput(f"{name} is not finite in {bad} of {difference.numel()} elements")
    norm = float(torch.linalg.vector_norm(reference))
    distance = float(torch.linalg.vector_norm(difference))
    error = distance / norm if norm > 0 else (0.0 if distance == 0 else math.inf)
    shown = error if math.isfinite(error) else None
    if not error <= tolerance:
        raise IncorrectOutput(f"{name} is off by {error:.3g} of its norm, more than {tolerance:.3g}", error=shown)
    rms = norm / math.sqrt(max(1, reference.numel()))
    excess = difference - ELEMENT_FACTOR * tolerance * (rms + reference.abs())
    if reference.numel() and float(excess.max()) > 0:
        place = tuple(int(i) for i in torch.unravel_index(excess.argmax(), excess.shape)) if excess.dim() else ()
        raise IncorrectOutput(
            f"{name} is {float(output[place]):.6g} at {list(place)}, the reference {float(reference[place]):.6g}:"
            f" more than {ELEMENT_FACTOR:g} tolerances of {tolerance:.3g} apart",
            error=shown,
        )
    return error
