"""Traces with known answers."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from kernels.timeline.trace import Slot, Trace

Row = tuple[str, int | None, int, int, int, int, int]
"""stage, layer, tile, multiprocessor, wait_begin, wait_end, done."""


def trace_of(rows: Iterable[Row]) -> Trace:
    listed = list(rows)
    slots = tuple(Slot(stage, layer, tile) for stage, layer, tile, *_ in listed)
    stamps = torch.tensor([[begin, end, done, sm + 1] for *_, sm, begin, end, done in listed], dtype=torch.int64)
    return Trace(slots, stamps.reshape(-1, 4))
