"""The words of a megakernel's tape: instructions, the counters that they wait for, and their encoding for the device.

Standard library only. What an instruction does is told in `interpreter`; which there are for a size, in `layout`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

_SPAN = 16


class Kind(IntEnum):
    QKV = 0
    ATTEND = 1
    OUT = 2
    GATE_UP = 3
    DOWN = 4
    HEAD = 5
    PICK = 6


@dataclass(frozen=True, slots=True)
class Wait:
    """Satisfied at step number `epoch` (1 on the first) when `counter` has reached (epoch - lag) x arrivals.

    Counters only grow and are never reset, so a step needs no launch before it that clears them.
    """

    counter: int
    arrivals: int
    lag: int = 0

    def threshold(self, epoch: int) -> int:
        return (epoch - self.lag) * self.arrivals


@dataclass(frozen=True, slots=True)
class Instruction:
    """One tile of work.

    fresh: load the activation vector, after the wait, before this tile; otherwise the program's registers still hold
        it. False where there is no such vector (ATTEND, PICK).
    signal: the counter that is incremented by one, with release, after this instruction's stores.
    """

    kind: Kind
    layer: int
    tile: int
    fresh: bool
    wait: Wait | None
    signal: int | None


@dataclass(frozen=True, slots=True)
class Tape:
    """What each program of the persistent kernel does in a step, in order; `counters` words of int32 belong to it."""

    programs: tuple[tuple[Instruction, ...], ...]
    counters: int
    rows: int
    splits: int

    def encoded(self) -> tuple[list[int], list[int]]:
        """Flat int32 words, four an instruction, and where each program's instructions start (one more than programs).

        w0 = kind | fresh << 4 | layer << 8, w1 = tile, w2 = (wait's counter + 1) | (signal + 1) << 16 with 0 for none,
        w3 = arrivals | lag << 16. The starts count instructions, not words. What does not fit its bits is a ValueError.
        """
        words: list[int] = []
        starts = [0]
        for program in self.programs:
            for instruction in program:
                words += _words(instruction)
            starts.append(starts[-1] + len(program))
        return words, starts


def span(context: int, splits: int) -> int:
    """Positions of one split: [split x span, (split + 1) x span) of 0 .. position; a multiple of 16."""
    if splits < 1:
        raise ValueError(f"splits {splits}: attention needs at least one")
    even = -(-context // splits)
    return -(-even // _SPAN) * _SPAN


def _words(instruction: Instruction) -> tuple[int, int, int, int]:
    wait = instruction.wait or Wait(counter=-1, arrivals=0)
    for name, value, bits in (
        ("layer", instruction.layer, 23),
        ("tile", instruction.tile, 31),
        ("wait's counter", wait.counter + 1, 16),
        ("signal", (-1 if instruction.signal is None else instruction.signal) + 1, 15),
        ("arrivals", wait.arrivals, 16),
        ("lag", wait.lag, 15),
    ):
        if not 0 <= value < 1 << bits:
            raise ValueError(f"{name} {value} does not fit {bits} bits: {instruction}")
    signal = 0 if instruction.signal is None else instruction.signal + 1
    return (
        int(instruction.kind) | instruction.fresh << 4 | instruction.layer << 8,
        instruction.tile,
        (wait.counter + 1) | signal << 16,
        wait.arrivals | wait.lag << 16,
    )
