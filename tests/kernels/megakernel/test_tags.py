"""Tags keep a tape's programs in order as the kernel has them: without the counters, over launches and wrap-arounds."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kernels import workloads
from kernels.llama.megakernel.configuration import configuration_for, tape_for
from kernels.llama.megakernel.fuzzer import Verdict
from kernels.llama.megakernel.instructions import Instruction, Kind
from kernels.llama.megakernel.schedule import schedule
from kernels.llama.megakernel.tag_order import validate_tags
from kernels.llama.megakernel.tagged_interpreter import TaggedInterpreter
from kernels.llama.megakernel.tags import TaggedWords, Words, tag, write_number
from kernels.llama.megakernel.validator import InvalidTape, validate
from kernels.workloads import Decode
from tests.kernels.megakernel.conftest import Bench
from tests.kernels.megakernel.faults import Place, places

SEEDS = range(20)
FEW = range(5)
TINY = workloads.named("decode/llama-tiny/b1-ctx21-fp32")
READERS = (Kind.QKV, Kind.ATTEND, Kind.OUT, Kind.GATE_UP, Kind.DOWN, Kind.HEAD)


def found(verdicts: Sequence[Verdict]) -> int:
    return sum(bool(verdict.wrong) for verdict in verdicts)


def readers(right: Bench, kind: Kind) -> list[Place]:
    """A program's first reader of this kind in each layer: what later ones read, it may have seen already."""
    words = TaggedWords(right.layout)
    first: dict[tuple[int, int], Place] = {}
    for program, index in places(right.tape, lambda i: i.kind is kind and bool(words.awaited(i, 1))):
        first.setdefault((program, right.tape.programs[program][index].layer), (program, index))
    return list(first.values())


def trusting(right: Bench, place: Place) -> type[TaggedInterpreter]:
    """One program takes what it finds, without a look at the tags, in one place."""
    program_at, instruction_at = place[0], right.tape.programs[place[0]][place[1]]

    class Trusting(TaggedInterpreter):
        def awaited(self, program: int, instruction: Instruction, epoch: int) -> tuple[Words, ...]:
            skips = program == program_at and instruction == instruction_at
            return () if skips else super().awaited(program, instruction, epoch)

    return Trusting


@pytest.mark.parametrize(("programs", "launches"), [(3, 2), (7, 2)])
def test_a_right_tape_gives_the_same_bits_by_tags_as_by_counters(
    programs: int, launches: int, bench: Callable[[int], Bench]
) -> None:
    right = bench(programs)
    verdicts = right.fuzz(right.tape, SEEDS, TaggedInterpreter, launches=launches)
    assert [verdict.wrong for verdict in verdicts] == [""] * len(SEEDS)


@pytest.mark.parametrize("kind", READERS, ids=lambda kind: kind.name)
def test_one_removed_look_at_the_tags_is_found(kind: Kind, bench: Callable[[int], Bench]) -> None:
    right = bench(7 if kind in (Kind.ATTEND, Kind.DOWN) else 3)
    places = readers(right, kind)
    verdicts = [
        right.fuzz(right.tape, [seed], trusting(right, random.Random(seed).choice(places)))[0] for seed in SEEDS
    ]
    assert found(verdicts) >= 19


def test_a_glance_that_is_not_confirmed_is_found(bench: Callable[[int], Bench]) -> None:
    class Rash(TaggedInterpreter):
        def confirmed(self, program: int, instruction: Instruction, words: Words) -> bool:
            return True

    right = bench(3)
    assert found(right.fuzz(right.tape, SEEDS, Rash)) >= 19


def test_one_tag_for_all_writes_is_found(bench: Callable[[int], Bench]) -> None:
    class Untold(TaggedInterpreter):
        def tag(self, number: int) -> int:
            return 1

    right = bench(3)
    assert found(right.fuzz(right.tape, SEEDS, Untold)) >= 19


def test_tags_that_start_again_with_each_launch_are_found(bench: Callable[[int], Bench]) -> None:
    class Forgetful(TaggedInterpreter):
        def tag(self, number: int) -> int:
            return tag(number - write_number(self.first_epoch, 0, self.words.layers))

    right = bench(3)
    verdicts = right.fuzz(right.tape, SEEDS, Forgetful, launches=4)
    assert found(verdicts) >= 19
    assert not any(verdict.wrong.startswith("launch 0") for verdict in verdicts)


def wrapping(last: int, arrivals: int) -> type[TaggedInterpreter]:
    """Launches after `last` steps: epoch and counters as int32 have them."""

    class Wrapping(TaggedInterpreter):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            *_, scratch = arguments
            if not int(scratch.epoch):
                scratch.epoch.fill_(last)
                scratch.counters[-1] = last
                scratch.counters[-2] = (last * arrivals + (1 << 31)) % (1 << 32) - (1 << 31)
            super().__init__(*arguments, **options)

    return Wrapping


@pytest.mark.parametrize("last", [(1 << 30) - 3, (1 << 31) - 3])
def test_a_step_may_follow_two_thousand_million_others(last: int, bench: Callable[[int], Bench]) -> None:
    """The tags wrap around between the steps of the second launch, then the epoch itself."""
    right = bench(3)
    assert right.layout.workload.shape.layers == 2
    (pick,) = [i for program in right.tape.programs for i in program if i.kind is Kind.PICK]
    assert pick.wait is not None
    late = wrapping(last, pick.wait.arrivals)
    assert [verdict.wrong for verdict in right.fuzz(right.tape, FEW, late, launches=3)] == [""] * len(FEW)


@pytest.mark.parametrize(("rows", "splits"), [(16, 2), (8, 1), (4, 3)])
@pytest.mark.parametrize("programs", [1, 3, 7])
def test_tags_suffice_for_schedules(programs: int, rows: int, splits: int) -> None:
    validate_tags(schedule(TINY, programs=programs, rows=rows, splits=splits), TINY)


def shallow(context: int) -> Decode:
    """The large shape with fewer layers: they are alike but for who gets the tiles that are left over."""
    workload = workloads.named(f"decode/llama-1b/b1-ctx{context}-bf16")
    return dataclasses.replace(workload, shape=dataclasses.replace(workload.shape, layers=2))


@pytest.mark.parametrize(("context", "multiprocessors"), [(512, 132), (4096, 148)])
def test_tags_suffice_for_the_tapes_of_the_large_shape(context: int, multiprocessors: int) -> None:
    workload = shallow(context)
    tape = tape_for(workload, configuration_for(workload), multiprocessors=multiprocessors)
    validate_tags(tape, workload)


def test_a_program_that_attends_without_having_seen_the_layer_s_input_is_refused() -> None:
    """By counters such a tape is right; by tags it may take the keys of three layers ago for this one's."""
    tape = schedule(TINY, programs=40, rows=16, splits=2)
    validate(tape, TINY)
    with pytest.raises(InvalidTape, match=r"ATTEND of layer 1, .*: may look at rows two writes too early"):
        validate_tags(tape, TINY)


def test_a_reader_that_nobody_hears_of_is_refused() -> None:
    """Were OUT and DOWN to await the first tile alone, a program without rows of its own could be overtaken."""

    class Narrow(TaggedWords):
        def awaited(self, instruction: Instruction, epoch: int) -> tuple[Words, ...]:
            whole = super().awaited(instruction, epoch)
            return tuple(
                dataclasses.replace(words, first=0, last=1) if words.buffer in ("attended", "hidden") else words
                for words in whole
            )

    tape = schedule(TINY, programs=14, rows=16, splits=2)
    validate_tags(tape, TINY)
    with pytest.raises(InvalidTape, match=r"may post \w+ before program \d+ has received what was there"):
        validate_tags(tape, TINY, words=Narrow)
