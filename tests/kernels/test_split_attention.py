"""Attention split over positions, in the interpreter: the parts, the merge, and a whole step."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from kernels import reference, registry
from kernels.llama import split_attention
from kernels.llama.pipeline import Launch, ModularStep, Split, Tiles, check, scratch
from kernels.llama.weights import Weights
from kernels.workloads import Decode
from perfci.bench import buffers, gate
from perfci.bench.agreement import IncorrectOutput
from perfci.bench.case import Case
from perfci.model import Workload
from tests.kernels.conftest import SMALL_TILES

HD, CONTEXT = 32, 21
SPLIT_TILES = dataclasses.replace(SMALL_TILES, split=Split(heads=2, merge_warps=4))


def random(*size: int, seed: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def split_and_merged(
    query: Tensor, keys: Tensor, values: Tensor, position: int, block: int, shared: int
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    heads, kv_heads = query.shape[0], keys.shape[0]
    splits = -(-CONTEXT // block)
    nan = float("nan")
    parts, peaks, totals = (torch.full(size, nan) for size in ((splits, heads, HD), (splits, heads), (splits, heads)))
    attended = torch.full((heads, HD), nan)
    constants = {"QUERY_HEADS": heads, "HD": HD, "SPLITS": splits, "PDL": False}
    split_attention.attend_split[(heads // shared * splits,)](
        query,
        keys,
        values,
        torch.tensor([position]),
        parts,
        peaks,
        totals,
        KV_HEADS=kv_heads,
        HEADS=shared,
        CONTEXT=CONTEXT,
        BLOCK=block,
        **constants,
    )
    width = 1 << (splits - 1).bit_length()
    split_attention.merge_splits[(heads,)](parts, peaks, totals, attended, WIDTH=width, **constants)
    return attended, (parts, peaks, totals)


@pytest.mark.parametrize(("block", "heads", "kv_heads", "shared"), [(8, 4, 2, 2), (4, 4, 1, 2), (32, 2, 2, 1)])
@pytest.mark.parametrize("position", [0, 1, 7, 8, 20])
def test_the_merged_parts_are_softmax_over_all_positions(
    position: int, block: int, heads: int, kv_heads: int, shared: int
) -> None:
    query = 3 * random(heads, HD, seed=1)
    keys, values = random(kv_heads, CONTEXT, HD, seed=2), random(kv_heads, CONTEXT, HD, seed=3)
    keys[:, position + 1 :] = values[:, position + 1 :] = float("nan")  # not there yet
    attended, _ = split_and_merged(query, keys, values, position, block, shared)
    there = slice(0, position + 1)
    grouped = query.double().view(kv_heads, heads // kv_heads, HD)
    scores = torch.einsum("ngd,nsd->ngs", grouped, keys[:, there].double()) / HD**0.5
    expected = torch.einsum("ngs,nsd->ngd", scores.softmax(-1), values[:, there].double()).view(-1, HD)
    torch.testing.assert_close(attended.double(), expected, rtol=1e-4, atol=1e-5)


def test_a_block_beyond_the_position_counts_for_nothing() -> None:
    query, keys, values = random(4, HD, seed=4), random(2, CONTEXT, HD, seed=5), random(2, CONTEXT, HD, seed=6)
    _, (parts, peaks, totals) = split_and_merged(query, keys, values, 7, 8, 2)
    assert bool((parts[1:] == 0).all()) and bool((totals[1:] == 0).all()) and bool((peaks[1:] == -1.0e30).all())
    assert bool((totals[0] >= 1).all())


def test_scores_far_below_zero_do_not_vanish() -> None:
    """A peak in another block than the greatest scales its part away, but never to 0 / 0."""
    query = torch.full((2, HD), -40.0)
    keys, values = torch.ones(2, CONTEXT, HD), random(2, CONTEXT, HD, seed=7)
    keys[:, 20] = 0.5
    attended, _ = split_and_merged(query, keys, values, 20, 8, 1)
    torch.testing.assert_close(attended, values[:, 20])


@pytest.mark.parametrize("position", [1, 7, 8, 20])
def test_a_step_with_split_attention_is_right_at_any_position(
    position: int, tiny: Decode, tiny_weights: Weights, draw
) -> None:
    inputs, expected = draw(21, position)
    step = ModularStep(tiny, tiny_weights, inputs, tiles=SPLIT_TILES)
    for tensor in (*step.scratch, *step.outputs.values()):
        tensor.fill_(float("nan") if tensor.is_floating_point() else -1)
    step()
    assert reference.worst_error(step.outputs, expected) < 2e-5
    assert [launch.name for launch in step.plan[1:7]] == ["qkv", "attend", "merge", "out", "gate_up", "down"]


def test_parts_take_memory_only_where_attention_is_split(tiny: Decode) -> None:
    def parts(tiles: Tiles) -> tuple[int, ...]:
        between = scratch(tiny, tiles, device="meta")
        return tuple(tensor.numel() for tensor in (between.parts, between.peaks, between.totals))

    assert parts(SMALL_TILES) == (0, 0, 0)
    assert parts(SPLIT_TILES) == (3 * 4 * 32, 3 * 4, 3 * 4)


def test_programs_for_heads_that_share_no_key_head_are_refused(tiny: Decode) -> None:
    tiles = dataclasses.replace(SPLIT_TILES, split=Split(heads=3, merge_warps=4))
    with pytest.raises(ValueError, match="3 query heads a program do not share a key head"):
        check(tiny, tiles)


def short_of_a_split(launch: Launch) -> Launch:
    """The last block of positions of the last heads is not computed."""
    return dataclasses.replace(launch, grid=(launch.grid[0] - 1,)) if launch.name == "attend" else launch


def a_split_is_not_merged(launch: Launch) -> Launch:
    if launch.name != "merge":
        return launch
    return dataclasses.replace(launch, keywords={**launch.keywords, "SPLITS": launch.keywords["SPLITS"] - 1})


def without_the_own_row(launch: Launch) -> Launch:
    """Attention at the position before: the row that the step itself adds is left out."""
    if launch.name != "attend":
        return launch
    query, keys, values, position, *parts = launch.arguments
    return dataclasses.replace(launch, arguments=(query, keys, values, position - 1, *parts))


@pytest.mark.parametrize(
    ("fault", "message"),
    [(short_of_a_split, "not finite"), (a_split_is_not_merged, "is off by"), (without_the_own_row, "is off by")],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.filterwarnings("ignore:All-NaN")  # of the interpreter, where a poisoned part was not written
def test_the_gate_refuses(fault, message: str, tiny: Decode, tiny_weights: Weights, draw) -> None:
    def prepare(inputs) -> ModularStep:
        step = ModularStep(tiny, tiny_weights, inputs, tiles=SPLIT_TILES)
        step.plan = tuple(map(fault, step.plan))
        return step

    case = Case(
        workload=Workload(tiny.name),
        implementation="faulty",
        fresh_inputs=lambda seed: draw(seed)[0],
        reference=lambda inputs: reference.decode(tiny, tiny_weights, inputs, dtype=torch.float64),
        prepare=prepare,
        tolerance=registry.entry("decode", "torch-eager").tolerance.bf16,
        exact=("token",),
    )
    with pytest.raises(IncorrectOutput, match=message):
        gate.check(case, seed=7)


def test_a_write_beside_any_scratch_changes_what_must_stay(tiny: Decode, tiny_weights: Weights, draw) -> None:
    step = ModularStep(tiny, tiny_weights, draw(1)[0], tiles=SPLIT_TILES)
    before = buffers.fingerprint(step.constants)
    for tensor in (*step.scratch, step.between.best_row, step.between.positions):
        for beside in (tensor.storage_offset() - 1, tensor.storage_offset() + tensor.numel()):
            cell = torch.as_strided(tensor, (1,), (1,), beside)
            kept = cell.clone()
            cell.zero_()
            assert buffers.fingerprint(step.constants) != before
            cell.copy_(kept)
    assert buffers.fingerprint(step.constants) == before
