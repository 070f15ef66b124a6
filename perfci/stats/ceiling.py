"""The least possible latency of a workload on a device, from what its own controls measured. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence

from perfci.model import Control, Workload

# A cache control is measured well inside the cache, so the cache may be larger than what the control touched.
# Up to four times its working set is taken as possibly resident: a wrong "faster than possible" would refuse a
# good result, a ceiling that is a few per cent too high costs a few per cent in one column.
RESIDENT_FACTOR = 4

_CACHE = "read_bandwidth_cache"
_MEMORY = ("read_bandwidth_memory", "copy_bandwidth")


def floor_latency(workload: Workload, controls: Sequence[Control]) -> float | None:
    """Seconds that one step takes at least: the larger of its traffic's and its arithmetic's time (Williams,
    Waterman and Patterson 2009, the roofline model, doi 10.1145/1498765.1498785).

    Traffic: the part of the working set that may stay in a cache is charged at the bandwidth of the largest
    `read_bandwidth_cache` that fits into it, the rest at the best measured memory bandwidth. A working set below
    every measured one may live in a faster cache than any that was measured: no traffic bound is claimed then.
    None where the workload states neither traffic nor flops, or no control speaks about what it states.
    """
    bounds = [
        bound
        for bound in (
            _traffic_time(workload, controls),
            _arithmetic_time(workload, controls),
        )
        if bound
    ]
    return max(bounds, default=None)


def ceiling_fraction(floor: float | None, latency: float | None) -> float | None:
    """Share of the possible speed that was reached: 1 is the ceiling. None where either is unknown."""
    return None if floor is None or not latency else floor / latency


def _arithmetic_time(workload: Workload, controls: Sequence[Control]) -> float | None:
    rate = max((c.value for c in controls if c.name == "matmul_rate"), default=0.0)
    return workload.flops / rate if rate > 0 and workload.flops > 0 else None


def _traffic_time(workload: Workload, controls: Sequence[Control]) -> float | None:
    size = workload.working_set_bytes
    if workload.bytes_moved <= 0 or size <= 0:
        return None
    caches = [c for c in controls if c.name == _CACHE and c.value > 0 and c.working_set_bytes]
    cache = max((c for c in caches if _size(c) <= size), key=_size, default=None)
    memory = max(
        (c for c in controls if c.name in _MEMORY and c.value > 0),
        key=lambda c: c.value,
        default=None,
    )
    if cache is None:
        covered = memory is not None and not caches and size >= _size(memory)
        return workload.bytes_moved / memory.value if memory and covered else None
    resident = min(size, RESIDENT_FACTOR * _size(cache))
    # Memory cannot outrun the cache in front of it: when noise says so, the better figure bounds both.
    cache_rate = max(cache.value, memory.value if memory else 0.0)
    if resident == size:
        return workload.bytes_moved / cache_rate
    if memory is None:
        return None
    return workload.bytes_moved * (resident / cache_rate + (size - resident) / memory.value) / size


def _size(control: Control) -> int:
    return control.working_set_bytes or 0
