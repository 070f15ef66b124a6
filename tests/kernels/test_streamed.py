"""Projections that stream their weights through shared memory: right in the interpreter, and in order when compiled."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernels import memory_order, reference
from kernels.llama import streamed
from kernels.llama.pipeline import ModularStep, Split, Tile, Tiles
from kernels.llama.weights import Weights
from kernels.ptx import instructions
from kernels.ptx_paths import before_wait
from kernels.workloads import Decode
from perfci.bench import buffers
from tests.kernels.conftest import SMALL_TILES

FP32 = 2e-5
STREAMED = Tiles(
    qkv=Tile(8, 4, programs=5, stages=3),  # 16 tiles: the last of four is there for one program only
    attend=Tile(8, 4),
    out=Tile(32, 4, programs=3, stages=3),
    gate_up=Tile(32, 4, programs=3, stages=2),
    down=Tile(32, 4, programs=3, stages=4),
    head=Tile(32, 4, programs=3, stages=3),
    head_tiles=2,
)
WAYS = {
    "whole": STREAMED,
    "split, merged by a kernel": dataclasses.replace(STREAMED, split=Split(heads=2, merge_warps=4)),
    "split, merged by the projection": dataclasses.replace(STREAMED, split=Split(heads=2, merge_warps=None)),
    "split by query head": dataclasses.replace(STREAMED, split=Split(heads=1, merge_warps=None)),
}
WORKLOAD = "decode/llama-1b/b1-ctx512-bf16"

COMPILE = r"""
import importlib.util, json, sys
from pathlib import Path
import torch, triton
from triton.backends.compiler import GPUTarget
from kernels import offline, workloads
from kernels.llama import pipeline
from kernels.llama.inputs import buffers
from kernels.llama.pipeline import Split, Tile, Tiles

class Hopper:
    # Stands where Triton looks for a driver.
    get_current_target = lambda self: GPUTarget("cuda", 90, 32)
    get_current_device = lambda self: 0
    get_current_stream = lambda self, device: 0

workload = workloads.named(sys.argv[1])
tiles = Tiles(
    qkv=Tile(2, 8, 264, 4), attend=Tile(128, 4), out=Tile(4, 8, 132, 4), gate_up=Tile(2, 8, 264, 4),
    down=Tile(1, 8, 264, 3), head=Tile(4, 8, 264, 4), head_tiles=1, split=Split(heads=1, merge_warps=None),
)
triton.runtime.driver.set_active(Hopper())
live = buffers(workload, device="meta", logits=torch.float32)
between = pipeline.scratch(workload, tiles, device="meta")
plan = pipeline.launches(workload, offline.absent_weights(workload), live, between, tiles=tiles, pdl=True)
stages = {launch.name: launch for launch in reversed(plan)}

def compiled(launch, kernel):
    return kernel.warmup(*launch.arguments, grid=launch.grid, **launch.keywords)

found = {"right": {}, "planted": {}}
for name, launch in stages.items():
    kernel = compiled(launch, launch.kernel)
    found["right"][name] = {
        "ptx": kernel.asm["ptx"], "shared": kernel.metadata.shared, "stages": launch.keywords.get("STAGES"),
    }
# Planted: loads of what the kernel before wrote, outside of the `if` of the first pass.
source = Path(pipeline.__file__).with_name("streamed.py").read_text()
planted = {
    "gate_up": (
        "        if tile == 0:\n            begin, end = wait(begin, PDL, TRACE)\n"
        "            x = tl.load(x_ptr + columns)\n",
        "        x = tl.load(x_ptr + columns)\n"
        "        if tile == 0:\n            begin, end = wait(begin, PDL, TRACE)\n",
    ),
    "down": (
        "        if first < D:\n            before = tl.load(x_ptr + rows, mask=rows < D, other=0.0)\n",
        "        before = tl.load(x_ptr + rows, mask=rows < D, other=0.0)\n        if first < D:\n",
    ),
}
for name, (old, new) in planted.items():
    assert old in source, old
    path = Path(sys.argv[2], f"planted_{name}.py")
    path.write_text(source.replace(old, new))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    launch = stages[name]
    found["planted"][name] = compiled(launch, getattr(module, launch.kernel.__name__)).asm["ptx"]
json.dump(found, sys.stdout)
"""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("position", [1, 8, 20])
def test_a_streamed_step_is_right_at_any_position(
    position: int, way: str, tiny: Decode, tiny_weights: Weights, draw
) -> None:
    inputs, expected = draw(31, position)
    step = ModularStep(tiny, tiny_weights, inputs, tiles=WAYS[way])
    buffers.poison(step.outputs.values())
    buffers.poison(step.scratch)
    before = buffers.fingerprint(step.constants)
    step()
    assert reference.worst_error(step.outputs, expected) < FP32
    assert buffers.fingerprint(step.constants) == before
    assert not any(bool(torch.isnan(tensor).any()) for tensor in step.scratch if tensor is not step.between.attended)


@pytest.mark.parametrize("ties", [(3, 5), (40, 41), (90, 130), (0, 255), (96, 200)])
def test_of_equal_logits_the_lowest_row_wins_though_programs_interleave(ties: tuple[int, ...]) -> None:
    rows, width, programs = 256, 64, 3
    generator = torch.Generator().manual_seed(1)
    x, embedding = torch.randn(width, generator=generator), torch.randn(rows, width, generator=generator) / width
    for row in ties:
        embedding[row] = x
    logits, best = torch.full((rows,), float("nan")), torch.full((programs,), float("nan"))
    best_row, token = torch.full((programs,), -1, dtype=torch.int32), torch.tensor([-1])
    walk = Tile(32, 4, programs, 2).walk(rows)
    streamed.stream_head[(programs,)](
        x, torch.ones(width), embedding, logits, best, best_row, D=width, V=rows, EPSILON=1e-5, **walk, PDL=False
    )
    streamed.pick_lowest[(1,)](best, best_row, token, V=rows, COUNT=programs, WIDTH=4, PDL=False)
    assert int(token) == min(ties)
    torch.testing.assert_close(logits.double(), embedding.double() @ (x / (x.square().mean() + 1e-5).sqrt()).double())


@pytest.mark.parametrize(
    ("tiles", "message"),
    [
        (dataclasses.replace(SMALL_TILES, qkv=Tile(8, 4, programs=5)), "qkv with 5 programs; only a streamed one"),
        (dataclasses.replace(SMALL_TILES, head=Tile(32, 4, programs=3)), "head with 3 programs; only a streamed one"),
        (dataclasses.replace(STREAMED, qkv=Tile(8, 4, 17, 3)), "17 programs of 8 rows for half the rows of all heads"),
        (dataclasses.replace(SMALL_TILES, split=Split(2, None)), "only a streamed output projection can merge"),
        (dataclasses.replace(STREAMED, split=Split(3, 4)), "3 query heads a program do not share a key head"),
    ],
)
def test_tiles_that_no_kernel_can_walk_are_refused(
    tiles: Tiles, message: str, tiny: Decode, tiny_weights: Weights, draw
) -> None:
    with pytest.raises(ValueError, match=message):
        ModularStep(tiny, tiny_weights, draw(1)[0], tiles=tiles)


# Numbers of the arguments that point to what kernels of the step write.
WRITTEN = {
    "qkv": {0, 6, 7, 8},
    "out": {0, 1, 2, 4},
    "gate_up": {0, 3},
    "down": {0, 2},
    "head": {0, 3, 4, 5},
    "pick": {0, 1, 2},
}


@pytest.fixture(scope="module")
def compiled(repository: Path, tmp_path_factory) -> dict[str, dict]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", COMPILE, WORKLOAD, str(tmp_path_factory.mktemp("planted"))]
    ran = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize("name", WRITTEN)
def test_nothing_that_the_step_writes_is_touched_before_the_wait(name: str, compiled: dict[str, dict]) -> None:
    assert memory_order.dependent_launch_faults(compiled["right"][name]["ptx"], WRITTEN[name]) == ()


@pytest.mark.parametrize("name", ["gate_up", "down"])
def test_a_load_outside_of_the_first_pass_that_triton_moves_before_the_wait_is_found(
    name: str, compiled: dict[str, dict]
) -> None:
    faults = memory_order.dependent_launch_faults(compiled["planted"][name], WRITTEN[name])
    assert any("reads parameter" in fault for fault in faults)


@pytest.mark.parametrize("name", ["qkv", "out", "gate_up", "down", "head"])
def test_a_ring_of_weights_is_on_its_way_before_the_wait(name: str, compiled: dict[str, dict]) -> None:
    found = compiled["right"][name]
    before, waits = before_wait(instructions(found["ptx"]))
    assert waits
    assert sum(one.does("cp", "async", "commit_group") for one in before) >= found["stages"] - 1
    assert sum(one.does("cp", "async", "global") for one in before) >= found["stages"] - 1


def test_programs_of_two_kernels_fit_on_a_multiprocessor(compiled: dict[str, dict]) -> None:
    assert all(2 * (found["shared"] + 1024) <= 227 * 1024 for found in compiled["right"].values())
