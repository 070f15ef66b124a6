"""Real processes that do the same thing at the same moment."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Barrier
from typing import Any, TypeVar

T = TypeVar("T")
# Each starts from a fresh interpreter, as separate commands do: no connection is inherited.
SPAWN = multiprocessing.get_context("spawn")
_barrier: Barrier | None = None


def at_once(work: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> list[T]:
    """Results of `work(*each)`, one process each, all released together once every one is ready."""
    barrier = SPAWN.Barrier(len(arguments))
    with SPAWN.Pool(len(arguments), initializer=_keep, initargs=(barrier,)) as pool:
        pending = [pool.apply_async(_released, (work, each)) for each in arguments]
        return [result.get(timeout=120) for result in pending]


def _keep(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603  a barrier reaches a process only while it starts
    _barrier = barrier


def _released(work: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    # A process that waits here takes no second job, so every process has exactly one.
    assert _barrier is not None
    _barrier.wait(timeout=60)
    return work(*arguments)
