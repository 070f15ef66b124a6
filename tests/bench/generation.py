"""A tiny generation: each step scores, chooses the best token, and goes on from its row of a table.

The best two tokens of the first step are as good as equal, and lead to different continuations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from perfci.bench.case import Case, Tensors
from perfci.model import Workload

STEPS, VOCAB, WIDTH = 4, 16, 32
TWINS = (3, 11)
SLACK = 1e-3
_GENERATOR_SEED = 5


def tables() -> tuple[Tensor, Tensor]:
    """Rows that are gone on from, and rows that score: [VOCAB, WIDTH] each."""
    generator = torch.Generator().manual_seed(_GENERATOR_SEED)
    rows, head = (torch.randn(VOCAB, WIDTH, generator=generator) for _ in range(2))
    head[TWINS[1]] = head[TWINS[0]] * (1 + 1e-6)
    return rows, head


def fresh(seed: int) -> Tensors:
    noise = torch.randn(WIDTH, generator=torch.Generator().manual_seed(seed))
    return {"x": 3 * tables()[1][TWINS[0]] + 0.1 * noise}


def guided(inputs: Tensors, outputs: Tensors) -> Tensors:
    """Follows each chosen token whose score is within SLACK of the greatest."""
    rows, head = (table.double() for table in tables())
    x = inputs["x"].double()
    right: list[int] = []
    for chosen in outputs["token"].tolist():
        scores = head @ x
        best = int(scores.argmax())
        good = 0 <= chosen < VOCAB and bool(scores[chosen] >= scores[best] - SLACK)
        right.append(chosen if good else best)
        x = 0.1 * x + rows[right[-1]]
    return {"token": torch.tensor(right), "scores": scores}


class Generating:
    """The honest one takes the first of the twins. Counts its launches, for children that misbehave in a later one."""

    def __init__(self, inputs: Tensors) -> None:
        self.rows, self.head = tables()
        self.x = torch.empty(WIDTH)
        whole = torch.full((STEPS + 2,), 77)  # with a guard at either end
        self.guards = (whole[:1], whole[-1:])
        self.token = whole[1:-1]
        self.scores = torch.empty(VOCAB)
        self.state = torch.empty(WIDTH)
        self.launches = 0

    @property
    def outputs(self) -> Mapping[str, Tensor]:
        return {"token": self.token, "scores": self.scores}

    @property
    def scratch(self) -> Sequence[Tensor]:
        return (self.state,)

    @property
    def constants(self) -> Sequence[Tensor]:
        return (self.rows, self.head, *self.guards)

    def load(self, inputs: Tensors) -> None:
        self.x.copy_(inputs["x"])

    def __call__(self) -> None:
        self.launches += 1
        self.state.copy_(self.x)
        for step in range(STEPS):
            torch.mv(self.head, self.state, out=self.scores)
            self.token[step] = self.choose(step)
            self.go_on(step)

    def choose(self, step: int) -> int:
        best = int(self.scores.argmax())
        return TWINS[0] if best in TWINS else best

    def go_on(self, step: int) -> None:
        self.state.mul_(0.1).add_(self.rows[self.token[step]])


def case(step: Any, **changes: Any) -> Case:
    values: dict[str, Any] = {
        "workload": Workload(name="generation/tiny", tokens=STEPS),
        "implementation": step.__name__,
        "fresh_inputs": fresh,
        "guided_reference": guided,
        "prepare": step,
        "tolerance": 1e-5,
        "exact": ("token",),
        "bitwise": True,
    }
    return Case(**{**values, **changes})
