"""Each Triton kernel alone, in the interpreter, against one line of torch in float64."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from kernels.llama import operations
from kernels.llama.pipeline import Tile, Tiles, check
from kernels.workloads import Decode
from tests.kernels.conftest import SMALL_TILES

D, F, V, HD, CONTEXT = 64, 128, 96, 32, 21
QUERY_HEADS, KV_HEADS = 4, 2
EPSILON = 1e-5


def random(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def normalized(x: Tensor, weight: Tensor) -> Tensor:
    x = x.double()
    return x / (x.square().mean() + EPSILON).sqrt() * weight.double()


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-4, atol=1e-5)


def test_embed_copies_the_token_s_row() -> None:
    embedding, x = random(V, D), torch.full((D,), float("nan"))
    operations.embed[(1,)](torch.tensor([V - 1]), embedding, x, D=D, PDL=False)
    assert torch.equal(x, embedding[V - 1])


@pytest.mark.parametrize("position", [0, 1, 20])
@pytest.mark.parametrize("rows", [4, 16])
def test_qkv_normalizes_projects_rotates_and_appends(position: int, rows: int) -> None:
    x, norm = random(D, seed=1), 1 + 0.1 * random(D, seed=2)
    weight = random((QUERY_HEADS + 2 * KV_HEADS) * HD, D, seed=3) / D**0.5
    angles = position * 10000.0 ** -(torch.arange(0, HD, 2) / HD)
    cosine, sine = torch.full((CONTEXT, HD // 2), float("nan")), torch.full((CONTEXT, HD // 2), float("nan"))
    cosine[position], sine[position] = angles.cos(), angles.sin()
    query = torch.full((QUERY_HEADS, HD), float("nan"))
    keys, values = (torch.full((KV_HEADS, CONTEXT, HD), -7.0) for _ in range(2))
    operations.project_qkv[((QUERY_HEADS + 2 * KV_HEADS) * HD // 2 // rows,)](
        x,
        norm,
        weight,
        cosine,
        sine,
        torch.tensor([position]),
        query,
        keys,
        values,
        D=D,
        QUERY_HEADS=QUERY_HEADS,
        KV_HEADS=KV_HEADS,
        HD=HD,
        CONTEXT=CONTEXT,
        EPSILON=EPSILON,
        ROWS=rows,
        PDL=False,
    )
    heads = (weight.double() @ normalized(x, norm)).view(-1, HD)
    first, second = heads[:, : HD // 2], heads[:, HD // 2 :]
    cos, sin = angles.double().cos(), angles.double().sin()
    rotated = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=1)
    close(query, rotated[:QUERY_HEADS])
    close(keys[:, position], rotated[QUERY_HEADS : QUERY_HEADS + KV_HEADS])
    close(values[:, position], heads[QUERY_HEADS + KV_HEADS :])
    others = [p for p in range(CONTEXT) if p != position]
    assert bool((keys[:, others] == -7).all()) and bool((values[:, others] == -7).all())


@pytest.mark.parametrize("block", [8, 32])
@pytest.mark.parametrize("position", [0, 1, 6, 7, 8, 14, 15, 16, 19, 20])
def test_attend_is_softmax_over_all_positions_up_to_its_own(position: int, block: int) -> None:
    query = 3 * random(QUERY_HEADS, HD, seed=4)
    keys, values = random(KV_HEADS, CONTEXT, HD, seed=5), random(KV_HEADS, CONTEXT, HD, seed=6)
    keys[:, position + 1 :] = values[:, position + 1 :] = float("nan")  # not there yet
    attended = torch.full((QUERY_HEADS, HD), float("nan"))
    operations.attend[(QUERY_HEADS,)](
        query,
        keys,
        values,
        torch.tensor([position]),
        attended,
        QUERY_HEADS=QUERY_HEADS,
        KV_HEADS=KV_HEADS,
        HD=HD,
        CONTEXT=CONTEXT,
        BLOCK=block,
        PDL=False,
    )
    grouped = query.double().view(KV_HEADS, QUERY_HEADS // KV_HEADS, HD)
    there = slice(0, position + 1)
    scores = torch.einsum("ngd,nsd->ngs", grouped, keys[:, there].double()) / HD**0.5
    close(attended, torch.einsum("ngs,nsd->ngd", scores.softmax(-1), values[:, there].double()).view(-1, HD))


WALKS = [Tile(8, 4), Tile(8, 4, programs=3), Tile(16, 4, programs=2), Tile(64, 4, programs=1)]


@pytest.mark.parametrize("tile", WALKS, ids=str)
def test_project_and_add_adds_to_the_residual(tile: Tile) -> None:
    vector, x = random(F, seed=7), random(D, seed=9)
    weight = guarded(random(D, F, seed=8) / F**0.5)
    expected = x.double() + weight.double() @ vector.double()
    walk = tile.walk(D)
    operations.project_and_add[(walk["PROGRAMS"],)](vector, weight, x, D=D, K=F, **walk, PDL=False)
    close(x, expected)


@pytest.mark.parametrize("tile", WALKS, ids=str)
def test_gate_up_is_swiglu_of_the_normalized_row(tile: Tile) -> None:
    x, norm, weight = random(D, seed=10), 1 + 0.1 * random(D, seed=11), guarded(random(2 * F, D, seed=12) / D**0.5)
    hidden = torch.full((F,), float("nan"))
    walk = tile.walk(F)
    constants = {"D": D, "F": F, "EPSILON": EPSILON, **walk, "PDL": False}
    operations.project_gate_up[(walk["PROGRAMS"],)](x, norm, weight, hidden, **constants)
    gate, up = (weight.double() @ normalized(x, norm)).chunk(2)
    close(hidden, torch.nn.functional.silu(gate) * up)


@pytest.mark.parametrize(
    ("tiles", "name"),
    [
        (dataclasses.replace(SMALL_TILES, qkv=Tile(8, 4, programs=2)), "qkv"),
        (dataclasses.replace(SMALL_TILES, attend=Tile(8, 4, programs=2)), "attend"),
        (dataclasses.replace(SMALL_TILES, head=Tile(8, 4, programs=2)), "head"),
    ],
    ids=["qkv", "attend", "head"],
)
def test_programs_are_refused_for_a_kernel_that_cannot_walk(tiles: Tiles, name: str, tiny: Decode) -> None:
    with pytest.raises(ValueError, match=f"{name} with 2 programs, but it cannot walk; give none"):
        check(tiny, tiles)


def guarded(matrix: Tensor) -> Tensor:
    """The same matrix with NaN after its last row: whoever reads beyond it shows it."""
    room = torch.full((2 * matrix.shape[0], matrix.shape[1]), float("nan"))
    room[: matrix.shape[0]] = matrix
    return room[: matrix.shape[0]]


@pytest.mark.parametrize(("rows", "tiles"), [(8, 1), (16, 3), (32, 3)])
def test_head_and_pick_give_logits_and_the_best_token(rows: int, tiles: int) -> None:
    x, norm, embedding = random(D, seed=13), 1 + 0.1 * random(D, seed=14), random(V, D, seed=15) / D**0.5
    logits, token = head_and_pick(x, norm, embedding, rows, tiles)
    expected = embedding.double() @ normalized(x, norm)
    close(logits, expected)
    assert token == int(expected.argmax())


@pytest.mark.parametrize("ties", [(3, 5), (7, 8), (31, 32, 95), (0, 95)])
def test_of_equal_logits_the_lowest_row_wins(ties: tuple[int, ...]) -> None:
    x, norm, embedding = random(D, seed=13), torch.ones(D), random(V, D, seed=15) / D**0.5
    for row in ties:
        embedding[row] = x  # the greatest there is for its norm
    logits, token = head_and_pick(x, norm, embedding, 8, 2)
    assert len({float(logits[row]) for row in ties}) == 1
    assert token == min(ties)


def head_and_pick(x: Tensor, norm: Tensor, embedding: Tensor, rows: int, tiles: int) -> tuple[Tensor, int]:
    programs = V // (rows * tiles)
    logits, best = torch.full((V,), float("nan")), torch.full((programs,), float("nan"))
    best_row, token = torch.full((programs,), -1, dtype=torch.int32), torch.tensor([-1])
    constants = {"D": D, "EPSILON": EPSILON, "ROWS": rows, "TILES": tiles, "PDL": False}
    operations.project_head[(programs,)](x, norm, embedding, logits, best, best_row, **constants)
    operations.pick[(1,)](best, best_row, token, COUNT=programs, WIDTH=16, PDL=False)
    return logits, int(token)
