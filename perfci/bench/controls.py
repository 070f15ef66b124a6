"""Controls: rates that no commit can change, measured in every Run. They bound what a step may claim, and tell a
change of the machine from a change of the code.

Bandwidth is measured over working sets that grow by a factor of four from the smallest cache of interest to the
largest, then over memory, since a step whose weights stay in a cache may be much faster than memory allows
(perfci.stats.ceiling picks by working set). Each control is the best of several tries: whatever disturbs one makes it
worse, and a ceiling that is too low would refuse an honest result.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from perfci.bench import cpu, timer
from perfci.bench.timer import DeviceClock
from perfci.model import Control

_RUNG = 4  # as perfci.stats.ceiling.RESIDENT_FACTOR: no working set falls between two rungs
_TRIES = 5
_MIB = 1 << 20

# A memory control that fits into a cache is none; seventy H200 caches, or four of a CPU's, leave little to hit.
_CUDA_MEMORY_BYTES = 4 << 30
_CPU_MEMORY_BYTES = 256 << 20
CPU_MEMORY_MOST_BYTES = 1 << 30  # an L3 of 480 MB was seen: this is still twice as much, and a second's work
_CPU_FIRST_RUNG_BYTES = _MIB
_UNKNOWN_CACHE_BYTES = 32 * _MIB

_CUDA_MATMUL = 8192
_CPU_MATMUL = 1024
_LAUNCHES = 200
_SHARE_OF_FREE = 4  # controls take a fourth of what is free, at most
_CUDA_READ_BYTES = 2 << 30  # of one timed launch: 0.5 ms, a thousand times a launch's own cost
_CPU_READ_BYTES = 64 << 20


def measure(device: str) -> tuple[Control, ...]:
    """device: "cuda" (the current one) or "cpu". Takes one to three seconds, then gives all memory back."""
    if device != "cuda":
        return smoothed(_cpu_controls())
    found = smoothed(tuple(_cuda_controls()))
    torch.cuda.empty_cache()
    return found


def smoothed(found: Sequence[Control]) -> tuple[Control, ...]:
    """No working set is read more slowly than a larger one: a reading bandwidth that says so was disturbed, and takes
    the larger one's value."""
    reads = [c for c in found if c.name.startswith("read_bandwidth")]

    def best(control: Control) -> float:
        size = control.working_set_bytes or 0
        return max(c.value for c in reads if (c.working_set_bytes or 0) >= size)

    return tuple(replace(c, value=best(c)) if c in reads else c for c in found)


def best_of(left: Sequence[Control], right: Sequence[Control]) -> tuple[Control, ...]:
    """Control by control the better value: the higher rate, the shorter time. Both sides hold the same controls."""
    theirs = {(control.name, control.working_set_bytes): control.value for control in right}
    better = {"s": min}
    return tuple(
        replace(c, value=better.get(c.unit, max)(c.value, theirs.get((c.name, c.working_set_bytes), c.value)))
        for c in left
    )


def cache_bytes(device: str) -> int:
    """Of the largest cache that one step may leave to the next; 0 where the device does not say."""
    if device == "cuda":
        return int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)
    return cpu.cache_bytes()


def flush(device: str, cache: int) -> Callable[[], None]:
    """Something that fills a CUDA device's cache with other data, by reading: what was written waits for no one."""
    other = torch.zeros(2 * cache // 4, dtype=torch.int32, device=device)

    def read_other() -> None:
        other.sum()

    return read_other


def rungs(cache: int, *, first: int, memory: int) -> tuple[int, ...]:
    """Bytes: working sets from `first` by fours up to the cache, all below half the memory control's."""
    sizes = [first]
    while sizes[-1] * _RUNG <= max(cache, first):
        sizes.append(sizes[-1] * _RUNG)
    return tuple(size for size in sizes if 2 * size <= memory)


def _cuda_controls() -> Iterator[Control]:
    device = torch.device("cuda", torch.cuda.current_device())
    clock = timer.CudaClock()
    cache = cache_bytes("cuda") or _UNKNOWN_CACHE_BYTES
    free = torch.cuda.mem_get_info(device)[0] // _SHARE_OF_FREE
    memory = min(_CUDA_MEMORY_BYTES, free) // _MIB * _MIB
    source = torch.empty(memory // 4, dtype=torch.int32, device=device).random_()
    reader = _cuda_reader(device)
    for size in rungs(cache, first=cache // _RUNG // _MIB * _MIB, memory=memory):
        rounds = max(1, _CUDA_READ_BYTES // size)
        yield _read(clock, partial(reader, rounds=rounds), source[: size // 4], name="read_bandwidth_cache")
    yield _read(clock, partial(reader, rounds=1), source, name="read_bandwidth_memory")
    yield _copy(clock, source)
    del source
    yield _matmul(clock, _CUDA_MATMUL, (torch.bfloat16,), device)
    one = torch.zeros(1, device=device)
    seconds = _best(clock, lambda: one.add_(1), repeats=_LAUNCHES)
    yield Control("empty_launch", "s", seconds)


def _cuda_reader(device: torch.device) -> Callable[..., int]:
    """Reads a tensor some rounds over in one go, and tells how many bytes that is."""
    if importlib.util.find_spec("triton"):
        from perfci.bench import stream  # noqa: PLC0415  a suite's environment may have torch alone

        sink = stream.sink_for(device)
        return partial(stream.read, sink=sink)

    def read(part: Tensor, *, rounds: int) -> int:
        for _ in range(rounds):
            part.sum()
        return part.numel() * part.element_size() * rounds

    return read


def _cpu_controls() -> tuple[Control, ...]:
    """The better of one thread and one a core: a suite's own setting must not move them, and with a thread a core
    each barrier waits for the thread whose core another process has taken."""
    before = torch.get_num_threads()
    try:
        found: tuple[Control, ...] = ()
        for threads in sorted({1, cpu.usable_cores()}):
            torch.set_num_threads(threads)
            again = tuple(_cpu_controls_now())
            found = best_of(found, again) if found else again
    finally:
        torch.set_num_threads(before)
    return found


def _cpu_controls_now() -> Iterator[Control]:
    clock = timer.HostClock()
    cache = cache_bytes("cpu") or _UNKNOWN_CACHE_BYTES
    wanted = max(_CPU_MEMORY_BYTES, _RUNG * cache)
    memory = min(wanted, CPU_MEMORY_MOST_BYTES, cpu.available_memory() // _SHARE_OF_FREE)
    source = torch.ones(memory // _MIB * _MIB // 4)
    for size in rungs(cache, first=_CPU_FIRST_RUNG_BYTES, memory=memory):
        part = source[: size // 4]
        yield _read(clock, _cpu_read, part, name="read_bandwidth_cache")
    yield _read(clock, _cpu_read, source, name="read_bandwidth_memory")
    yield _copy(clock, source)
    del source
    yield _matmul(clock, _CPU_MATMUL, (torch.float32, torch.bfloat16), torch.device("cpu"))


def _cpu_read(part: Tensor) -> int:
    """A dot product with itself: torch's fastest reader, faster than its sum."""
    size = part.numel() * part.element_size()
    repeats = max(1, _CPU_READ_BYTES // 8 // size)
    for _ in range(repeats):
        torch.dot(part, part)
    return size * repeats


def _read(clock: DeviceClock, reader: Callable[[Tensor], int], part: Tensor, *, name: str) -> Control:
    seconds, size = [], 0
    for _ in range(_TRIES + 1):  # the first one warms up
        start = clock.mark()
        size = reader(part)
        end = clock.mark()
        clock.wait()
        seconds.append(clock.between(start, end))
    return Control(name, "B/s", size / min(seconds), part.numel() * part.element_size())


def _copy(clock: DeviceClock, source: Tensor) -> Control:
    """One half of `source` onto the other. Bytes read and written, together."""
    half = source.numel() // 2
    seconds = _best(clock, partial(source[half : 2 * half].copy_, source[:half]), repeats=1)
    size = 2 * half * source.element_size()
    return Control("copy_bandwidth", "B/s", size / seconds, size)


def _matmul(clock: DeviceClock, size: int, dtypes: Sequence[torch.dtype], device: torch.device) -> Control:
    """Dense, in the fastest of `dtypes`: a CPU with matrix units does bfloat16 faster, one without much slower.

    Random operands: an H200 multiplied ones at 883 Tflop/s, which no data of a model reaches (790).
    """
    best = 0.0
    for dtype in dtypes:
        left = torch.randn(size, size, device=device).to(dtype)
        out = torch.empty_like(left)
        best = max(best, 2 * size**3 / _best(clock, partial(torch.mm, left, left, out=out), repeats=1))
    return Control("matmul_rate", "flop/s", best)


def _best(clock: DeviceClock, work: Callable[[], object], *, repeats: int) -> float:
    """Seconds of one `work`, after one that warms up."""
    seconds = []
    for _ in range(_TRIES + 1):
        start = clock.mark()
        for _ in range(repeats):
            work()
        end = clock.mark()
        clock.wait()
        seconds.append(clock.between(start, end) / repeats)
    return min(seconds)
