"""Steps around a right one that make it look good without the work: for any implementation, here and on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


class Around:
    """Hands everything on to the step inside."""

    def __init__(self, inside: Any) -> None:
        self.inside = inside

    @property
    def outputs(self) -> Mapping[str, Tensor]:
        return self.inside.outputs

    @property
    def scratch(self) -> Sequence[Tensor]:
        return self.inside.scratch

    @property
    def constants(self) -> Sequence[Tensor]:
        return self.inside.constants

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        self.inside.load(inputs)

    def __call__(self) -> None:
        self.inside()


class CachedResult(Around):
    """Solves the inputs that it was prepared with, and gives that result for all."""

    def __init__(self, inside: Any) -> None:
        super().__init__(inside)
        inside()
        self.kept = {name: tensor.clone() for name, tensor in inside.outputs.items()}

    def __call__(self) -> None:
        for name, tensor in self.outputs.items():
            tensor.copy_(self.kept[name])


class ZeroInputs(Around):
    """Reads zeros in place of the earlier keys and values: less to toggle, so more to clock."""

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        zeros = {name: torch.zeros_like(inputs[name]) for name in ("keys", "values")}
        self.inside.load({**inputs, **zeros})


class OtherPosition(Around):
    """One position too early."""

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        self.inside.load({**inputs, "position": inputs["position"] - 1})


CHEATS: Mapping[str, type[Around]] = {
    "cached result": CachedResult,
    "zero inputs": ZeroInputs,
    "wrong position": OtherPosition,
}
