"""Why the modular implementations promise each other's bits: they launch the same kernels with the same tiles."""

from __future__ import annotations

import pytest
import torch

from kernels import workloads
from kernels.llama import pipeline
from kernels.llama.pipeline import ModularStep
from kernels.llama.weights import Weights
from tests.kernels.conftest import SMALL_TILES

LAUNCHING = {"PDL", "launch_pdl"}


@pytest.mark.parametrize("size", ["b1-ctx21", "b1-gen5+6"])
def test_launching_early_changes_neither_kernels_nor_tiles_nor_tensors(size: str, tiny_weights: Weights) -> None:
    workload = workloads.named(f"decode/llama-tiny/{size}-fp32")
    inputs = {
        "token": torch.zeros(1, dtype=torch.int64),
        "position": torch.tensor([workload.first_position]),
        "keys": torch.zeros(2, 2, workload.first_position, 32),
        "values": torch.zeros(2, 2, workload.first_position, 32),
    }
    plain, early = (
        ModularStep(workload, tiny_weights, inputs, tiles=SMALL_TILES, pdl=pdl).plan for pdl in (False, True)
    )
    assert len(plain) == len(early) >= 13 * workload.steps
    for one, other in zip(plain, early, strict=True):
        assert (one.name, one.kernel, one.grid) == (other.name, other.kernel, other.grid)
        assert [t.shape for t in one.arguments] == [t.shape for t in other.arguments]
        assert {k: v for k, v in one.keywords.items() if k not in LAUNCHING} == {
            k: v for k, v in other.keywords.items() if k not in LAUNCHING
        }
    assert any(launch.keywords["PDL"] for launch in early) and not any(launch.keywords["PDL"] for launch in plain)


def test_a_family_s_members_ship_with_the_same_tiles(tiny_weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    """No member passes tiles of its own: what it ships with is what ModularStep takes unasked."""
    from kernels.llama import modular, modular_graph, modular_pdl, replay

    asked: list[dict] = []

    def recorded(self: ModularStep, *arguments: object, **keywords: object) -> None:
        asked.append(keywords)
        raise StopIteration

    monkeypatch.setattr(pipeline.ModularStep, "__init__", recorded)
    for module in (modular, modular_graph, modular_pdl):
        with pytest.raises(StopIteration):
            module.prepare(workloads.named("decode/llama-tiny/b1-ctx21-fp32"), tiny_weights, {})
    assert issubclass(replay.ReplayedStep, ModularStep)
    assert len(asked) == 3 and all(keywords.get("tiles") is None for keywords in asked)
