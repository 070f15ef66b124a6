"""Faults to plant in a tape: each takes one and returns another with exactly one thing wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from kernels.llama.megakernel.instructions import Instruction, Kind, Tape
from kernels.llama.megakernel.layout import Layout

Place = tuple[int, int]
"""Program and index of an instruction."""


def places(tape: Tape, chosen: Callable[[Instruction], bool]) -> list[Place]:
    return [
        (program, index)
        for program, instructions in enumerate(tape.programs)
        for index, instruction in enumerate(instructions)
        if chosen(instruction)
    ]


def one(tape: Tape, seed: int, chosen: Callable[[Instruction], bool]) -> Place:
    return random.Random(seed).choice(places(tape, chosen))


def changed(tape: Tape, place: Place, **fields: object) -> Tape:
    program, index = place
    instructions = list(tape.programs[program])
    instructions[index] = replace(instructions[index], **fields)  # type: ignore[arg-type]
    return with_program(tape, program, instructions)


def with_program(tape: Tape, program: int, instructions: list[Instruction]) -> Tape:
    programs = list(tape.programs)
    programs[program] = tuple(instructions)
    return replace(tape, programs=tuple(programs))


def waits_for(layout: Layout, counter: str) -> Callable[[Instruction], bool]:
    """`counter`: the name without its indices."""
    return lambda i: i.wait is not None and layout.counter_name(i.wait.counter).split("[")[0] == counter


def without_wait(tape: Tape, place: Place) -> Tape:
    return changed(tape, place, wait=None)


def one_arrival_short(tape: Tape, place: Place) -> Tape:
    wait = tape.programs[place[0]][place[1]].wait
    assert wait is not None
    return changed(tape, place, wait=replace(wait, arrivals=wait.arrivals - 1))


def without_a_tile(tape: Tape, kind: Kind, seed: int) -> Tape:
    """Its rows stay unwritten; everything that others wait for still comes."""
    program, index = one(tape, seed, lambda i: i.kind is kind and i.wait is None and i.signal is None and not i.fresh)
    instructions = list(tape.programs[program])
    del instructions[index]
    return with_program(tape, program, instructions)


def with_a_stale_vector(tape: Tape, kind: Kind, seed: int) -> Tape:
    """A program goes on with the vector that it holds from an earlier stage."""
    return changed(tape, one(tape, seed, lambda i: i.kind is kind and i.fresh and i.layer > 0), fresh=False)


def without_a_layer(tape: Tape, layout: Layout, layer: int) -> Tape:
    """What waits for this layer's output waits for its input instead, so that nobody is kept waiting."""

    before = next(i.wait for program in tape.programs for i in program if i.wait and i.wait.counter == layout.x(layer))

    def bridged(instruction: Instruction) -> Instruction:
        waits = instruction.wait is not None and instruction.wait.counter == layout.x(layer + 1)
        return replace(instruction, wait=before) if waits else instruction

    return replace(
        tape, programs=tuple(tuple(bridged(i) for i in program if i.layer != layer) for program in tape.programs)
    )
