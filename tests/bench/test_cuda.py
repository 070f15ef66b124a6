"""What only a device can show: real events, other streams, its controls."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from perfci.bench import buffers, controls, gpu, probe, rules, timer
from perfci.model import Clock

pytestmark = pytest.mark.gpu

SHORT = dataclasses.replace(rules.CUDA, batch=1e-4, measured=1e-2, warmup=0.0, warmup_limit=0.05)
CYCLES = 200_000  # about a tenth of a millisecond


def test_a_step_on_its_own_stream_is_timed_by_events() -> None:
    found = timer.time_step(lambda: torch.cuda._sleep(CYCLES), "cuda", rules=SHORT)
    assert found.timing.clock is Clock.CUDA_EVENT
    assert not found.outlasted


def test_a_step_that_works_on_another_stream_is_found_out() -> None:
    side = torch.cuda.Stream()

    def step() -> None:
        with torch.cuda.stream(side):
            torch.cuda._sleep(10 * CYCLES)

    assert timer.time_step(step, "cuda", rules=SHORT).outlasted


def test_the_flush_is_outside_of_the_time() -> None:
    size = controls.cache_bytes("cuda")
    one = torch.zeros(1, device="cuda")
    found = timer.time_step(
        lambda: one.add_(1), "cuda", cache="flushed", flush=controls.flush("cuda", size), rules=SHORT
    )
    assert (found.cache, found.outlasted) == ("flushed", False)


def test_a_gpu_has_every_control() -> None:
    found = controls.measure("cuda")
    names = {"read_bandwidth_cache", "read_bandwidth_memory", "copy_bandwidth", "matmul_rate", "empty_launch"}
    assert {control.name for control in found} == names
    (memory,) = [control for control in found if control.name == "read_bandwidth_memory"]
    assert (memory.working_set_bytes or 0) >= 4 * controls.cache_bytes("cuda")


def test_the_probe_agrees_with_torch() -> None:
    devices = gpu.gpus()
    assert len(devices) == torch.cuda.device_count()
    assert devices[0].model == torch.cuda.get_device_name(0)
    assert probe.environment().driver
    assert probe.environment().cuda == torch.version.cuda
    assert gpu.read(devices[0]).sm_clock_hz is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float64])
def test_one_other_bit_among_many_tensors_on_a_device_is_seen(dtype: torch.dtype) -> None:
    left = {str(number): torch.zeros(1000 + number, device="cuda").to(dtype) for number in range(30)}
    right = buffers.snapshot(left)
    assert buffers.same_bits(left, right)
    right["17"].view(torch.uint8)[-1] = 1
    assert not buffers.same_bits(left, right)


def test_bits_are_compared_on_a_device_and_not_values() -> None:
    nan, zero = torch.full((8,), float("nan"), device="cuda"), torch.zeros(8, device="cuda")
    assert buffers.same_bits({"x": nan}, {"x": nan.clone()})
    assert not buffers.same_bits({"x": zero}, {"x": -zero})
    assert not buffers.same_bits({"x": zero}, {"x": zero.cpu()})
