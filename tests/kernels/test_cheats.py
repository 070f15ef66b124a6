"""Steps that do not do the work are refused by perfci's gate, whatever implementation they stand around."""

from __future__ import annotations

import pytest
import torch

from kernels import reference
from kernels.llama.pipeline import ModularStep
from kernels.llama.weights import Weights
from kernels.workloads import Decode
from perfci.bench import gate
from perfci.bench.case import Case, Tensors
from perfci.bench.faults import IncorrectOutput
from perfci.model import Workload
from tests.kernels.cheats import CHEATS, Around
from tests.kernels.conftest import SMALL_TILES


def case(around: type[Around], tiny: Decode, weights: Weights, draw) -> Case:
    def prepare(inputs: Tensors) -> Around:
        return around(ModularStep(tiny, weights, inputs, tiles=SMALL_TILES))

    return Case(
        workload=Workload(tiny.name),
        implementation=around.__name__,
        fresh_inputs=lambda seed: draw(seed)[0],
        reference=lambda inputs: reference.decode(tiny, weights, inputs, dtype=torch.float64),
        prepare=prepare,
        tolerance=6e-2,  # the coarsest of any implementation
        exact=("token",),
        bitwise=True,
        repeats=1,
    )


@pytest.mark.parametrize("name", CHEATS)
def test_the_gate_refuses(name: str, tiny: Decode, tiny_weights: Weights, draw) -> None:
    with pytest.raises(IncorrectOutput, match=r"is off by|not finite"):
        gate.check(case(CHEATS[name], tiny, tiny_weights, draw), seed=7)


def test_the_gate_accepts_the_step_that_they_stand_around(tiny: Decode, tiny_weights: Weights, draw) -> None:
    assert gate.check(case(Around, tiny, tiny_weights, draw), seed=7).error is not None
