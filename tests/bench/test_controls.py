"""Controls on the machine at hand, and their rules on numbers. No test asks how fast a machine is."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from perfci.bench import controls
from perfci.model import Control, Workload
from perfci.stats import ceiling

NAMES = {"read_bandwidth_cache", "read_bandwidth_memory", "copy_bandwidth", "matmul_rate"}


@pytest.fixture(scope="module")
def here() -> tuple[Control, ...]:
    threads = torch.get_num_threads()
    found = controls.measure("cpu")
    assert torch.get_num_threads() == threads
    return found


def test_a_cpu_has_every_control_but_a_launch(here: tuple[Control, ...]) -> None:
    assert {control.name for control in here} == NAMES
    assert all(control.value > 0 for control in here)
    assert {control.unit for control in here if control.name.endswith("_rate")} == {"flop/s"}
    assert {control.unit for control in here if "bandwidth" in control.name} == {"B/s"}


def test_memory_is_measured_over_more_than_the_cache_holds(here: tuple[Control, ...]) -> None:
    (memory,) = [control for control in here if control.name == "read_bandwidth_memory"]
    assert memory.working_set_bytes is not None
    assert memory.working_set_bytes >= min(2 * controls.cache_bytes("cpu"), 1 << 30) or _little_memory()


def _little_memory() -> bool:
    from perfci.bench import cpu

    return cpu.available_memory() < 5 << 30


def test_no_working_set_is_read_more_slowly_than_a_larger_one(here: tuple[Control, ...]) -> None:
    reads = sorted((c.working_set_bytes or 0, c.value) for c in here if c.name.startswith("read_bandwidth"))
    values = [value for _, value in reads]
    assert values == sorted(values, reverse=True)


@given(st.integers(1, 4 << 30))
def test_every_working_set_has_a_ceiling_that_its_own_cache_allows(size: int) -> None:
    """A step whose weights lie in a cache is never judged by what a larger cache, or memory, can do."""
    rates = {2**20: 100e9, 2**22: 80e9, 2**24: 50e9, 2**26: 30e9, 2**28: 20e9}
    assert tuple(rates) == controls.rungs(480 << 20, first=2**20, memory=2**30)
    found = [Control("read_bandwidth_cache", "B/s", rate, size) for size, rate in rates.items()]
    found.append(Control("read_bandwidth_memory", "B/s", 8e9, 2**30))
    floor = ceiling.floor_latency(Workload("w", bytes_moved=size, working_set_bytes=size), found)
    if size < 2**20:
        assert floor is None
        return
    assert floor is not None
    # The fastest rate that any rung at or below the size showed bounds the true one, up to where all caches end.
    fitting = max(rung for rung in rates if rung <= size)
    if size <= 2**30:
        assert floor == pytest.approx(size / rates[fitting])
    else:
        assert floor < size / 8e9


@given(st.integers(0, 2**31), st.integers(2**20, 2**33))
def test_rungs_climb_by_fours_from_the_first_to_the_cache(cache: int, memory: int) -> None:
    sizes = controls.rungs(cache, first=2**20, memory=memory)
    assert all(larger == 4 * smaller for smaller, larger in pairwise(sizes))
    assert all(2 * size <= memory for size in sizes)
    assert all(size <= max(cache, 2**20) for size in sizes)
    if memory >= 2**21:
        assert sizes[0] == 2**20


def test_the_better_of_two_tries_is_the_higher_rate_and_the_shorter_time() -> None:
    first = (Control("copy_bandwidth", "B/s", 5.0, 10), Control("empty_launch", "s", 3.0))
    second = (Control("empty_launch", "s", 2.0), Control("copy_bandwidth", "B/s", 4.0, 10))
    best = (Control("copy_bandwidth", "B/s", 5.0, 10), Control("empty_launch", "s", 2.0))
    assert controls.best_of(first, second) == best
    # Over another working set it is another control.
    other = (Control("copy_bandwidth", "B/s", 9.0, 11),)
    assert controls.best_of(first, other) == first


def test_a_disturbed_reading_takes_what_a_larger_one_reached() -> None:
    def read(value: float, size: int) -> Control:
        name = "read_bandwidth_memory" if size == 16 else "read_bandwidth_cache"
        return Control(name, "B/s", value, size)

    launch = Control("empty_launch", "s", 1.0)
    found = controls.smoothed((read(90.0, 1), read(8.0, 4), read(30.0, 16), launch))
    assert found == (read(90.0, 1), read(30.0, 4), read(30.0, 16), launch)


STREAM = """
import torch
from perfci.bench import stream
source = torch.arange(5 * stream.BLOCK, dtype=torch.int32)
sink = torch.zeros(3, dtype=torch.int32)
assert stream.read(source, sink=sink, rounds=2) == 2 * 4 * source.numel()
assert int(sink.sum()) == int(2 * source.long().sum()), (sink, source.sum())
"""
COMPILE = """
import re
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from perfci.bench import stream
aligned = [["tt.divisibility", 16]]
source = ASTSource(
    fn=stream.read_tiles,
    signature={"source": "*i32", "sink": "*i32", "tiles": "i32", "reads": "i32", "BLOCK": "constexpr"},
    constexprs={"BLOCK": stream.BLOCK},
    attrs={(0,): aligned, (1,): aligned},
)
ptx = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8}).asm["ptx"]
loads = re.findall(r"ld\\.global\\S*", ptx)
assert loads and set(loads) == {"ld.global.cg.v4.b32"}, loads
"""


@pytest.mark.parametrize(("program", "interpret"), [(STREAM, "1"), (COMPILE, "0")], ids=["adds up", "compiles"])
def test_the_reading_kernel_reads_all_of_it_past_l1(
    program: str, interpret: str, repository: Path, tmp_path: Path
) -> None:
    environment = {
        **os.environ,
        "TRITON_INTERPRET": interpret,
        "TRITON_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": str(repository),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
