"""Traces with known answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from kernels.timeline.simulation import Launch, Outcome
from kernels.timeline.trace import Slot, Trace

Row = tuple[str, int | None, int, int, int, int, int]
"""stage, layer, tile, multiprocessor, wait_begin, wait_end, done."""


def trace_of(rows: Iterable[Row]) -> Trace:
    listed = list(rows)
    slots = tuple(Slot(stage, layer, tile) for stage, layer, tile, *_ in listed)
    stamps = torch.tensor([[begin, end, done, sm + 1] for *_, sm, begin, end, done in listed], dtype=torch.int64)
    return Trace(slots, stamps.reshape(-1, 4))


def trace_of_outcome(launches: Sequence[Launch], layers: Sequence[int | None], outcome: Outcome) -> Trace:
    """What a device that behaves as the model would have stamped, in whole ns from 1000 on."""
    return trace_of(
        (
            launches[ran.launch].name,
            layers[ran.launch],
            ran.program,
            ran.sm,
            *(1000 + round(moment) for moment in (ran.begin, ran.wait_end, ran.done)),
        )
        for ran in outcome.programs
    )
