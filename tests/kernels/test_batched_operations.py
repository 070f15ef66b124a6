"""Each Triton kernel of several sequences alone, in the interpreter, against a line or two of torch in float64."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from kernels.llama import batched_operations as operations
from kernels.llama.batched_attention import attend
from kernels.llama.batched_tiles import Attention, Product

B, N, D, F, V, HD, CONTEXT = 3, 16, 64, 128, 96, 32, 21
QUERY_HEADS, KV_HEADS = 4, 2
EPSILON = 1e-5
NAN = float("nan")
PRODUCTS = [
    Product(rows=32, splits=1, ways=1, first=64, block=16, stages=2, warps=4),
    Product(rows=16, splits=1, ways=1, first=16, block=16, stages=3, warps=4),
    Product(rows=32, splits=1, ways=2, first=16, block=8, stages=2, warps=4),
    Product(rows=16, splits=1, ways=4, first=16, block=16, stages=2, warps=4),
]


def random(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def guarded(matrix: Tensor) -> Tensor:
    """The same rows with NaN after the last one: whoever reads beyond it shows it."""
    room = torch.full((2 * matrix.shape[0], *matrix.shape[1:]), NAN)
    room[: matrix.shape[0]] = matrix
    return room[: matrix.shape[0]]


def empty(*size: int) -> Tensor:
    """NaN, with as much of a known pattern behind it: see `untouched`."""
    room = torch.full((2 * size[0], *size[1:]), 7.0)
    room[: size[0]] = NAN
    return room[: size[0]]


def untouched(buffer: Tensor) -> bool:
    behind = buffer.as_strided(buffer.shape, buffer.stride(), buffer.numel())
    return bool((behind == 7.0).all())


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-4, atol=1e-5)
    assert untouched(found)


def partly_normalized(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """What a projection is given instead of rmsnorm(x): x * norm, sums of squares over two parts; and rmsnorm(x)."""
    x, norm = random(B, D, seed=seed), 1 + 0.1 * random(D, seed=seed + 1)
    squares = x.square().view(B, 2, D // 2).sum(-1).T.contiguous()
    return guarded(x * norm), guarded(squares), x.double() * rsqrt(x) * norm.double()


def rsqrt(x: Tensor) -> Tensor:
    return torch.rsqrt(x.double().square().mean(-1, keepdim=True) + EPSILON)


@pytest.mark.parametrize("parts", [1, 4])
def test_embed_gives_each_sequence_its_own_row_and_half_of_its_norm(parts: int) -> None:
    embedding, norm, tokens = guarded(random(V, D)), random(D, seed=1), torch.tensor([V - 1, 0, 5])
    x, scaled, squares = empty(B, D), empty(B, D), empty(parts, B)
    constants = {"BATCH": B, "D": D, "PARTS": parts, "PDL": False}
    operations.embed[(B,)](tokens, embedding, norm, x, scaled, squares, **constants)
    assert torch.equal(x, embedding[tokens]) and untouched(x)
    close(scaled, embedding[tokens] * norm)
    close(squares, embedding[tokens].square().view(B, parts, -1).sum(-1).T)


@pytest.mark.parametrize("splits", [1, 2, 4])
@pytest.mark.parametrize("product", PRODUCTS, ids=str)
def test_project_leaves_the_sums_of_each_range_of_columns(product: Product, splits: int) -> None:
    columns = splits * 64
    activation, weight = guarded(random(B, columns, seed=1)), guarded(random(F, columns, seed=2))
    partial = empty(splits, B, F)
    constants = {"BATCH": B, "N": N, "TOTAL": F, "K": columns, "SPLITS": splits, "PDL": False}
    grid = (F // product.rows * splits,)
    operations.project[grid](activation, weight, partial, **constants, **product.constants())
    ranges = (activation.double().view(B, splits, 64), weight.double().view(F, splits, 64))
    close(partial, torch.einsum("bsk,fsk->sbf", *ranges))


def test_settle_adds_the_partial_sums_to_the_residual() -> None:
    partial, before, norm = guarded(random(3, B, D, seed=1)), random(B, D, seed=2), random(D, seed=3)
    x, scaled, squares = empty(B, D).copy_(before), empty(B, D), empty(2, B)
    constants = {"BATCH": B, "D": D, "SPLITS": 3, "PARTS": 2, "PDL": False}
    operations.settle[(2 * B,)](partial, norm, x, scaled, squares, **constants)
    expected = before.double() + partial.double().sum(0)
    close(x, expected)
    close(scaled, expected * norm.double())
    close(squares, expected.square().view(B, 2, -1).sum(-1).T)


def test_settle_adds_in_the_order_of_the_splits() -> None:
    """(((x + a) + b) + c) in float32, bit for bit: large numbers that cancel tell the orders apart."""
    partial = 1e6 * random(3, B, D, seed=1)
    before, norm, x = random(B, D, seed=2), torch.ones(D), empty(B, D)
    x.copy_(before)
    constants = {"BATCH": B, "D": D, "SPLITS": 3, "PARTS": 1, "PDL": False}
    operations.settle[(B,)](partial, norm, x, empty(B, D), empty(1, B), **constants)
    assert torch.equal(x, before + partial[0] + partial[1] + partial[2])
    assert not torch.equal(x, before + (partial[0] + partial[1] + partial[2]))


@pytest.mark.parametrize("product", PRODUCTS, ids=str)
def test_project_and_settle_is_both_in_one(product: Product) -> None:
    activation, weight = guarded(random(B, 64, seed=1)), guarded(random(D, 64, seed=2) / 8)
    before, norm = random(B, D, seed=3), guarded(random(D, seed=4))
    x, scaled, squares = empty(B, D).copy_(before), empty(B, D), empty(D // product.rows, B)
    constants = {"BATCH": B, "N": N, "D": D, "K": 64, **product.constants(), "PDL": False}
    operations.project_and_settle[(D // product.rows,)](activation, weight, norm, x, scaled, squares, **constants)
    expected = before.double() + activation.double() @ weight.double().T
    close(x, expected)
    close(scaled, expected * norm.double())
    close(squares, expected.square().view(B, -1, product.rows).sum(-1).T)


ATTENTIONS = [
    Attention(heads=2, first=8, block=8, stages=2, warps=4),
    Attention(heads=1, first=8, block=16, stages=2, warps=4),
    Attention(heads=2, first=32, block=8, stages=2, warps=4),
]
FEW_PARTS, MANY_PARTS = 2, 64  # of a row's sums of squares: they are added at different places


@pytest.mark.parametrize("attention", ATTENTIONS, ids=str)
@pytest.mark.parametrize("position", [0, 1, 7, 8, 9, 16, 20])
def test_attend_rotates_appends_and_is_softmax_over_its_own_sequence(position: int, attention: Attention) -> None:
    parts = MANY_PARTS if attention.heads == 1 else FEW_PARTS
    rows = QUERY_HEADS + 2 * KV_HEADS
    partial, x = guarded(random(2, B, rows * HD, seed=1)), random(B, D, seed=2)
    squares = guarded(x.square().view(B, parts, -1).sum(-1).T.contiguous())
    angles = position * 10000.0 ** -(torch.arange(0, HD, 2) / HD)
    cosine, sine = (torch.full((CONTEXT, HD // 2), NAN) for _ in range(2))
    cosine[position], sine[position] = angles.cos(), angles.sin()
    keys, values = empty(B * KV_HEADS, CONTEXT, HD), empty(B * KV_HEADS, CONTEXT, HD)
    keys[:, :position] = random(B * KV_HEADS, CONTEXT, HD, seed=5)[:, :position]
    values[:, :position] = random(B * KV_HEADS, CONTEXT, HD, seed=6)[:, :position]
    before = (keys.clone(), values.clone())
    attended = empty(B, QUERY_HEADS * HD)
    attend[(B * QUERY_HEADS // attention.heads,)](
        partial,
        squares,
        cosine,
        sine,
        torch.tensor([position]),
        keys,
        values,
        attended,
        BATCH=B,
        QUERY_HEADS=QUERY_HEADS,
        KV_HEADS=KV_HEADS,
        HD=HD,
        CONTEXT=CONTEXT,
        D=D,
        EPSILON=EPSILON,
        SPLITS=2,
        PARTS=parts,
        **attention.constants(),
        PDL=False,
    )
    heads = (partial.double().sum(0) * rsqrt(x)).view(B, rows, HD)
    first, second = heads[..., : HD // 2], heads[..., HD // 2 :]
    cos, sin = angles.double().cos(), angles.double().sin()
    rotated = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    for cache, old, new in zip(
        (keys, values), before, (rotated[:, QUERY_HEADS:-KV_HEADS], heads[:, -KV_HEADS:]), strict=True
    ):
        torch.testing.assert_close(cache[:, position].double(), new.reshape(-1, HD), rtol=1e-4, atol=1e-5)
        others = [p for p in range(CONTEXT) if p != position]
        assert torch.equal(cache[:, others].nan_to_num(9.0), old[:, others].nan_to_num(9.0)) and untouched(cache)
    query = rotated[:, :QUERY_HEADS].view(B, KV_HEADS, QUERY_HEADS // KV_HEADS, HD)
    there = [cache[:, : position + 1].double().view(B, KV_HEADS, position + 1, HD) for cache in (keys, values)]
    scores = torch.einsum("bngd,bnsd->bngs", query, there[0]) / HD**0.5
    close(attended, torch.einsum("bngs,bnsd->bngd", scores.softmax(-1), there[1]).reshape(B, -1))


@pytest.mark.parametrize("product", PRODUCTS, ids=str)
def test_gate_up_is_swiglu_of_each_normalized_row(product: Product) -> None:
    scaled, squares, normalized = partly_normalized(seed=10)
    weight, hidden = guarded(random(2 * F, D, seed=12) / D**0.5), empty(B, F)
    constants = {"BATCH": B, "N": N, "D": D, "F": F, "EPSILON": EPSILON, "PARTS": 2, "PDL": False}
    grid = (2 * F // product.rows,)
    operations.project_gate_up[grid](scaled, squares, weight, hidden, **constants, **product.constants())
    gate, up = (normalized @ weight.double().T).chunk(2, dim=-1)
    close(hidden, torch.nn.functional.silu(gate) * up)


@pytest.mark.parametrize("product", PRODUCTS, ids=str)
def test_head_and_pick_give_each_sequence_its_logits_and_best_token(product: Product) -> None:
    scaled, squares, normalized = partly_normalized(seed=13)
    embedding = guarded(random(V, D, seed=15) / D**0.5)
    logits, tokens = head_and_pick(scaled, squares, embedding, product)
    expected = normalized @ embedding.double().T
    close(logits, expected)
    assert tokens == expected.argmax(-1).tolist()
    assert len(set(tokens)) == B  # else a mix-up could hide


@pytest.mark.parametrize("ties", [((3, 5), (7, 8), (0, 95)), ((15, 16), (31, 64, 95), (93, 94))])
def test_of_equal_logits_the_lowest_row_wins_in_each_sequence(ties: tuple[tuple[int, ...], ...]) -> None:
    scaled, squares, _ = partly_normalized(seed=13)
    embedding = random(V, D, seed=15) / D**0.5
    for sequence, rows in enumerate(ties):
        embedding[list(rows)] = scaled[sequence]  # the greatest there is for its norm
    logits, tokens = head_and_pick(scaled, squares, embedding, PRODUCTS[1])
    for sequence, rows in enumerate(ties):
        assert all(logits[sequence, a] == logits[sequence, b] for a, b in pairwise(rows))
    assert tokens == [min(rows) for rows in ties]


def head_and_pick(scaled: Tensor, squares: Tensor, embedding: Tensor, product: Product) -> tuple[Tensor, list[int]]:
    tiles = V // product.rows
    logits, best = empty(B, V), empty(B, tiles)
    best_row, token = torch.full((B, tiles), -1, dtype=torch.int32), torch.full((2 * B,), -1)
    constants = {"BATCH": B, "N": N, "D": D, "V": V, "EPSILON": EPSILON, "PARTS": 2, "PDL": False}
    kernel = operations.project_head[(tiles,)]
    kernel(scaled, squares, embedding, logits, best, best_row, **constants, **product.constants())
    operations.pick[(B,)](best, best_row, token, COUNT=tiles, WIDTH=8, PDL=False)
    assert untouched(best) and token[B:].tolist() == [-1] * B
    return logits, token[:B].tolist()
