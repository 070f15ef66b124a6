"""Runs a megakernel's tape in torch as the kernel does: each program waits for the tags of the words that it computes
with, and for two counters. Words and tags stay from launch to launch.

A tile is posted, and a vector received, as a whole; on a device word by word. Where `tag_order` finds nothing that is
the same, since no word can change before all of a vector is received.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from kernels.llama.inputs import Buffers
from kernels.llama.megakernel.instructions import Instruction, Kind, Tape, Wait
from kernels.llama.megakernel.interpreter import IN_ORDER, Condition, Interpreter, Order
from kernels.llama.megakernel.semantics import Loaded, Registers, Scratch
from kernels.llama.megakernel.tags import TaggedWords, Words, tag
from kernels.llama.weights import Weights
from kernels.workloads import Decode


class TaggedInterpreter(Interpreter):
    """One launch of a tape by tags."""

    def __init__(
        self,
        tape: Tape,
        workload: Decode,
        weights: Weights,
        buffers: Buffers,
        scratch: Scratch,
        *,
        order: Order = IN_ORDER,
    ) -> None:
        super().__init__(tape, workload, weights, buffers, scratch, order=order)
        self.words, self.tags = TaggedWords(self.layout), scratch.tags

    def tag(self, number: int) -> int:
        """Of write `number`."""
        return tag(number)

    def awaited(self, program: int, instruction: Instruction, epoch: int) -> tuple[Words, ...]:
        """The words that this program looks at, behind the counters."""
        return self.words.awaited(instruction, epoch)

    def confirmed(self, program: int, instruction: Instruction, words: Words) -> bool:
        """Whether a glance at these words has found all of them there."""
        return self._there(words)

    def signal(self, instruction: Instruction) -> None:
        if instruction.signal in (self.layout.best, self.layout.token):
            super().signal(instruction)

    def post(self, instruction: Instruction, epoch: int, stores: Sequence[tuple[Tensor, Tensor]]) -> None:
        """A word and its tag are one store."""
        self.store(stores)
        posted = self.words.posted(instruction, epoch)
        if posted is not None:
            self.tags[posted.buffer][posted.first : posted.last] = self.tag(posted.number)

    def _program(self, program: int) -> Iterator[Condition | None]:
        held = Registers()
        mine = self.tape.programs[program]
        for step in range(self.steps):
            epoch = self.first_epoch + step
            yield self.reached(mine[0], Wait(self.layout.token, 1, lag=1), epoch)
            seen: Loaded | None = None
            for index, instruction in enumerate(mine):
                early = self.semantics.early(instruction, step)
                if instruction.kind is Kind.PICK and instruction.wait is not None:
                    yield self.reached(instruction, instruction.wait, epoch)
                if seen is None:
                    yield from self._received(instruction, self.awaited(program, instruction, epoch))
                loaded, seen = seen or self.semantics.load(instruction, step), None
                glanced = self.words.glanced(instruction, epoch)
                if glanced is not None and self.confirmed(program, instruction, glanced):
                    seen = self.semantics.load(mine[index + 1], step)
                yield None
                stores = self.semantics.compute(program, instruction, step, early=early, loaded=loaded, held=held)
                self.post(instruction, epoch, stores)
                yield None
                self.signal(instruction)
                self.order.signalled(program)
                yield None

    def _received(self, instruction: Instruction, awaited: tuple[Words, ...]) -> Iterator[Condition]:
        if not awaited:
            return

        def met() -> bool:
            return all(self._there(words) for words in awaited)

        def missing() -> str:
            words = next(words for words in awaited if not self._there(words))
            return f"{words.buffer}, write {words.number}; it does not come"

        yield Condition(instruction, met, missing)

    def _there(self, words: Words) -> bool:
        return bool((self.tags[words.buffer][words.first : words.last] == self.tag(words.number)).all())
