"""What the kernels of several sequences compile to for a GPU that is not here. Another process: in this one Triton
interprets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import workloads
from kernels.llama.batched_tiles import tiles_for

SHARED_MEMORY_OF_A_BLOCK = 227 * 1024  # of an H100 or H200
OPERATIONS = ["embed", "qkv", "attend", "out", "gate_up", "down", "head", "pick"]
SETTLED = [*OPERATIONS[:4], "settle_out", *OPERATIONS[4:6], "settle_down", *OPERATIONS[6:]]
EIGHT = "decode/llama-1b/b8-ctx512-bf16"
EXPECTED = {EIGHT: OPERATIONS, "decode/llama-1b/b64-ctx512-bf16": SETTLED}
MODES = [*((workload, "dependent") for workload in EXPECTED), *((EIGHT, mode) for mode in ("ordinary", "traced"))]
PREFETCHING = {"qkv", "attend", "out", "gate_up"}

COMPILE = """
import dataclasses, json, sys
from kernels import offline, workloads
from kernels.llama import batched_tiles
from kernels.llama.batched_pipeline import BatchedStep
from kernels.llama.batched_plan import slots
from kernels.timeline.trace import TraceBuffer

def compiled(workload, **options):
    found = offline.compiled(workload, lambda *given: BatchedStep(*given, **options), architecture=90)
    return {
        name: {**dataclasses.asdict(offline._cost(kernel, 90)), "ptx": kernel.ptx, "threads": 32 * kernel.warps}
        for name, kernel in found.items()
    }

told = {}
for name in sys.argv[1:]:
    workload = workloads.named(name)
    told[name] = {"dependent": compiled(workload, pdl=True)}
    if workload.batch == 8:
        trace = TraceBuffer(slots(workload, batched_tiles.tiles_for(workload)), device="meta")
        told[name] |= {"ordinary": compiled(workload), "traced": compiled(workload, trace=trace)}
        tiles = batched_tiles.tiles_for(workload)
        prefetching = {"qkv": 256, "attend": 256, "out": 256, "gate_up": 512}
        changed = {key: dataclasses.replace(getattr(tiles, key), prefetched=n) for key, n in prefetching.items()}
        changed["attend"] = dataclasses.replace(changed["attend"], first=256)
        tiles = dataclasses.replace(tiles, **changed)
        told[name] |= {
            "prefetching": compiled(workload, pdl=True, tiles=tiles),
            "prefetching-ordinary": compiled(workload, tiles=tiles),
        }
json.dump(told, sys.stdout)
"""


@pytest.fixture(scope="module")
def told(repository: Path) -> dict:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", COMPILE, *EXPECTED]
    ran = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


@pytest.mark.parametrize(("workload", "mode"), MODES)
def test_every_operation_compiles_without_spilling_and_fits_a_multiprocessor(
    workload: str, mode: str, told: dict
) -> None:
    assert list(told[workload][mode]) == EXPECTED[workload]  # and one code for all layers
    for operation, cost in told[workload][mode].items():
        assert cost["spilled_bytes"] == 0, operation
        assert cost["registers"] * cost["threads"] <= 65536, operation
        assert cost["shared_bytes"] <= SHARED_MEMORY_OF_A_BLOCK, operation


@pytest.mark.parametrize("workload", EXPECTED)
def test_every_projection_and_attention_runs_on_tensor_cores(workload: str, told: dict) -> None:
    for operation, cost in told[workload]["dependent"].items():
        cores = "mma.sync" in cost["ptx"] or "wgmma.mma_async" in cost["ptx"]
        assert cores == (operation in {"qkv", "attend", "out", "gate_up", "down", "head"}), operation


@pytest.mark.parametrize("workload", EXPECTED)
def test_dependent_launches_load_weights_before_they_wait_and_all_else_after(workload: str, told: dict) -> None:
    for operation, cost in told[workload]["dependent"].items():
        before, wait, after = cost["ptx"].partition("griddepcontrol.wait")
        assert wait and "griddepcontrol.wait" not in after, operation
        assert before.count("griddepcontrol.launch_dependents") == 1, operation
        assert "st.global" not in before and "cp.async" not in before and "st.global" in after, operation
        if operation in {"qkv", "attend", "out", "gate_up", "down", "head"}:
            assert before.count("ld.global") >= 4, operation


def test_ordinary_launches_have_nothing_of_dependent_ones(told: dict) -> None:
    assert not any("griddepcontrol" in cost["ptx"] for cost in told[EIGHT]["ordinary"].values())


@pytest.mark.parametrize("workload", EXPECTED)
def test_weights_come_sixteen_bytes_at_a_time(workload: str, told: dict) -> None:
    """Narrower copies (cp.async.ca) would multiply the instructions; a few activations a thread may be that narrow."""
    for operation in ("qkv", "out", "gate_up", "down", "head"):
        ptx = told[workload]["dependent"][operation]["ptx"]
        assert 4 * ptx.count("cp.async.ca") <= ptx.count("cp.async.cg.shared.global") > 0, operation


@pytest.mark.parametrize("workload", EXPECTED)
def test_no_projection_loads_anything_after_its_loop(workload: str, told: dict) -> None:
    """Else the end of a program would wait for the L2 once more, with nothing to do meanwhile."""
    for operation in ("qkv", "out", "gate_up", "down", "head"):
        _, _, after = told[workload]["dependent"][operation]["ptx"].partition("griddepcontrol.wait")
        assert 0 < after.rindex("ld.global") < after.index("cp.async"), operation


def test_attention_has_asked_for_all_that_it_needs_when_its_warps_first_wait_for_each_other(told: dict) -> None:
    _, _, after = told[EIGHT]["dependent"]["attend"]["ptx"].partition("griddepcontrol.wait")
    assert 0 < after.rindex("ld.global") < after.index("bar.sync")


def test_only_a_traced_step_reads_the_clock(told: dict) -> None:
    for operation, cost in told[EIGHT]["traced"].items():
        assert cost["ptx"].count("%globaltimer") >= 2 and "%smid" in cost["ptx"], operation
    for mode in ("dependent", "ordinary"):
        assert not any("%globaltimer" in cost["ptx"] for cost in told[EIGHT][mode].values())


def test_what_is_to_be_prefetched_is_asked_for_once_before_the_wait_and_by_no_ordinary_launch(told: dict) -> None:
    for operation, cost in told[EIGHT]["prefetching"].items():
        before, _, after = cost["ptx"].partition("griddepcontrol.wait")
        assert bool(before.count("prefetch.global.L2")) == (operation in PREFETCHING), operation
        assert "prefetch.global" not in after and cost["spilled_bytes"] == 0, operation
    assert not any("prefetch.global" in cost["ptx"] for cost in told[EIGHT]["prefetching-ordinary"].values())
    pinned = tiles_for(workloads.named(EIGHT))
    for operation, cost in told[EIGHT]["dependent"].items():
        asked = getattr(getattr(pinned, operation, None), "prefetched", 0) > 0
        assert ("prefetch.global" in cost["ptx"]) == asked, operation


def test_each_line_is_asked_for_by_one_thread(told: dict) -> None:
    """By their number: 64 columns are a line, and each thread asks for another one."""
    lines = {"qkv": 16 * 4 * 4, "out": 16 * 4 * 4, "gate_up": 128 * 8, "attend": 2 * 256}
    for operation, count in lines.items():
        cost = told[EIGHT]["prefetching"][operation]
        assert cost["ptx"].count("prefetch.global.L2") * cost["threads"] == count, operation
