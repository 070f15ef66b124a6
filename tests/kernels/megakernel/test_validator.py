from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from kernels import workloads
from kernels.llama.megakernel import validator
from kernels.llama.megakernel.accesses import Access, Accesses
from kernels.llama.megakernel.instructions import Instruction, Kind, Tape, Wait
from kernels.llama.megakernel.layout import Layout
from kernels.llama.megakernel.schedule import schedule
from kernels.llama.megakernel.validator import InvalidTape, validate
from tests.kernels.megakernel.faults import (
    changed,
    one,
    one_arrival_short,
    places,
    waits_for,
    with_a_stale_vector,
    with_program,
    without_a_layer,
    without_a_tile,
    without_wait,
)

TINY = workloads.named("decode/llama-tiny/b1-ctx21-fp32")
LLAMA_1B = workloads.named("decode/llama-1b/b1-ctx512-bf16")
TAPE = schedule(TINY, programs=3, rows=16, splits=2)
LAYOUT = Layout(TINY, 16, splits=2)


@pytest.mark.parametrize("programs", [1, 3, 7])
@pytest.mark.parametrize(("rows", "splits"), [(16, 2), (8, 1), (4, 3)])
def test_schedules_are_valid(programs: int, rows: int, splits: int) -> None:
    validate(schedule(TINY, programs=programs, rows=rows, splits=splits), TINY)


def test_a_schedule_of_more_programs_than_some_stages_have_tiles_is_valid() -> None:
    tape = schedule(TINY, programs=40, rows=16, splits=2)
    assert any(all(i.kind is not Kind.HEAD for i in program) for program in tape.programs)
    validate(tape, TINY)


def test_the_tape_of_the_large_shape_is_valid() -> None:
    validate(schedule(LLAMA_1B, programs=132, rows=16, splits=2), LLAMA_1B)


@pytest.mark.parametrize("counter", ["x", "qkv", "attended", "mid", "hidden", "best", "token"])
def test_a_removed_wait_is_refused(counter: str) -> None:
    first = places(TAPE, waits_for(LAYOUT, counter))[0]
    with pytest.raises(InvalidTape, match=r"program \d, [A-Z_]+ of layer \d, .*: may read \w+ before it is written"):
        validate(without_wait(TAPE, first), TINY)


@pytest.mark.parametrize("counter", ["x", "qkv", "attended", "mid", "hidden", "best"])
def test_a_wait_for_one_arrival_too_few_is_refused(counter: str) -> None:
    first = places(TAPE, waits_for(LAYOUT, counter))[0]
    with pytest.raises(InvalidTape, match=rf"waits for 2 arrivals at {counter}.*which 3 programs signal"):
        validate(one_arrival_short(TAPE, first), TINY)


def test_a_counter_that_nobody_signals_is_refused() -> None:
    silent = replace(
        TAPE,
        programs=tuple(
            tuple(replace(i, signal=None) if i.signal == LAYOUT.mid(1) else i for i in program)
            for program in TAPE.programs
        ),
    )
    with pytest.raises(InvalidTape, match=r"waits for 3 arrivals at mid\[1\], which 0 programs signal"):
        validate(silent, TINY)


def test_a_tile_that_is_missing_or_done_twice_is_refused() -> None:
    with pytest.raises(InvalidTape, match=r"HEAD of layer 2, tile \d+ is done 0 times"):
        validate(without_a_tile(TAPE, Kind.HEAD, 0), TINY)
    with pytest.raises(InvalidTape, match="QKV of layer 0, tile 0 is done 0 times"):
        validate(without_a_layer(TAPE, LAYOUT, 0), TINY)
    program, index = one(TAPE, 0, lambda i: i.kind is Kind.GATE_UP and not i.fresh and i.signal is None)
    instructions = list(TAPE.programs[program])
    instructions.insert(index, instructions[index])
    with pytest.raises(InvalidTape, match=r"GATE_UP of layer \d, tile \d+ is done 2 times"):
        validate(with_program(TAPE, program, instructions), TINY)
    foreign = replace(TAPE.programs[0][0], tile=999)
    with pytest.raises(InvalidTape, match="QKV of layer 0 has no tile 999"):
        validate(with_program(TAPE, 0, [foreign, *TAPE.programs[0]]), TINY)


def test_chunks_out_of_order_are_refused() -> None:
    program, index = one(TAPE, 0, lambda i: i.kind is Kind.DOWN and i.tile < LAYOUT.row_blocks)
    instructions = list(TAPE.programs[program])
    first, second = instructions[index : index + 2]
    instructions[index : index + 2] = [replace(first, tile=second.tile), replace(second, tile=first.tile)]
    with pytest.raises(InvalidTape, match="chunks of a row block must follow each other"):
        validate(with_program(TAPE, program, instructions), TINY)


def test_chunks_of_a_row_block_in_two_programs_are_refused() -> None:
    program, index = one(TAPE, 0, lambda i: i.kind is Kind.DOWN and i.tile < LAYOUT.row_blocks)
    instructions = list(TAPE.programs[program])
    moved = instructions.pop(index)
    other = (program + 1) % 3
    at = next(n for n, i in enumerate(TAPE.programs[other]) if (i.kind, i.layer) == (moved.kind, moved.layer))
    elsewhere = [*TAPE.programs[other][:at], moved, *TAPE.programs[other][at:]]
    with pytest.raises(InvalidTape, match="chunks of a row block must follow each other"):
        validate(with_program(with_program(TAPE, program, instructions), other, elsewhere), TINY)


@pytest.mark.parametrize("kind", [Kind.QKV, Kind.OUT, Kind.GATE_UP, Kind.DOWN, Kind.HEAD], ids=lambda kind: kind.name)
def test_a_stale_vector_is_refused(kind: Kind) -> None:
    with pytest.raises(InvalidTape, match=r"needs \('\w+', \d, \d\), but the registers hold"):
        validate(with_a_stale_vector(TAPE, kind, 0), TINY)
    with pytest.raises(InvalidTape, match="has no vector to load"):
        validate(changed(TAPE, one(TAPE, 0, lambda i: i.kind is Kind.ATTEND), fresh=True), TINY)


def test_a_deadlock_is_refused() -> None:
    """A program waits at OUT for what only its own OUT tiles complete."""
    program, index = one(TAPE, 0, waits_for(LAYOUT, "attended"))
    layer = TAPE.programs[program][index].layer
    stuck = changed(TAPE, (program, index), wait=Wait(LAYOUT.mid(layer), arrivals=3))
    with pytest.raises(InvalidTape, match=rf"deadlock, waits for mid\[{layer}\] to reach 3, which stays at 2"):
        validate(stuck, TINY)


def test_waiting_for_this_steps_token_is_a_deadlock_and_another_lag_is_refused() -> None:
    place = one(TAPE, 0, waits_for(LAYOUT, "token"))
    with pytest.raises(InvalidTape, match=r"program \d, .*: deadlock, waits for \w+.* to reach"):
        validate(changed(TAPE, place, wait=Wait(LAYOUT.token, 1, lag=0)), TINY)
    with pytest.raises(InvalidTape, match="lag 2"):
        validate(changed(TAPE, place, wait=Wait(LAYOUT.token, 1, lag=2)), TINY)


@pytest.mark.parametrize("kind", [Kind.QKV, Kind.ATTEND, Kind.OUT, Kind.GATE_UP, Kind.DOWN], ids=lambda kind: kind.name)
def test_a_signal_before_the_last_tile_is_refused(kind: Kind) -> None:
    def moved(tape: Tape) -> Tape:
        for program, index in places(tape, lambda i: i.kind is kind and i.signal is not None):
            signal = tape.programs[program][index].signal
            layer = tape.programs[program][index].layer
            earlier = [
                (program, n)
                for n, i in enumerate(tape.programs[program][:index])
                if (i.kind, i.layer, i.signal) == (kind, layer, None)
                and LAYOUT.announced(i.kind, i.layer, i.tile) == signal
            ]
            if earlier:
                return changed(changed(tape, (program, index), signal=None), earlier[0], signal=signal)
        raise AssertionError(f"no program has two {kind.name} tiles that one signal stands for")

    with pytest.raises(InvalidTape, match=r"may read \w+ before it is written"):
        validate(moved(TAPE), TINY)


def test_best_before_the_last_head_tile_and_head_tiles_out_of_order_are_refused() -> None:
    head = one(TAPE, 0, lambda i: i.kind is Kind.HEAD and i.fresh)
    with pytest.raises(InvalidTape, match="stores the program's best before its last HEAD tile"):
        validate(changed(TAPE, head, signal=LAYOUT.best), TINY)
    program, index = head
    tiles = TAPE.programs[program][index].tile, TAPE.programs[program][index + 1].tile
    swapped = changed(changed(TAPE, head, tile=tiles[1]), (program, index + 1), tile=tiles[0])
    with pytest.raises(InvalidTape, match="HEAD tiles out of order"):
        validate(swapped, TINY)


def test_a_counter_signalled_twice_or_outside_of_the_tape_is_refused() -> None:
    place = one(TAPE, 0, lambda i: i.kind is Kind.OUT and i.signal is None and i.layer == 0)
    with pytest.raises(InvalidTape, match=r"signals mid\[0\] 2 times"):
        validate(changed(TAPE, place, signal=LAYOUT.mid(0)), TINY)
    with pytest.raises(InvalidTape, match=f"signals counter 999 of {TAPE.counters}"):
        validate(changed(TAPE, place, signal=999), TINY)


def _first_query_tile(program: int) -> int:
    return next(i.tile for i in TAPE.programs[program] if i.kind is Kind.QKV)


def test_a_write_that_may_overtake_a_reader_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a program still looked at another's query rows of the layer before; the walk meets one of the two first."""
    refusals = []
    for reader, writer in itertools.permutations(range(3), 2):
        tile = _first_query_tile(writer)

        class Curious(Accesses):
            def reads(self, instruction: Instruction, epoch: int, reader: int = reader, tile: int = tile):
                right = super().reads(instruction, epoch)
                looks = (instruction.kind, instruction.layer, epoch) == (Kind.QKV, 1, 1)
                old = Access(("query", 0), tile, tile + 1, self.version(1, 0))
                return (*right, old) if looks and instruction in TAPE.programs[reader] else right

        monkeypatch.setattr(validator, "Accesses", Curious)
        with pytest.raises(InvalidTape, match=r"may (read|write) query before") as refused:
            validate(TAPE, TINY)
        refusals.append(str(refused.value))
    assert any("has read what was there" in refusal for refusal in refusals)


def test_a_write_that_may_overtake_a_writer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tile = _first_query_tile(1)

    class Generous(Accesses):
        def writes(self, program: int, instruction: Instruction, epoch: int) -> tuple[Access, ...]:
            right = super().writes(program, instruction, epoch)
            extra = (program, instruction.kind, instruction.layer) == (0, Kind.QKV, 0)
            return (*right, Access(("query", 0), tile, tile + 1, self.version(epoch, 0))) if extra else right

    monkeypatch.setattr(validator, "Accesses", Generous)
    with pytest.raises(InvalidTape, match="may write query before program 0, which comes first"):
        validate(TAPE, TINY)


def test_a_signal_that_may_come_a_step_too_early_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that waits for nothing counts twice for one that has not counted yet."""

    class Blind(Accesses):
        def reads(self, instruction: Instruction, epoch: int) -> tuple[Access, ...]:
            return ()

        def writes(self, program: int, instruction: Instruction, epoch: int) -> tuple[Access, ...]:
            return ()

    monkeypatch.setattr(validator, "Accesses", Blind)
    validate(TAPE, TINY)
    ahead = with_program(TAPE, 1, [replace(i, wait=None) for i in TAPE.programs[1]])
    with pytest.raises(InvalidTape, match=r"may signal qkv\[0, \d\] again before all others"):
        validate(ahead, TINY)


def test_rows_that_move_between_programs_are_refused_where_they_have_to_stay() -> None:
    layout = Layout(TINY, 16, splits=2)
    few = schedule(TINY, programs=3, rows=16, splits=2)
    assert layout.row_blocks > 3
    with pytest.raises(InvalidTape, match="the registers hold the rows of block"):
        validate(few, TINY, resident_rows=True)
