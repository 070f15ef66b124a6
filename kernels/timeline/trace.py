"""What a traced step writes: three moments and a multiprocessor for each program of a launch, or instruction of a tape.

A kernel that is compiled with TRACE stamps, from one thread of a program,

    wait_begin  the program runs and is about to wait for what it depends on; loads that may precede the wait are
                under way. Where there is nothing to wait for: the program's first moment
    wait_end    the wait is over
    done        after the last store, behind a barrier of the program, so that all its warps are covered

by `globaltimer` (ns, one clock for the whole device) and `smid`. Traced runs never give a latency.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

FIELDS = 4
"""int64 words of a record: wait_begin, wait_end, done in ns; multiprocessor + 1. All 0: not written."""


class Slot(NamedTuple):
    """Whose record it is.

    stage: name of the launch (modular) or kind of the instruction (megakernel), in lower case: "qkv", "attend".
    layer: None outside of the layers. tile: program of the launch, or tile of the instruction.
    """

    stage: str
    layer: int | None
    tile: int


class Record(NamedTuple):
    """One slot as it was written; moments in ns of the device's clock, `sm` counted from 0."""

    slot: Slot
    wait_begin: int
    wait_end: int
    done: int
    sm: int


@dataclass(frozen=True, slots=True)
class Trace:
    """One traced step: `stamps` int64 [slots, 4] on the CPU, a row a slot, as FIELDS says."""

    slots: tuple[Slot, ...]
    stamps: Tensor

    def __post_init__(self) -> None:
        wanted = (len(self.slots), FIELDS)
        if tuple(self.stamps.shape) != wanted or self.stamps.dtype != torch.int64:
            raise ValueError(f"stamps are {self.stamps.dtype} {tuple(self.stamps.shape)}; make them int64 {wanted}")

    @property
    def written(self) -> Tensor:
        """bool [slots]."""
        return self.stamps[:, FIELDS - 1] > 0

    def records(self) -> tuple[Record, ...]:
        """The written ones, in the slots' order."""
        rows = self.stamps.tolist()
        return tuple(
            Record(slot, begin, end, done, sm - 1)
            for slot, (begin, end, done, sm) in zip(self.slots, rows, strict=True)
            if sm > 0
        )


class TraceBuffer:
    """Device memory that a traced step writes to; its address never changes, since a CUDA graph holds it.

    slots: modular: one a program of every launch, in launch order (the slots of a launch are consecutive, tile i
    being its program i); megakernel: one an instruction of the tape. `tensor` is int64 [slots, 4].
    """

    def __init__(self, slots: tuple[Slot, ...], *, device: torch.device | str) -> None:
        self.slots = slots
        self.tensor = torch.zeros(len(slots), FIELDS, dtype=torch.int64, device=device)

    def clear(self) -> None:
        """Before a traced step: what it does not write stays 0."""
        self.tensor.zero_()

    def read(self) -> Trace:
        """A copy of the last step's records; waits for the device."""
        return Trace(self.slots, self.tensor.cpu().clone())

    def records(self) -> tuple[Record, ...]:
        return self.read().records()
