from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest

from kernels import workloads
from kernels.llama.megakernel.instructions import Instruction, Kind, Tape, Wait, span
from kernels.llama.megakernel.layout import Layout
from kernels.llama.megakernel.schedule import schedule
from kernels.workloads import LLAMA_MINI, LLAMA_TINY, decode_workload

TINY = workloads.named("decode/llama-tiny/b1-ctx21-fp32")
MINI = workloads.named("decode/llama-mini/b1-ctx128-fp32")
LLAMA_1B = workloads.named("decode/llama-1b/b1-ctx512-bf16")


def work(tape: Tape) -> Counter[tuple[Kind, int, int]]:
    return Counter((i.kind, i.layer, i.tile) for program in tape.programs for i in program)


@pytest.mark.parametrize("programs", [1, 3, 7])
@pytest.mark.parametrize(("workload", "rows"), [(TINY, 16), (TINY, 8), (TINY, 4), (MINI, 16)])
def test_every_tile_is_done_once_and_stages_come_in_order(workload, rows: int, programs: int) -> None:
    tape = schedule(workload, programs=programs, rows=rows, splits=2)
    layout = Layout(workload, rows, splits=2)
    stages = layout.stages()
    assert work(tape) == {(kind, layer, tile): 1 for kind, layer in stages for tile in range(layout.tiles(kind))}
    for program in tape.programs:
        order = [stages.index((i.kind, i.layer)) for i in program]
        assert order == sorted(order)


@pytest.mark.parametrize(("programs", "rows"), [(132, 16), (264, 8), (528, 4)])
def test_no_program_is_given_much_more_than_the_others(programs: int, rows: int) -> None:
    tape = schedule(LLAMA_1B, programs=programs, rows=rows, splits=2)
    layout = Layout(LLAMA_1B, rows, splits=2)
    loads = [0] * programs
    done = [Counter((i.kind, i.layer) for i in program) for program in tape.programs]
    for stage in layout.stages():
        loads = [load + mine[stage] for load, mine in zip(loads, done, strict=True)]
        if stage[0] in (Kind.GATE_UP, Kind.HEAD):  # stages with tiles enough to make up for uneven ones
            assert max(loads) < 1.01 * sum(loads) / programs + 2
    assert loads == [len(program) for program in tape.programs]


def test_no_program_attends_twice_where_there_are_enough_and_those_that_attend_project_less() -> None:
    tape = schedule(LLAMA_1B, programs=132, rows=16, splits=2)
    for layer in (0, 7, 15):
        attend = [sum((i.kind, i.layer) == (Kind.ATTEND, layer) for i in program) for program in tape.programs]
        qkv = [sum((i.kind, i.layer) == (Kind.QKV, layer) for i in program) for program in tape.programs]
        assert set(attend) == {0, 1}
        projected = [mine for mine, tiles in zip(qkv, attend, strict=True) if tiles]
        free = [mine for mine, tiles in zip(qkv, attend, strict=True) if not tiles]
        assert sum(projected) / len(projected) < sum(free) / len(free)


def test_hidden_values_are_dealt_chunk_by_chunk() -> None:
    tape = schedule(LLAMA_1B, programs=132, rows=16, splits=2)
    layout = Layout(LLAMA_1B, 16, splits=2)
    for program in tape.programs:
        chunks = [layout.chunk(i.kind, i.tile) for i in program if (i.kind, i.layer) == (Kind.GATE_UP, 7)]
        assert chunks == sorted(chunks)


def test_the_same_arguments_give_the_same_tape_and_a_dearer_attention_another() -> None:
    one = schedule(MINI, programs=7, rows=8, splits=2)
    assert schedule(MINI, programs=7, rows=8, splits=2) == one
    assert schedule(MINI, programs=7, rows=8, splits=2, attend_cost=3.5) != one


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 12}, "rows 12"),
        ({"programs": 0}, "programs 0"),
        ({"splits": 0}, "splits 0"),
        ({"attend_cost": -1.0}, "attend_cost -1"),
    ],
)
def test_arguments_that_make_no_tape_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schedule(TINY, **{"programs": 3, "rows": 8, "splits": 1, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"head_dim": 24, "hidden": 96}, "half a head 12"),
        ({"ffn": 192}, "ffn 192"),
        ({"vocab": 250}, "vocab 250"),
        ({"hidden": 256, "ffn": 256}, "128 query rows"),
    ],
)
def test_sizes_that_do_not_divide_are_refused_by_name(shape: dict[str, int], message: str) -> None:
    workload = replace(TINY, shape=replace(LLAMA_TINY, **shape))
    with pytest.raises(ValueError, match=message):
        schedule(workload, programs=3, rows=16, splits=1)


def test_a_batch_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="batch 4; the megakernel is written for batch 1"):
        schedule(workloads.named("decode/llama-tiny/b4-ctx21-fp32"), programs=3, rows=8, splits=1)


@pytest.mark.parametrize(("context", "splits", "positions"), [(512, 2, 256), (512, 1, 512), (159, 2, 80), (21, 4, 16)])
def test_a_split_is_an_even_share_rounded_up_to_sixteen(context: int, splits: int, positions: int) -> None:
    assert span(context, splits) == positions
    assert span(context, splits) * splits >= context


def test_the_encoding_gives_back_every_instruction() -> None:
    tape = schedule(MINI, programs=7, rows=8, splits=2)
    words, starts = tape.encoded()
    assert len(starts) == 8 and len(words) == 4 * starts[-1]

    def decoded(at: int) -> Instruction:
        first, tile, counters, wanted = words[4 * at : 4 * at + 4]
        counter, signal = counters & 0xFFFF, counters >> 16
        return Instruction(
            kind=Kind(first & 15),
            layer=first >> 8,
            tile=tile,
            fresh=bool(first >> 4 & 1),
            wait=Wait(counter - 1, wanted & 0xFFFF, wanted >> 16) if counter else None,
            signal=signal - 1 if signal else None,
        )

    for program, (start, end) in zip(tape.programs, itertools.pairwise(starts), strict=True):
        assert tuple(map(decoded, range(start, end))) == program
    assert all(-(2**31) <= word < 2**31 for word in words)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"layer": 1 << 23}, "layer 8388608"),
        ({"tile": -1}, "tile -1"),
        ({"signal": (1 << 15) - 1}, "signal 32768"),
        ({"wait": Wait((1 << 16) - 1, 1)}, "wait's counter 65536"),
        ({"wait": Wait(0, 1 << 16)}, "arrivals 65536"),
        ({"wait": Wait(0, 1, lag=-1)}, "lag -1"),
    ],
)
def test_what_does_not_fit_its_bits_is_refused(field: dict[str, object], message: str) -> None:
    right = Instruction(Kind.OUT, layer=0, tile=0, fresh=True, wait=None, signal=None)
    tape = Tape(((replace(right, **field),),), counters=1, rows=8, splits=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        tape.encoded()


def test_one_step_more_waits_for_the_token_of_the_step_before() -> None:
    workload = decode_workload("llama-mini", LLAMA_MINI, context=128, number="fp32", device="cpu")
    tape = schedule(workload, programs=3, rows=16, splits=1)
    layout = Layout(workload, 16, splits=1)
    tokens = [i.wait for program in tape.programs for i in program if i.wait and i.wait.counter == layout.token]
    assert tokens == [Wait(layout.token, arrivals=1, lag=1)] * 3
    assert tokens[0].threshold(1) == 0 and tokens[0].threshold(2) == 1
