"""Triton's kernels run in its interpreter here: decided where they are defined, so they are imported in this file."""

from __future__ import annotations

import os

import pytest
import torch

os.environ["TRITON_INTERPRET"] = "1"
try:
    from kernels.llama import batched_attention, batched_operations, operations, split_attention
finally:
    del os.environ["TRITON_INTERPRET"]  # not for the processes that other tests start

from triton.runtime.interpreter import InterpretedFunction

from kernels import reference, workloads
from kernels.llama import inputs as fresh_inputs
from kernels.llama import weights as llama_weights
from kernels.llama.pipeline import Tile, Tiles
from kernels.llama.weights import Weights
from kernels.workloads import Decode

TINY = workloads.named("decode/llama-tiny/b1-ctx21-fp32")

SMALL_TILES = Tiles(
    qkv=Tile(8, 4),
    attend=Tile(8, 4),
    out=Tile(32, 4),
    gate_up=Tile(32, 4, programs=3),
    down=Tile(32, 4, programs=3),
    head=Tile(32, 4),
    head_tiles=2,
)
"""Several programs an operation, several tiles a program (the last one short), several blocks of positions."""


def pytest_configure() -> None:
    for kernel in (
        batched_attention.attend,
        batched_operations.embed,
        operations.embed,
        split_attention.attend_split,
    ):
        assert isinstance(kernel, InterpretedFunction), f"{kernel.__module__} was imported before this file"


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of Triton that it loads at the first launch ask again."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")


@pytest.fixture(scope="session")
def tiny() -> Decode:
    return TINY


@pytest.fixture(scope="session")
def tiny_weights() -> Weights:
    return llama_weights.random(TINY, device="cpu", seed=3)


@pytest.fixture
def draw(tiny_weights: Weights):
    """(seed, position) -> inputs and the float64 reference's outputs."""

    def drawn(seed: int, position: int | None = None) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        inputs = fresh_inputs.fresh(TINY, tiny_weights, seed, position=position)
        return inputs, reference.decode(TINY, tiny_weights, inputs, dtype=torch.float64)

    return drawn
