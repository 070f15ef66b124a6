"""Runs a megakernel's tape in torch: all programs interleaved, with counters that really count.

An instruction is: read what may be read early; wait; load; compute and store; signal (`Semantics` tells what each
means). Between any two of these the order decides which program goes on. A load may be issued early: nothing keeps the
loads of an instruction without a wait below anything but the last wait before it, so an order may ask for
them right there (`Order.ahead`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from kernels.llama.inputs import Buffers
from kernels.llama.megakernel.instructions import Instruction, Tape, Wait
from kernels.llama.megakernel.layout import Layout
from kernels.llama.megakernel.semantics import Loaded, Registers, Scratch, Semantics
from kernels.llama.weights import Weights
from kernels.workloads import Decode

_WORD = 1 << 32


@dataclass(frozen=True, slots=True)
class Condition:
    """What an instruction waits for; awaited: in words, for whoever never gets it."""

    instruction: Instruction
    met: Callable[[], bool]
    awaited: Callable[[], str]


class Order(Protocol):
    """Who goes on, and who loads ahead."""

    def pick(self, ready: Sequence[int]) -> int:
        """One of the programs that can go on; `ready` is sorted and never empty."""
        ...

    def ahead(self) -> bool:
        """Whether loads that nothing holds back are issued now, at the wait before them."""
        ...

    def signalled(self, program: int) -> None:
        """Told after each signal, with the program that gave it."""
        ...


class InOrder:
    """Each program goes on until it has to wait, then the next that can; nothing is loaded ahead."""

    def pick(self, ready: Sequence[int]) -> int:
        return ready[0]

    def ahead(self) -> bool:
        return False

    def signalled(self, program: int) -> None:
        pass


IN_ORDER = InOrder()


class Deadlock(RuntimeError):
    """No program can go on."""


def run(
    tape: Tape,
    workload: Decode,
    weights: Weights,
    buffers: Buffers,
    scratch: Scratch,
    *,
    order: Order = IN_ORDER,
    poison: bool = True,
) -> None:
    """One step, or all steps of a generation, into the buffers; `Deadlock` names who waits for what.

    poison: fill what programs hand to each other with NaN before. Counters and epoch are left as the last
    step left them, whatever that was.
    """
    if poison:
        scratch.poison()
    Interpreter(tape, workload, weights, buffers, scratch, order=order).run()


class Interpreter:
    """One launch of a tape. The phases of an instruction are methods, so that a test can plant a fault in one."""

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
        self.tape, self.steps, self.order = tape, workload.steps, order
        self.layout = Layout(workload, tape.rows, tape.splits)
        self.semantics = Semantics(workload, tape, weights, buffers, scratch)
        self.counters, self.epoch = scratch.counters, scratch.epoch
        self.first_epoch = int(scratch.epoch) + 1

    def run(self) -> None:
        programs = [self._program(index) for index in range(len(self.tape.programs))]
        live: dict[int, Condition | None] = dict.fromkeys(range(len(programs)))
        while live:
            ready = [program for program, condition in live.items() if condition is None or condition.met()]
            if not ready:
                raise Deadlock(self._blocked(live))
            program = self.order.pick(ready)
            try:
                live[program] = next(programs[program])
            except StopIteration:
                del live[program]
        self.epoch += self.steps

    def finish(self, instruction: Instruction, stores: Sequence[tuple[object, object]]) -> Iterator[None]:
        """Stores, then signals."""
        self.store(stores)
        yield None
        self.signal(instruction)

    def store(self, stores: Sequence[tuple[object, object]]) -> None:
        for target, value in stores:
            target.copy_(value)  # type: ignore[attr-defined]

    def signal(self, instruction: Instruction) -> None:
        if instruction.signal is not None:
            self.counters[instruction.signal] += 1

    def reached(self, instruction: Instruction, wait: Wait, epoch: int) -> Condition:
        """As the device compares: the difference of two words of 32 bits, with its sign."""
        threshold = wait.threshold(epoch)

        def met() -> bool:
            return (int(self.counters[wait.counter]) - threshold + _WORD // 2) % _WORD >= _WORD // 2

        def awaited() -> str:
            name, at = self.layout.counter_name(wait.counter), int(self.counters[wait.counter])
            return f"{name} to reach {threshold}; it is at {at}"

        return Condition(instruction, met, awaited)

    def _program(self, program: int) -> Iterator[Condition | None]:
        walk = [(step, instruction) for step in range(self.steps) for instruction in self.tape.programs[program]]
        held = Registers()
        ahead: dict[int, Loaded] = {}
        for at, (step, instruction) in enumerate(walk):
            early = self.semantics.early(instruction, step)
            if instruction.wait is not None:
                yield self.reached(instruction, instruction.wait, self.first_epoch + step)
                if self.order.ahead():
                    ahead |= self._loads_until_next_wait(walk, at)
                else:
                    yield None
            loaded = ahead.pop(at, None) or self.semantics.load(instruction, step)
            yield None
            stores = self.semantics.compute(program, instruction, step, early=early, loaded=loaded, held=held)
            yield from self.finish(instruction, stores)
            if instruction.signal is not None:
                self.order.signalled(program)
            yield None

    def _loads_until_next_wait(self, walk: Sequence[tuple[int, Instruction]], at: int) -> dict[int, Loaded]:
        loads = {at: self.semantics.load(walk[at][1], walk[at][0])}
        for later in range(at + 1, len(walk)):
            step, instruction = walk[later]
            if instruction.wait is not None:
                break
            loads[later] = self.semantics.load(instruction, step)
        return loads

    def _blocked(self, live: dict[int, Condition | None]) -> str:
        program, condition = next((p, c) for p, c in live.items() if c is not None)
        instruction = condition.instruction
        return (
            f"no program can go on: program {program} waits at {instruction.kind.name} of layer {instruction.layer}, "
            f"tile {instruction.tile}, for {condition.awaited()}"
        )
