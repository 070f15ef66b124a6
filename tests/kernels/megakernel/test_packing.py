"""What the device reads: the tape in runs, and the weights in the order of the tape."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from kernels import workloads
from kernels.llama import weights as llama_weights
from kernels.llama.megakernel import packing
from kernels.llama.megakernel.configuration import HOPPER, configuration_for, tape_for
from kernels.llama.megakernel.instructions import Instruction, Kind
from kernels.llama.megakernel.layout import Layout
from kernels.llama.megakernel.schedule import schedule
from kernels.llama.megakernel.validator import validate
from kernels.llama.weights import Weights
from kernels.workloads import Decode

H200 = 132
ONE = "decode/llama-1b/b1-ctx512-bf16"


@pytest.fixture(scope="module")
def wide() -> Decode:
    """Tiny, but with rows of 256: what a tile's copy is made of."""
    tiny = workloads.named("decode/llama-tiny/b1-ctx21-fp32")
    return dataclasses.replace(tiny, shape=dataclasses.replace(tiny.shape, hidden=256, query_heads=8, ffn=512))


def tile_of(instruction: Instruction, layout: Layout, weights: Weights) -> Tensor:
    """The rows that an instruction multiplies with, as the tape's words say it, one row at a time."""
    shape, rows, tile, layer = layout.workload.shape, layout.rows, instruction.tile, instruction.layer
    block = range(tile * rows, (tile + 1) * rows)
    if instruction.kind is Kind.HEAD:
        return weights.embedding[list(block)]
    if instruction.kind is Kind.OUT:
        return weights.out[layer][list(block)]
    if instruction.kind is Kind.GATE_UP:
        gates = [tile * rows // 2 + n for n in range(rows // 2)]
        return weights.gate_up[layer][gates + [shape.ffn + gate for gate in gates]]
    if instruction.kind is Kind.DOWN:
        chunk, block_number = divmod(tile, shape.hidden // rows)
        columns = slice(chunk * shape.hidden, (chunk + 1) * shape.hidden)
        return weights.down[layer][block_number * rows : (block_number + 1) * rows, columns]
    half = shape.head_dim // 2
    head, part = divmod(tile, half // (rows // 2))
    first = [head * shape.head_dim + part * rows // 2 + n for n in range(rows // 2)]
    return weights.qkv[layer][first + [row + half for row in first]]


@pytest.mark.parametrize("programs", [1, 3])
def test_each_program_finds_its_tiles_in_the_order_of_its_tape(programs: int, wide: Decode) -> None:
    weights = llama_weights.random(wide, device="cpu", seed=5)
    tape = schedule(wide, programs=programs, rows=8, splits=2)
    packed = packing.packed(wide, weights, tape).view(-1, 8, 256)
    starts = packing.tile_starts(tape)
    assert starts[-1] == len(packed)
    for program, start in zip(tape.programs, starts, strict=False):
        with_tile = [line for line in program if line.kind not in packing.WITHOUT_TILE]
        for at, line in enumerate(with_tile):
            assert torch.equal(packed[start + at], tile_of(line, Layout(wide, 8, 2), weights)), line


def test_runs_cover_the_tape_and_start_where_a_vector_is_loaded(wide: Decode) -> None:
    tape = schedule(wide, programs=3, rows=8, splits=2)
    words, starts = tape.encoded()
    for program, mine, start in zip(tape.programs, packing.runs(tape), starts, strict=False):
        at = 0
        for first in range(0, len(mine), 4):
            run = mine[first + 3] >> 17
            line = words[4 * (start + at) : 4 * (start + at) + 4]
            assert run >= 1
            assert [*mine[first : first + 3], mine[first + 3] & 0x1FFFF] == line
            assert program[at].fresh or program[at].kind in packing.WITHOUT_TILE
            for following in program[at + 1 : at + run]:
                assert not following.fresh
                assert (following.kind, following.layer) == (program[at].kind, program[at].layer)
            at += run
        assert at == len(program)


@pytest.mark.parametrize("name", [ONE, "decode/llama-1b/b1-gen32+127-bf16", "decode/llama-1b/b1-ctx4096-bf16"])
def test_the_shipped_configuration_suits_its_workload(name: str) -> None:
    workload = workloads.named(name)
    tape = tape_for(workload, configuration_for(workload), multiprocessors=H200)
    for program in tape.programs:
        assert sum(line.kind is Kind.OUT for line in program) <= workload.shape.layers
        assert any(line.kind is Kind.HEAD for line in program)  # the last arriver reads what every program found best


def test_the_tape_that_is_shipped_orders_all_that_it_reads_and_writes() -> None:
    workload = workloads.named(ONE)
    tape = tape_for(workload, configuration_for(workload), multiprocessors=H200)
    validate(tape, workload, resident_rows=True)


@pytest.mark.parametrize(
    ("multiprocessors", "hidden", "message"),
    [
        (100, 2048, "128 blocks of 16 rows for 100 programs"),
        (200, 2048, "a program without a tile of QKV of layer 0"),
        (132, 1024, "hidden 1024 is not 256 for each of 8 warps"),
    ],
)
def test_a_device_or_a_size_that_the_kernel_is_not_written_for_is_refused(
    multiprocessors: int, hidden: int, message: str
) -> None:
    workload = workloads.named(ONE)
    shape = dataclasses.replace(workload.shape, hidden=hidden, query_heads=hidden // 64)
    with pytest.raises(ValueError, match=message):
        tape_for(dataclasses.replace(workload, shape=shape), HOPPER, multiprocessors=multiprocessors)
