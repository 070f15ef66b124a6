"""Launches on equal inputs: outputs that move, choices of which more than one is right, buffers' guards."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from perfci.bench import gate, verdict
from perfci.bench.case import Tensors
from perfci.bench.faults import CaseError, IncorrectOutput
from perfci.bench.verdict import Reference, Repeats
from tests.bench import generation
from tests.bench.generation import TWINS, Generating
from tests.bench.steps import Honest, case


class Racy(Honest):
    """Wrong in the launches 5, 10, 15, …, as a signal without its release may be."""

    def solve(self) -> None:
        super().solve()
        if self.launches % 5 == 0:
            self.y[2] = self.hidden[3]


class RacyWithinTolerance(Honest):
    def solve(self) -> None:
        super().solve()
        if self.launches % 5 == 0:
            self.y[2, 0] *= 1 + 1e-6


class RacyWithoutAPromise(Racy):
    bitwise = False


class WrongAtFirst(Honest):
    def solve(self) -> None:
        super().solve()
        if self.launches == 1:
            self.y[0] = 0


class WrongAlways(Honest):
    def solve(self) -> None:
        super().solve()
        self.y[0] = 0


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Racy, "10 of 49 repeats differ in their bits .* 10 of 50 launches are wrong .y is off by .* are a race"),
        (RacyWithinTolerance, "10 of 49 repeats differ in their bits .* 0 of 50 launches are wrong; .* are a race"),
        (RacyWithoutAPromise, "^10 of 50 launches are wrong .y is off by .* are a race"),
        (WrongAtFirst, "49 of 49 repeats differ in their bits .* 1 of 50 launches are wrong .y is off"),
        (WrongAlways, "^y is off by [^;]*$"),
    ],
)
def test_an_output_that_moves_on_equal_inputs_is_counted_and_called_a_race(step: Any, message: str) -> None:
    with pytest.raises(IncorrectOutput, match=message) as caught:
        gate.check(case(step, repeats=50), seed=1)
    assert caught.value.error is not None
    assert (caught.value.error > 1e-5) == (step is not RacyWithinTolerance)


def test_a_race_that_three_repeats_miss_is_found_by_more() -> None:
    assert gate.check(case(Racy), seed=1).error is not None
    with pytest.raises(IncorrectOutput, match="1 of 4 repeats differ"):
        gate.check(case(Racy, repeats=5), seed=1)


def test_equal_repeats_are_launched_as_often_as_asked_and_compared_with_the_reference_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[object] = []
    right = verdict.compare

    def counting(*arguments: Any, **options: Any) -> float:
        compared.append(arguments)
        return right(*arguments, **options)

    monkeypatch.setattr(verdict, "compare", counting)
    step = gate.check(case(repeats=20), seed=1).step
    assert isinstance(step, Honest)
    assert (step.launches, len(compared)) == (20, 1)
    gate.check(case(repeats=20, bitwise=False), seed=1)
    assert len(compared) == 1 + 20


class OtherTwin(Generating):
    def choose(self, step: int) -> int:
        return TWINS[1] if step == 0 else super().choose(step)


class ThirdToken(Generating):
    def choose(self, step: int) -> int:
        return 7 if step == 0 else super().choose(step)


class NotWritten(Generating):
    def __call__(self) -> None:
        super().__call__()
        self.token[-1] = torch.iinfo(torch.int64).min


class WrongInItsSecondStep(Generating):
    """Its tokens stay right; what it goes on from is not."""

    def go_on(self, step: int) -> None:
        super().go_on(step)
        if step == 1:
            self.state += 0.01


class RacyTwins(Generating):
    """Either choice is right, but equal inputs must give equal outputs."""

    def choose(self, step: int) -> int:
        return TWINS[self.launches % 2] if step == 0 else super().choose(step)


class WritesBehindItsOutput(Generating):
    def __call__(self) -> None:
        super().__call__()
        self.guards[1][0] = 0


class WritesBeforeItsOutput(Generating):
    def __call__(self) -> None:
        super().__call__()
        self.guards[0][0] = 0


@pytest.mark.parametrize("step", [Generating, OtherTwin])
def test_either_of_two_tokens_that_are_as_good_as_equal_is_right(step: Any) -> None:
    checked = gate.check(generation.case(step), seed=3)
    assert checked.error is not None
    assert checked.error < 1e-5
    assert int(checked.step.outputs["token"][0]) == (TWINS[1] if step is OtherTwin else TWINS[0])
    assert gate.not_timed(checked, reason="").verified


def test_the_two_choices_go_on_differently() -> None:
    first, second = (
        gate.check(generation.case(step), seed=3).step.outputs["scores"] for step in (Generating, OtherTwin)
    )
    assert (first - second).norm() > 1e-2 * first.norm()


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (ThirdToken, "scores is off|token differs"),
        (NotWritten, "token differs in 1 of 4 elements: -9223372036854775808 at [3]"),
        (WrongInItsSecondStep, "scores is off by"),
        (RacyTwins, "1 of 2 repeats differ in their bits"),
        (WritesBehindItsOutput, "changed its constants (weights, earlier keys and values, guard bands)"),
        (WritesBeforeItsOutput, "changed its constants (weights, earlier keys and values, guard bands)"),
    ],
)
def test_a_fault_of_a_generation_is_refused(step: Any, message: str) -> None:
    with pytest.raises(IncorrectOutput, match="|".join(map(re.escape, message.split("|")))):
        gate.check(generation.case(step), seed=3)


def test_two_right_choices_in_turn_are_right_where_no_equal_bits_are_promised() -> None:
    assert gate.check(generation.case(RacyTwins, bitwise=False), seed=3).error is not None


def test_equal_choices_cost_one_reference_and_each_other_choice_one_more() -> None:
    calls: list[list[int]] = []

    def counting(inputs: Tensors, outputs: Tensors) -> Tensors:
        assert outputs.keys() == {"token"}
        calls.append(outputs["token"].tolist())
        outputs["token"].zero_()  # a copy: neither the step's nor the gate's
        return generation.guided(inputs, {"token": torch.tensor(calls[-1])})

    gate.check(generation.case(Generating, guided_reference=counting, repeats=30), seed=3)
    assert len(calls) == 1
    gate.check(generation.case(RacyTwins, guided_reference=counting, repeats=30, bitwise=False), seed=3)
    assert len(calls) == 1 + 2


def test_a_race_with_ever_new_choices_is_not_compared_for_ever() -> None:
    given = generation.case(Generating)
    step = Generating(generation.fresh(1))
    step.load(generation.fresh(1))
    repeats = Repeats(given, Reference(given, generation.fresh(1), step))
    for launch in range(60):
        step()
        outputs = {name: tensor.clone() for name, tensor in step.outputs.items()}
        if launch:
            outputs["token"][0] = 100 + launch
        repeats.take(outputs)
    assert (repeats.differing, repeats.wrong, repeats.unjudged) == (59, 15, 44)
    with pytest.raises(IncorrectOutput, match=r"59 of 59 repeats differ .* 15 of 60 launches.*, 44 not compared"):
        repeats.verdict()


def test_a_guided_reference_that_hands_back_what_it_was_given_cannot_judge() -> None:
    with pytest.raises(CaseError, match="own buffers"):
        gate.check(generation.case(Generating, guided_reference=lambda inputs, outputs: outputs), seed=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reference": lambda inputs: {}}, "gives reference and guided_reference"),
        ({"repeats": 0}, "repeats = 0"),
    ],
)
def test_a_case_that_contradicts_itself_is_the_benchmark_s_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CaseError, match=message):
        gate.check(generation.case(Generating, **changes), seed=3)
