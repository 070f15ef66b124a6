from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from torch import Tensor

from kernels.llama import inputs as fresh_inputs
from kernels.llama.megakernel.fuzzer import Outputs, Verdict, fuzz, launched
from kernels.llama.megakernel.instructions import Tape
from kernels.llama.megakernel.interpreter import Interpreter
from kernels.llama.megakernel.layout import Layout
from kernels.llama.megakernel.schedule import schedule
from kernels.llama.megakernel.validator import InvalidTape, validate
from kernels.llama.weights import Weights
from kernels.workloads import LLAMA_TINY, decode_workload
from tests.kernels.megakernel.faults import Place, places, waits_for, without_wait

TWO_STEPS = decode_workload("llama-tiny", LLAMA_TINY, context=18, number="fp32", device="test", steps=2)
POSITIONS = (16, 14, 15, 16, 14, 16, 14, 16, 14, 16)
"""First positions of consecutive launches of two steps: new rows fall into either split of 16 positions."""


@dataclass(frozen=True)
class Bench:
    """A tape with what it gives in order, ready for the fuzzer.

    needed, implied: where the validator refuses the tape without this wait, and where others make up for it.
    """

    tape: Tape
    layout: Layout
    weights: Weights
    launches: Sequence[dict[str, Tensor]]
    right: Sequence[Outputs]
    needed: Sequence[Place]
    implied: Sequence[Place]

    def waits(self, counter: str) -> list[Place]:
        """Where a program waits for this counter (the name without its indices), and has to."""
        return [place for place in places(self.tape, waits_for(self.layout, counter)) if place in self.needed]

    def fuzz(
        self,
        tape: Tape,
        seeds: Sequence[int],
        interpreter: type[Interpreter] = Interpreter,
        *,
        launches: int = len(POSITIONS),
    ) -> tuple[Verdict, ...]:
        """Another tape, or another interpreter, against what the right ones give."""
        return fuzz(
            tape,
            TWO_STEPS,
            self.weights,
            self.launches[:launches],
            seeds=seeds,
            expected=self.right[:launches],
            interpreter=interpreter,
        )


def valid(tape: Tape) -> bool:
    try:
        validate(tape, TWO_STEPS)
    except InvalidTape:
        return False
    return True


@pytest.fixture(scope="session")
def bench(tiny_weights: Weights) -> Callable[[int], Bench]:
    launches = [
        fresh_inputs.fresh(TWO_STEPS, tiny_weights, seed, position=position) for seed, position in enumerate(POSITIONS)
    ]
    made: dict[int, Bench] = {}

    def of(programs: int) -> Bench:
        if programs not in made:
            tape = schedule(TWO_STEPS, programs=programs, rows=16, splits=2)
            right = list(launched(tape, TWO_STEPS, tiny_weights, launches))
            waits = places(tape, lambda i: i.wait is not None)
            implied = [place for place in waits if valid(without_wait(tape, place))]
            needed = [place for place in waits if place not in implied]
            layout = Layout(TWO_STEPS, 16, splits=2)
            made[programs] = Bench(tape, layout, tiny_weights, launches, right, needed, implied)
        return made[programs]

    return of
