"""A tiny workload (y = x @ W in float64's sight) and steps that solve it, one honestly and the others not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from perfci.bench.case import Case, Tensors
from perfci.model import Workload

ROWS, WIDTH = 16, 64


def weights() -> Tensor:
    return torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(7))


def fresh(seed: int) -> Tensors:
    return {"x": torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(seed))}


def expected(inputs: Tensors) -> Tensors:
    y = inputs["x"].double() @ weights().double()
    return {"y": y, "best": y[-1].argmax().reshape(1)}


class Honest:
    """Counts its launches, so that a child may misbehave in a later one."""

    bitwise = True

    def __init__(self, inputs: Tensors) -> None:
        self.w = weights()
        self.x = torch.empty_like(inputs["x"])
        self.y = torch.empty(ROWS, WIDTH)
        self.hidden = torch.empty(ROWS, WIDTH)
        self.best = torch.empty(1, dtype=torch.int64)
        self.launches = 0

    @property
    def outputs(self) -> Mapping[str, Tensor]:
        return {"y": self.y, "best": self.best}

    @property
    def scratch(self) -> Sequence[Tensor]:
        return (self.hidden,)

    @property
    def constants(self) -> Sequence[Tensor]:
        return (self.w,)

    def load(self, inputs: Tensors) -> None:
        self.x.copy_(inputs["x"])

    def __call__(self) -> None:
        self.launches += 1
        self.solve()

    def solve(self) -> None:
        torch.mm(self.x, self.w, out=self.hidden)
        self.y.copy_(self.hidden)
        self.best.copy_(self.y[-1].argmax())


def case(step: Any = Honest, **changes: Any) -> Case:
    """The honest case, but for the step and what is named."""
    values: dict[str, Any] = {
        "workload": Workload(name=f"matmul/{step.__name__}", tokens=ROWS),
        "implementation": "torch",
        "fresh_inputs": fresh,
        "reference": expected,
        "prepare": step,
        "tolerance": 1e-5,
        "tolerance_reason": "float32 sums of 64 products",
        "exact": ("best",),
        "bitwise": step.bitwise,
    }
    return Case(**{**values, **changes})
