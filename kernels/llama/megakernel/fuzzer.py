"""Runs a tape under seeded random interleavings and tells whether any of them changes an output.

No memory order is modelled: a signal is seen at once, and stores before it too. What is found is a wait,
a signal or a load that the tape itself lacks or has in the wrong place.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.llama.inputs import buffers
from kernels.llama.megakernel.instructions import Tape
from kernels.llama.megakernel.interpreter import IN_ORDER, Deadlock, Interpreter, Order
from kernels.llama.megakernel.semantics import scratch
from kernels.llama.weights import Weights
from kernels.workloads import Decode

_AHEAD = 0.9
_REDRAW = 1 / 80
_ANYONE = 0.05
_DEMOTED = 0.3

Outputs = dict[str, Tensor]


class Fuzzed:
    """A seeded order: of those that can go on the program of highest priority; priorities are drawn anew now and then.

    So the last one goes on only where no other can, as far behind as the waits allow (Burckhardt et al. 2010, A
    Randomized Scheduler with Probabilistic Guarantees of Finding Bugs). Whoever has signalled mostly becomes the last:
    those that it freed run on before it does the rest of its work. Loads are mostly issued as early as nothing forbids.
    """

    def __init__(self, seed: int, *, programs: int) -> None:
        self._random = random.Random(seed)
        self._priorities = [self._random.random() for _ in range(programs)]

    def pick(self, ready: Sequence[int]) -> int:
        chance = self._random.random()
        if chance < _REDRAW:
            self._priorities = [self._random.random() for _ in self._priorities]
        if chance > 1 - _ANYONE:
            return self._random.choice(ready)
        return max(ready, key=self._priorities.__getitem__)

    def signalled(self, program: int) -> None:
        if self._random.random() < _DEMOTED:
            self._priorities[program] = min(self._priorities) - 1.0

    def ahead(self) -> bool:
        return self._random.random() < _AHEAD


@dataclass(frozen=True, slots=True)
class Verdict:
    """wrong: the first launch and output whose bits differ from those that were expected, or that holds a NaN, or the
    deadlock; empty if there is none."""

    seed: int
    wrong: str


def launched(
    tape: Tape,
    workload: Decode,
    weights: Weights,
    launches: Iterable[Mapping[str, Tensor]],
    *,
    order: Order = IN_ORDER,
    interpreter: type[Interpreter] = Interpreter,
) -> Iterator[Outputs]:
    """The outputs of consecutive launches, each on its own inputs, one by one.

    Buffers and scratch are new and poisoned before the first launch, and left as they are before the next.
    """
    live = buffers(workload, device=weights.embedding.device, logits=torch.float32)
    between = scratch(workload, tape, weights)
    for inputs in launches:
        live.load(inputs)
        interpreter(tape, workload, weights, live, between, order=order).run()
        written = live.outputs(int(inputs["position"]))
        yield {name: tensor.clone() for name, tensor in written.items()}


def fuzz(
    tape: Tape,
    workload: Decode,
    weights: Weights,
    launches: Sequence[Mapping[str, Tensor]],
    *,
    seeds: Iterable[int],
    expected: Sequence[Outputs] | None = None,
    interpreter: type[Interpreter] = Interpreter,
) -> tuple[Verdict, ...]:
    """One verdict a seed: all launches under one random order, against what the tape gives in order (or `expected`)."""
    right = list(launched(tape, workload, weights, launches)) if expected is None else expected

    def verdict(seed: int) -> Verdict:
        order = Fuzzed(seed, programs=len(tape.programs))
        try:
            found = launched(tape, workload, weights, launches, order=order, interpreter=interpreter)
            return Verdict(seed, _first_difference(found, right))
        except Deadlock as deadlock:
            return Verdict(seed, str(deadlock))

    return tuple(verdict(seed) for seed in seeds)


def _first_difference(found: Iterable[Outputs], right: Sequence[Outputs]) -> str:
    for launch, (outputs, expected) in enumerate(zip(found, right, strict=True)):
        for name, tensor in expected.items():
            if outputs[name].isnan().any():
                return f"launch {launch}: {name} holds a NaN"
            if not torch.equal(outputs[name], tensor):
                return f"launch {launch}: {name} differs"
    return ""
