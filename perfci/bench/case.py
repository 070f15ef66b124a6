"""What a suite hands to perfci to have one implementation checked and timed.

A suite's benchmark file asks for the `measure` fixture of `perfci.bench.plugin` and calls it with one Case:

    @pytest.mark.parametrize("entry", ENTRIES, ids=str)
    def test_decode(measure, entry):
        measure(case_of(entry))

perfci then draws fresh inputs, compares with the reference, poisons what a step must overwrite, times, and
checks the outputs that were timed. Torch appears in annotations alone: this module imports without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from perfci.model import Workload

if TYPE_CHECKING:
    from torch import Tensor

Tensors = Mapping[str, "Tensor"]
Facts = Mapping[str, float | int | str | bool]


class Step(Protocol):
    """One implementation bound to its buffers, ready to be launched over and over."""

    @property
    def outputs(self) -> Tensors:
        """Live buffers that every launch overwrites completely; compared with the reference by name."""

    @property
    def scratch(self) -> Sequence[Tensor]:
        """Floating-point intermediates that a launch must write before it reads; poisoned with NaN."""

    @property
    def constants(self) -> Sequence[Tensor]:
        """What a launch may read and must leave as it is: weights, earlier keys and values."""

    def load(self, inputs: Tensors) -> None:
        """Copy fresh contents into the buffers that a launch reads; addresses stay (a graph holds them)."""

    def __call__(self) -> None:
        """Launch one step on the current stream, without waiting for it. Twice on equal inputs is legal."""


@dataclass(frozen=True, slots=True)
class CheckOnly:
    """This device can tell whether the implementation is right, but not how fast it is.

    check: raises AssertionError with the offending value when an output is wrong; returns small facts
        (registers, spills, shared memory) that go into the Measurement's extras.
    reason: why there is no time, e.g. "Triton's interpreter on a CPU".
    """

    check: Callable[[], Facts]
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One implementation of one workload.

    fresh_inputs: seed -> what `Step.load` takes. Different seeds give different contents.
    reference: inputs -> outputs by name, in float32 or float64, computed without the implementation.
    guided_reference: (inputs, outputs) -> expected outputs, instead of `reference`; for steps that choose, where a
        choice decides what is right afterwards and more than one may be right. It is given copies of the outputs that
        are integers or named in `exact`, follows those of the choices that are right or as good as right, and returns
        its own in place of the others, so that the comparison fails. A choice may be any integer: one that was not
        written is the least of its type.
    tolerance: largest norm-relative error |out - ref| / |ref| of any output; with the reason for it.
    exact: names of outputs that must equal the reference (a token id).
    bitwise: the implementation promises the same bits on a repeat.
    repeats: launches on equal inputs before the timing, 1 or more. Each is checked; where equal bits are promised,
        those that have them are compared with the reference once.
    unsupported: why it cannot run here; everything else is ignored then.
    check_only: set where this device gives a verdict but no time.
    trace: called after a good timing and outside of it; its facts go into the Measurement's extras, but for one named
        `trace`: base64 of up to 128 KiB that is kept whole. What it raises is told there as `trace_failed` and takes
        no time away.
    """

    workload: Workload
    implementation: str
    fresh_inputs: Callable[[int], Tensors] | None = None
    reference: Callable[[Tensors], Tensors] | None = None
    guided_reference: Callable[[Tensors, Tensors], Tensors] | None = None
    prepare: Callable[[Tensors], Step] | None = None
    tolerance: float = 0.0
    tolerance_reason: str = ""
    exact: tuple[str, ...] = ()
    bitwise: bool = False
    repeats: int = 3
    unsupported: str = ""
    check_only: CheckOnly | None = None
    trace: Callable[[], Facts] | None = None

    @property
    def has_reference(self) -> bool:
        return self.reference is not None or self.guided_reference is not None


class Measure(Protocol):
    """The `measure` fixture: checks and times a case; a wrong output fails the test that called it."""

    def __call__(self, case: Case) -> None: ...
