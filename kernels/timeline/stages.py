"""A trace by stages, in the order in which they finish, with what can be told of each from its own records."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from kernels.timeline.trace import Trace

Key = tuple[str, int | None]
"""Stage and layer: one launch of a modular step, or all instructions of a kind in one layer of a megakernel."""


@dataclass(frozen=True)
class Stage:
    """The written records of one stage of one layer, at least one: int64 tensors of equal length, ns; sm from 0."""

    key: Key
    begin: Tensor
    wait_end: Tensor
    done: Tensor
    sm: Tensor

    @property
    def programs(self) -> int:
        return len(self.begin)

    @cached_property
    def first_start(self) -> int:
        return int(self.begin.min())

    @cached_property
    def last_end(self) -> int:
        return int(self.done.max())

    @cached_property
    def middle_end(self) -> int:
        """Median over multiprocessors of the end of the last program on each.

        With one program a multiprocessor that is the median end. Where a launch has more programs than fit at once,
        the median over programs would lie in the middle of the work.
        """
        return _median(_by_processor(self.sm, self.done, "amax"))

    @cached_property
    def middle_release(self) -> int:
        """Median over multiprocessors of the end of the first wait on each; for the reason see `middle_end`."""
        return _median(_by_processor(self.sm, self.wait_end, "amin"))

    @property
    def wait_share(self) -> float:
        """Of the time that its programs were there: what they spent waiting. 0 for programs of no duration."""
        there = int((self.done - self.begin).sum())
        return int((self.wait_end - self.begin).sum()) / there if there else 0.0

    def occupancy(self, multiprocessors: int) -> float:
        """Of all multiprocessors' time from its first start to its last end: where a program of it was there."""
        window = multiprocessors * (self.last_end - self.first_start)
        return occupied(self.sm, self.begin, self.done) / window if window else 0.0


def stages(trace: Trace) -> tuple[Stage, ...]:
    """Ordered by their median `done`, those of equal ones as their slots are. ValueError for an impossible record."""
    rows: dict[Key, list[int]] = {}
    for row, there in enumerate(trace.written.tolist()):
        if there:
            rows.setdefault((trace.slots[row].stage, trace.slots[row].layer), []).append(row)
    found = [_stage(trace, key, torch.tensor(indices)) for key, indices in rows.items()]
    return tuple(sorted(found, key=lambda stage: _median(stage.done)))


def _stage(trace: Trace, key: Key, rows: Tensor) -> Stage:
    begin, wait_end, done, sm = trace.stamps[rows].unbind(dim=1)
    wrong = ((begin <= 0) | (wait_end < begin) | (done < wait_end)).nonzero()
    if len(wrong):
        row = int(rows[wrong[0, 0]])
        raise ValueError(
            f"record {row} ({trace.slots[row]}) says {trace.stamps[row].tolist()}: wait_begin <= wait_end <= done "
            "must hold; look at the order of the kernel's stamps"
        )
    return Stage(key, begin, wait_end, done, sm - 1)


def tick(trace: Trace) -> int:
    """Smallest step of the device's clock that shows in the stamps, ns; 0 where all are equal."""
    moments = trace.stamps[trace.written][:, :3].unique()
    return int(moments.diff().min()) if len(moments) > 1 else 0


def multiprocessors(trace: Trace) -> int:
    """How many wrote a record."""
    return len(trace.stamps[trace.written][:, 3].unique())


def union(begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """The same set of moments as disjoint intervals [begin, end), in order; empty ones vanish."""
    there = end > begin
    begin, order = begin[there].sort()
    if not len(begin):
        return begin, begin
    end = end[there][order].cummax(dim=0).values
    starts = torch.ones(len(begin), dtype=torch.bool)
    starts[1:] = begin[1:] > end[:-1]
    ends = torch.ones(len(begin), dtype=torch.bool)
    ends[:-1] = starts[1:]
    return begin[starts], end[ends]


def occupied(sm: Tensor, begin: Tensor, end: Tensor) -> int:
    """Sum over multiprocessors of the time, ns, in which at least one of the intervals ran on it."""
    if not len(sm):
        return 0
    origin = begin.min()
    stride = int(end.max() - origin) + 1  # each multiprocessor gets a stretch of one line: none touches the next
    first, last = union(begin - origin + sm * stride, end - origin + sm * stride)
    return int((last - first).sum())


def _by_processor(sm: Tensor, moments: Tensor, reduce: str) -> Tensor:
    which, index = sm.unique(return_inverse=True)
    start = torch.zeros(len(which), dtype=torch.int64)
    return start.scatter_reduce(0, index, moments, reduce, include_self=False)


def _median(values: Tensor) -> int:
    """Mean of the middle two where the number is even, rounded down.

    Never a float: a device's clock counts from 1970, and a float of so many ns is right to 256 ns only.
    """
    ordered = values.sort().values
    middle = len(ordered) // 2
    return int(ordered[middle]) if len(ordered) % 2 else (int(ordered[middle - 1]) + int(ordered[middle])) // 2
