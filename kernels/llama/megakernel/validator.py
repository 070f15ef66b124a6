"""Refuses a tape that could give a wrong result, hang, or leave something out, whatever the timing of its programs.

Ordering is happens-before (Lamport 1978), with a clock of one entry a program (Fidge 1988; Mattern 1988): an
instruction is after what its program did before and, through its waits, after whatever was done before the signals
that a wait counts. Two steps are walked through, the second right behind the first, as in a generation: every read has
to be after the writes that it needs and every write after all earlier reads and writes of the same place. Since what is
checked is order and not timing, one walk stands for all interleavings.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.llama.megakernel.accesses import Access, Accesses, Buffer
from kernels.llama.megakernel.instructions import Instruction, Kind, Tape, Wait
from kernels.llama.megakernel.layout import Layout
from kernels.workloads import Decode

_STEPS = 2


class InvalidTape(ValueError):
    """What is wrong, with the program and the instruction where it is."""


def validate(tape: Tape, workload: Decode, *, resident_rows: bool = False) -> None:
    """Raises `InvalidTape` on the first thing that is wrong.

    resident_rows: also refuse a tape whose programs cannot keep the residual rows that they add to in registers: those
    of OUT and DOWN of all layers, one row block a program at most.

    A tile that is missing or done twice; chunks of a row block apart or out of order; a register that does not hold the
    vector that a tile needs; a wait whose arrivals are not its counter's signals; a deadlock; and any two accesses
    that are not ordered. Loads are taken as early as they may be issued: those of an instruction without a wait
    at the last wait before it, those of earlier keys and values before their own instruction's wait.
    """
    layout = Layout(workload, tape.rows, tape.splits)
    _check_tiles(tape, layout)
    for program, instructions in enumerate(tape.programs):
        _check_chunks(layout, program, instructions)
        _check_vectors(layout, program, instructions)
        _check_heads(program, instructions)
    if resident_rows:
        _check_rows(tape, layout)
    _check_counters(tape, layout)
    _Walk(tape, layout).run()


def _at(program: int, instruction: Instruction) -> str:
    return f"program {program}, {instruction.kind.name} of layer {instruction.layer}, tile {instruction.tile}"


def _check_tiles(tape: Tape, layout: Layout) -> None:
    done = Counter((i.kind, i.layer, i.tile) for program in tape.programs for i in program)
    for kind, layer in layout.stages():
        for tile in range(layout.tiles(kind)):
            times = done.pop((kind, layer, tile), 0)
            if times != 1:
                raise InvalidTape(f"{kind.name} of layer {layer}, tile {tile} is done {times} times instead of once")
    if done:
        kind, layer, tile = next(iter(done))
        raise InvalidTape(f"{kind.name} of layer {layer} has no tile {tile}")


def _check_chunks(layout: Layout, program: int, instructions: Sequence[Instruction]) -> None:
    """A row block's sum stays in registers from its first chunk to its last."""
    expected: tuple[int, int] | None = None
    for instruction in instructions:
        place = (instruction.layer, instruction.tile) if instruction.kind is Kind.DOWN else None
        chunk = -1 if place is None else layout.chunk(Kind.DOWN, instruction.tile)
        if expected != (place if chunk > 0 else None):
            raise InvalidTape(f"{_at(program, instruction)}: chunks of a row block must follow each other in order")
        last = place is None or chunk == layout.chunks - 1
        expected = None if last else (instruction.layer, instruction.tile + layout.row_blocks)
    if expected is not None:
        raise InvalidTape(f"program {program} ends within the chunks of a row block")


def _check_vectors(layout: Layout, program: int, instructions: Sequence[Instruction]) -> None:
    held = None
    for instruction in instructions:
        vector = layout.vector(instruction.kind, instruction.layer, instruction.tile)
        if vector is not None and not instruction.fresh and vector != held:
            raise InvalidTape(f"{_at(program, instruction)}: needs {vector}, but the registers hold {held}")
        if vector is None and instruction.fresh:
            raise InvalidTape(f"{_at(program, instruction)}: has no vector to load")
        held = vector or held


def _check_heads(program: int, instructions: Sequence[Instruction]) -> None:
    heads = [instruction for instruction in instructions if instruction.kind is Kind.HEAD]
    if [i.tile for i in heads] != sorted(i.tile for i in heads):
        raise InvalidTape(f"program {program}: HEAD tiles out of order, the lowest row of equal logits would be lost")
    for head in heads[:-1]:
        if head.signal is not None:
            raise InvalidTape(f"{_at(program, head)}: stores the program's best before its last HEAD tile")


def _check_rows(tape: Tape, layout: Layout) -> None:
    for program, instructions in enumerate(tape.programs):
        mine = None
        for instruction in instructions:
            if instruction.kind in (Kind.OUT, Kind.DOWN):
                block = instruction.tile % layout.row_blocks
                if mine not in (None, block):
                    raise InvalidTape(f"{_at(program, instruction)}: the registers hold the rows of block {mine}")
                mine = block


def _check_counters(tape: Tape, layout: Layout) -> None:
    signals: Counter[int] = Counter()
    for program, instructions in enumerate(tape.programs):
        mine = Counter(i.signal for i in instructions if i.signal is not None)
        for counter, times in mine.items():
            if not 0 <= counter < tape.counters:
                raise InvalidTape(f"program {program} signals counter {counter} of {tape.counters}")
            if times > 1:
                raise InvalidTape(f"program {program} signals {layout.counter_name(counter)} {times} times")
        signals.update(mine)
    for program, instructions in enumerate(tape.programs):
        for instruction in instructions:
            wait = instruction.wait
            if wait is None:
                continue
            if not 0 <= wait.lag <= 1:
                raise InvalidTape(f"{_at(program, instruction)}: lag {wait.lag} is neither 0 nor 1")
            if wait.arrivals != signals[wait.counter] or not wait.arrivals:
                raise InvalidTape(
                    f"{_at(program, instruction)}: waits for {wait.arrivals} arrivals at "
                    f"{layout.counter_name(wait.counter)}, which {signals[wait.counter]} programs signal"
                )


@dataclass(slots=True)
class _Contents:
    """Of each part of a buffer: who wrote it, with which instruction of its walk, which version; and the last
    instruction of each program that read it [parts, programs], once there is one."""

    writer: Tensor
    written: Tensor
    version: Tensor
    read: Tensor | None = None


@dataclass(slots=True)
class _Counted:
    """A counter's signals in one step: how many, by which instruction of each program, what is known through them."""

    known: Tensor
    signalled: Tensor
    arrivals: int = 0


@dataclass(slots=True)
class _Program:
    """How far a program is, and the last instruction of each program that it knows to be done.

    Its own entry stands at its last wait, since its loads may be issued as early as that.
    """

    walk: tuple[tuple[int, Instruction], ...]
    known: Tensor
    at: int = 0


class _Walk:
    """All programs in order through two steps, with a happens-before check of every access."""

    def __init__(self, tape: Tape, layout: Layout) -> None:
        self.layout = layout
        self.accesses = Accesses(layout, tape)
        self.count = len(tape.programs)
        self.contents: dict[Buffer, _Contents] = {}
        self.counted: dict[tuple[int, int], _Counted] = {}
        self.arrived: Counter[int] = Counter()
        self.signals = Counter(i.signal for program in tape.programs for i in program)
        self.programs = [
            _Program(tuple((epoch, i) for epoch in range(1, _STEPS + 1) for i in program), self._nothing())
            for program in tape.programs
        ]
        token = self._contents(("token", 0))
        token.version[:] = self.accesses.version(0, 0)  # the token of the input

    def run(self) -> None:
        waiting: dict[int, list[int]] = defaultdict(list)
        active = deque(range(self.count))
        while active:
            program = active.popleft()
            blocked, freed = self._advance(program)
            if blocked is not None:
                waiting[blocked.counter].append(program)
            for counter in freed:
                active.extend(waiting.pop(counter, ()))
        for program, state in enumerate(self.programs):
            if state.at < len(state.walk):
                epoch, instruction = state.walk[state.at]
                assert instruction.wait is not None
                raise InvalidTape(
                    f"{_at(program, instruction)}: deadlock, waits for "
                    f"{self.layout.counter_name(instruction.wait.counter)} to reach "
                    f"{instruction.wait.threshold(epoch)}, which stays at {self.arrived[instruction.wait.counter]}"
                )

    def _advance(self, program: int) -> tuple[Wait | None, set[int]]:
        """To the next wait that is not satisfied; also the counters that were signalled on the way."""
        freed: set[int] = set()
        state = self.programs[program]
        while state.at < len(state.walk):
            epoch, instruction = state.walk[state.at]
            wait = instruction.wait
            reads = self.accesses.reads(instruction, epoch)
            if wait is not None:
                if self.arrived[wait.counter] < wait.threshold(epoch):
                    return wait, freed
                self._read(program, instruction, [access for access in reads if access.early])
                self._join(program, wait, epoch)
                reads = tuple(access for access in reads if not access.early)
            self._read(program, instruction, reads)
            self._write(program, instruction, epoch)
            if instruction.signal is not None:
                self._signal(program, instruction, epoch)
                freed.add(instruction.signal)
            state.at += 1
        return None, freed

    def _join(self, program: int, wait: Wait, epoch: int) -> None:
        state = self.programs[program]
        if epoch > wait.lag:
            state.known = torch.maximum(state.known, self._counted(wait.counter, epoch - wait.lag).known)
        else:
            state.known = state.known.clone()
        state.known[program] = state.at - 1

    def _signal(self, program: int, instruction: Instruction, epoch: int) -> None:
        """A count stands for all programs only if none can signal again before all have signalled once."""
        counter, state = instruction.signal, self.programs[program]
        assert counter is not None
        counted = self._counted(counter, epoch)
        if epoch > 1:
            before = self._counted(counter, epoch - 1)
            ordered = state.known >= before.signalled
            ordered[program] = True
            if before.arrivals != self.signals[counter] or not ordered.all():
                raise InvalidTape(
                    f"{_at(program, instruction)}: may signal {self.layout.counter_name(counter)} again "
                    "before all others have signalled it in the step before"
                )
            counted.known = torch.maximum(counted.known, before.known)
        mine = state.known.clone()
        mine[program] = state.at
        counted.known = torch.maximum(counted.known, mine)
        counted.signalled[program] = state.at
        counted.arrivals += 1
        self.arrived[counter] += 1

    def _read(self, program: int, instruction: Instruction, reads: Sequence[Access]) -> None:
        state = self.programs[program]
        for access in reads:
            contents = self._contents(access.buffer)
            parts = slice(access.first, access.last)
            unordered = state.known[contents.writer[parts]] < contents.written[parts]
            if unordered.any() or (contents.version[parts] != access.version).any():
                raise InvalidTape(f"{_at(program, instruction)}: may read {access.buffer[0]} before it is written")
            if contents.read is None:
                contents.read = torch.full((len(contents.writer), self.count), -1)
            contents.read[parts, program] = state.at

    def _write(self, program: int, instruction: Instruction, epoch: int) -> None:
        state = self.programs[program]
        for access in self.accesses.writes(program, instruction, epoch):
            contents = self._contents(access.buffer)
            part = access.first
            writer = int(contents.writer[part])
            if writer != program and int(state.known[writer]) < int(contents.written[part]):
                raise InvalidTape(
                    f"{_at(program, instruction)}: may write {access.buffer[0]} before program {writer}, "
                    "which comes first"
                )
            if contents.read is not None:
                late = contents.read[part] > state.known
                late[program] = False
                if late.any():
                    raise InvalidTape(
                        f"{_at(program, instruction)}: may write {access.buffer[0]} before program "
                        f"{int(late.nonzero()[0])} has read what was there"
                    )
            contents.writer[part], contents.written[part] = program, state.at
            contents.version[part] = access.version

    def _contents(self, buffer: Buffer) -> _Contents:
        if buffer not in self.contents:
            parts = self.accesses.parts(buffer)

            def filled(value: int) -> Tensor:
                return torch.full((parts,), value, dtype=torch.int64)

            self.contents[buffer] = _Contents(filled(0), filled(-1), filled(-1))
        return self.contents[buffer]

    def _counted(self, counter: int, epoch: int) -> _Counted:
        return self.counted.setdefault((counter, epoch), _Counted(self._nothing(), self._nothing()))

    def _nothing(self) -> Tensor:
        return torch.full((self.count,), -1, dtype=torch.int64)
