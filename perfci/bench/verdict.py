"""Right or wrong: outputs of launches on equal inputs against their reference, and against each other."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from perfci.bench import buffers
from perfci.bench.agreement import compare
from perfci.bench.case import Case, Step, Tensors
from perfci.bench.faults import CaseError, IncorrectOutput

# A race can choose other tokens each time, and each choice needs a reference of its own. It is known to be wrong by
# then; the first of them tell how wrong.
_MOST_REFERENCES = 16
_MOVING = "outputs that move on equal inputs are a race, or something that one launch leaves to the next"


class Reference:
    """What is expected of a step that was given `inputs`; computed when first asked for, after the candidate ran.

    So its memory cannot be what the candidate then finds in a buffer. A guided one is kept by the bits that guided it:
    equal outputs cost one reference.
    """

    def __init__(self, case: Case, inputs: Tensors, step: Step) -> None:
        self._case = case
        self._inputs = inputs
        self._step = step
        self._known: list[tuple[Tensors, Tensors]] = []

    @property
    def computed(self) -> int:
        return len(self._known)

    def of(self, outputs: Mapping[str, Tensor]) -> Tensors | None:
        """Expected outputs by name; None where the case has no reference."""
        if not self._case.has_reference:
            return None
        guide = self._guide(outputs)
        for known, expected in self._known:
            if buffers.same_bits(known, guide):
                return expected
        expected = self._compute(buffers.snapshot(guide))
        self._known.append((guide, expected))
        return expected

    def _guide(self, outputs: Mapping[str, Tensor]) -> Tensors:
        if self._case.guided_reference is None:
            return {}
        return {k: v for k, v in outputs.items() if k in self._case.exact or not v.dtype.is_floating_point}

    def _compute(self, guide: Tensors) -> Tensors:
        if self._case.guided_reference is not None:
            expected = self._case.guided_reference(self._inputs, guide)
        else:
            assert self._case.reference is not None
            expected = self._case.reference(self._inputs)
        own = {_storage(tensor) for tensor in (*self._step.outputs.values(), *guide.values())}
        if any(_storage(tensor) in own for tensor in expected.values()):
            raise CaseError("the reference returns the implementation's own buffers")
        return expected


class Repeats:
    """Launches on equal inputs: how many there were, how many gave other bits than the first, how many were wrong."""

    def __init__(self, case: Case, reference: Reference) -> None:
        self._case = case
        self._reference = reference
        self._first: Mapping[str, Tensor] | None = None
        self._first_is_wrong = False
        self._error: float | None = None
        self._reason = ""
        self.launches = self.differing = self.wrong = self.unjudged = 0

    def take(self, outputs: Mapping[str, Tensor]) -> None:
        """Outputs of one more launch; they are kept where they are the first."""
        self.launches += 1
        if self._first is None:
            self._first = outputs
            self._first_is_wrong = not self._judge(outputs)
        elif not self._case.bitwise:
            self._judge(outputs)
        elif buffers.same_bits(self._first, outputs):
            self.wrong += self._first_is_wrong
        else:
            self.differing += 1
            self._judge(outputs)

    def verdict(self) -> float | None:
        """Worst error of any launch, None without a reference. Raises IncorrectOutput."""
        if not self.wrong and not self.differing:
            return self._error
        reason = self._reason
        if self.differing:
            reason = (
                f"{self.differing} of {self.launches - 1} repeats differ in their bits from the first launch, against "
                f"its promise; {self._counted()}; {_MOVING}"
            )
        elif self.wrong < self.launches:
            reason = f"{self._counted()}; {_MOVING}"
        raise IncorrectOutput(reason, error=self._error)

    def _counted(self) -> str:
        aside = f", {self.unjudged} not compared" if self.unjudged else ""
        said = f" ({self._reason})" if self._reason else ""
        return f"{self.wrong} of {self.launches} launches are wrong{said}{aside}"

    def _judge(self, outputs: Mapping[str, Tensor]) -> bool:
        if self.differing and self._reference.computed >= _MOST_REFERENCES:
            self.unjudged += 1
            return False
        try:
            error = verify(self._case, outputs, self._reference.of(outputs))
        except IncorrectOutput as wrong:
            self.wrong += 1
            self._reason = self._reason or str(wrong)
            self._error = worse(self._error, wrong.error)
            return False
        self._error = worse(self._error, error)
        return True


def verify(case: Case, outputs: Mapping[str, Tensor], expected: Tensors | None, *, timed: bool = False) -> float | None:
    """Largest error of any output; None without a reference, where nothing may be NaN. Raises IncorrectOutput."""
    try:
        if expected is not None:
            return compare(outputs, expected, exact=case.exact, tolerance=case.tolerance)
    except IncorrectOutput as error:
        raise IncorrectOutput(f"{'when timed, ' if timed else ''}{error}", error=error.error) from error
    for name, output in outputs.items():
        if output.dtype.is_floating_point and bool(torch.isnan(output).any()):
            raise IncorrectOutput(f"{name} holds NaN: not written, or not a number")
    return None


def worse(left: float | None, right: float | None) -> float | None:
    return right if left is None else left if right is None else max(left, right)


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())
