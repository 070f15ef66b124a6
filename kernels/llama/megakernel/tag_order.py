"""Refuses a tape whose programs could be wrong, or hang, where they wait for tags and not for counters.

A tag tells three writes of a word apart, no more. So of each word that a program awaits, with its write n:
- n + 1 must come after the read: it would be taken for a write that is not there yet, and awaited for ever;
- n - 1 must have come before the first look: what was there three writes ago would be taken for n.

"After" is along what programs have seen of each other (a vector clock each, as in `validator`): who has received a word
knows what its writer knew. That the device keeps to this rests on one order of each word's writes for all
multiprocessors, and on no store overtaking the branch that it depends on; the memory model of PTX orders relaxed words
no further. Two steps are walked through; before the first, all words are as a step left them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.llama.megakernel.instructions import Instruction, Kind, Tape
from kernels.llama.megakernel.layout import Layout
from kernels.llama.megakernel.tags import TaggedWords, Words, write_number
from kernels.llama.megakernel.validator import InvalidTape
from kernels.workloads import Decode

_STEPS = 2


def validate_tags(tape: Tape, workload: Decode, *, words: type[TaggedWords] = TaggedWords) -> None:
    """Raises `InvalidTape` on the first word that its tag does not protect. The tape is one that `validate` accepts.

    words: what instructions await and post.
    """
    _Walk(tape, words(Layout(workload, tape.rows, tape.splits))).run()


@dataclass(slots=True)
class _Contents:
    """Of each part: its last write and the one before it (number, program, place in its walk), what the last writer
    knew [parts, programs], and the last place at which each program read it [parts, programs]."""

    number: Tensor
    writer: Tensor
    written: Tensor
    earlier_writer: Tensor
    earlier_written: Tensor
    knowledge: Tensor
    read: Tensor


@dataclass(slots=True)
class _Program:
    """known: the last place of each program's walk that is done, for all that this one has seen."""

    walk: tuple[tuple[int, Instruction], ...]
    known: Tensor
    at: int = 0
    looked: int = -1


class _Walk:
    def __init__(self, tape: Tape, words: TaggedWords) -> None:
        self.words, self.count = words, len(tape.programs)
        self.contents = {name: self._contents(parts) for name, parts in self.words.parts().items()}
        self.programs = [
            _Program(tuple((epoch, i) for epoch in range(1, _STEPS + 1) for i in program), self._nothing())
            for program in tape.programs
        ]
        self.lengths = [len(program) for program in tape.programs]
        self.bests: dict[int, list[Tensor]] = defaultdict(list)  # what who has signalled knew, step by step
        self.tokens: dict[int, Tensor] = {0: self._nothing()}
        self.received: dict[Words, Tensor] = {}  # the same for all who receive these words

    def run(self) -> None:
        progress = True
        while progress:
            progress = sum(self._advance(program) for program in range(self.count)) > 0
        for program, state in enumerate(self.programs):
            if state.at < len(state.walk):
                raise InvalidTape(f"{self._place(program)}: waits for words that never come")

    def _advance(self, program: int) -> bool:
        state, begin = self.programs[program], self.programs[program].at
        while state.at < len(state.walk):
            epoch, instruction = state.walk[state.at]
            if not self._counted(program, epoch, instruction):
                break
            awaited = self.words.awaited(instruction, epoch)
            if state.looked < state.at:
                self._look(program, awaited)
                state.looked = state.at
            if not all(self._there(words) for words in awaited):
                break
            for words in awaited:
                self._receive(program, words)
            glanced = self.words.glanced(instruction, epoch)
            if glanced is not None:
                self._look(program, (glanced,))
            self._finish(program, epoch, instruction)
            state.at += 1
        return state.at > begin

    def _counted(self, program: int, epoch: int, instruction: Instruction) -> bool:
        """The two counters: each program's wait for the last step's token, and the choice of this one's."""
        state = self.programs[program]
        if state.at % self.lengths[program] == 0:
            if epoch - 1 not in self.tokens:
                return False
            state.known = torch.maximum(state.known, self.tokens[epoch - 1])
        if instruction.kind is Kind.PICK:
            assert instruction.wait is not None
            if len(self.bests[epoch]) < instruction.wait.arrivals:
                return False
            state.known = torch.stack([state.known, *self.bests[epoch]]).amax(0)
        return True

    def _look(self, program: int, awaited: tuple[Words, ...]) -> None:
        known = self.programs[program].known
        for words in awaited:
            contents, parts = self.contents[words.buffer], slice(words.first, words.last)
            number = contents.number[parts]
            there = number == words.number
            before = torch.where(there, contents.earlier_writer[parts], contents.writer[parts])
            at = torch.where(there, contents.earlier_written[parts], contents.written[parts])
            if (number < words.number - 1).any() or (known[before] < at).any():
                raise InvalidTape(f"{self._place(program)}: may look at {words.buffer} two writes too early")
            if (number > words.number).any():
                raise InvalidTape(f"{self._place(program)}: finds {words.buffer} overwritten")

    def _there(self, words: Words) -> bool:
        return bool((self.contents[words.buffer].number[words.first : words.last] == words.number).all())

    def _receive(self, program: int, words: Words) -> None:
        contents, state = self.contents[words.buffer], self.programs[program]
        parts = slice(words.first, words.last)
        if words not in self.received:
            self.received[words] = contents.knowledge[parts].amax(0)
        state.known = torch.maximum(state.known, self.received[words])
        contents.read[parts, program] = state.at

    def _finish(self, program: int, epoch: int, instruction: Instruction) -> None:
        state = self.programs[program]
        posted = self.words.posted(instruction, epoch)
        knows = state.known.clone()
        knows[program] = state.at
        if posted is not None:
            self._post(program, posted, knows)
        elif instruction.kind is Kind.PICK:
            self.tokens[epoch] = knows
        elif instruction.kind is Kind.HEAD and instruction.signal is not None:
            self.bests[epoch].append(knows)

    def _post(self, program: int, posted: Words, knows: Tensor) -> None:
        contents, part = self.contents[posted.buffer], posted.first
        unread = (contents.read[part] > knows).nonzero()
        if len(unread):
            raise InvalidTape(
                f"{self._place(program)}: may post {posted.buffer} before program {int(unread[0])} has received "
                "what was there"
            )
        contents.earlier_writer[part], contents.earlier_written[part] = contents.writer[part], contents.written[part]
        contents.number[part], contents.writer[part] = posted.number, program
        contents.written[part], contents.knowledge[part] = self.programs[program].at, knows

    def _place(self, program: int) -> str:
        state = self.programs[program]
        _, instruction = state.walk[state.at]
        return f"program {program}, {instruction.kind.name} of layer {instruction.layer}, tile {instruction.tile}"

    def _contents(self, parts: int) -> _Contents:
        def filled(value: int, *more: int) -> Tensor:
            return torch.full((parts, *more), value, dtype=torch.int64)

        before = write_number(1, 0, self.words.layers) - 1
        none = (filled(0), filled(-1), filled(0), filled(-1))
        return _Contents(filled(before), *none, filled(-1, self.count), filled(-1, self.count))

    def _nothing(self) -> Tensor:
        return torch.full((self.count,), -1, dtype=torch.int64)
