"""What is in the modular kernels' machine code: of tracing nothing where it is off and three moments where it is on,
and for the caches what is to stay.

Another process compiles: in this one Triton interprets.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.ptx import by_result, instructions, parameters_of_addresses

COMPILE = """
import importlib.util, json, re, sys
from pathlib import Path
import torch, triton
from triton.backends.compiler import GPUTarget
from kernels import offline, workloads
from kernels.llama import operations, pipeline, split_attention
from kernels.llama.inputs import buffers
from kernels.timeline.trace import TraceBuffer

class Hopper:
    # Stands where Triton looks for a driver.
    get_current_target = lambda self: GPUTarget("cuda", 90, 32)
    get_current_device = lambda self: 0
    get_current_stream = lambda self, device: 0

def without_tracing(module, folder):
    # The same source as if it had never heard of tracing: no such parameters, no such calls.
    source = Path(module.__file__).read_text()
    source = source.replace("    trace_ptr=None,\\n", "").replace("    TRACE: tl.constexpr = False,\\n", "")
    source = re.sub(r"begin = start\\((.*), TRACE\\)", r"if \\1:\\n        gdc_launch_dependents()", source)
    source = source.replace("begin, end = wait(begin, PDL, TRACE)", "if PDL:\\n        gdc_wait()")
    source = re.sub(r" *finish\\(trace_ptr, begin, end, TRACE\\)\\n", "", source)
    source = re.sub(r"from (triton.*cuda|kernels.llama.program) import .*", "", source)
    source = source.replace(
        "import triton.language as tl",
        "import triton.language as tl\\nfrom triton.language.extra.cuda import gdc_launch_dependents, gdc_wait",
    )
    code = re.sub(r'\\"{3}.*?\\"{3}', "", source, flags=re.DOTALL)
    assert not re.search(r"TRACE|trace|begin|start|finish", code), code
    path = Path(folder, "plain_" + Path(module.__file__).name)
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    return plain

def first_of_each(plan):
    return {(launch.name, launch.keywords.get("FED", False)): launch for launch in reversed(plan)}

def compiled(launch, kernel):
    return kernel.warmup(*launch.arguments, grid=launch.grid, **launch.keywords)

workload = workloads.named(sys.argv[1])
folder = sys.argv[2]
tiles = pipeline.tiles_for(workload)
triton.runtime.driver.set_active(Hopper())
weights = offline.absent_weights(workload)
live = buffers(workload, device="meta", logits=torch.float32)
between = pipeline.scratch(workload, tiles, device="meta")
trace = TraceBuffer(pipeline.slots(workload, tiles), device="meta")
plain = vars(without_tracing(operations, folder)) | vars(without_tracing(split_attention, folder))
found = {}
for pdl in (True, False):
    plan = pipeline.launches(workload, weights, live, between, tiles=tiles, pdl=pdl)
    traced = pipeline.launches(workload, weights, live, between, tiles=tiles, pdl=pdl, trace=trace)
    for (name, fed), launch in first_of_each(plan).items():
        if name not in sys.argv[3:]:
            continue
        ours = compiled(launch, launch.kernel)
        bare = compiled(launch, plain[launch.kernel.__name__])
        with_trace = first_of_each(traced)[name, fed] if pdl else None
        found[f"{name}{'+fed' if fed else ''}{'+pdl' if pdl else ''}"] = {
            "same ptx": ours.asm["ptx"] == bare.asm["ptx"],
            "same cubin": ours.asm["cubin"] == bare.asm["cubin"],
            "ptx": ours.asm["ptx"],
            "traced": compiled(with_trace, launch.kernel).asm["ptx"] if with_trace else "",
        }
json.dump(found, sys.stdout)
"""

WORKLOADS = {
    "decode/llama-1b/b1-ctx512-bf16": {"embed", "qkv", "attend", "out", "gate_up", "down", "head", "pick"},
    "decode/llama-1b/b1-ctx4096-bf16": {"attend", "merge"},  # the others are the same
}


@pytest.fixture(scope="module", params=WORKLOADS)
def compiled(request, repository: Path, tmp_path_factory) -> tuple[set[str], dict[str, dict]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    # Else the code carries the numbers of the source's lines.
    environment["TRITON_DISABLE_LINE_INFO"] = "1"
    command = [
        sys.executable,
        "-c",
        COMPILE,
        request.param,
        str(tmp_path_factory.mktemp("plain")),
        *WORKLOADS[request.param],
    ]
    ran = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return WORKLOADS[request.param], json.loads(ran.stdout)


def test_without_tracing_the_machine_code_is_that_of_kernels_that_cannot_trace(compiled) -> None:
    names, found = compiled
    assert set(found) == names | {f"{name}+pdl" for name in names}
    assert {name: (one["same ptx"], one["same cubin"]) for name, one in found.items()} == dict.fromkeys(
        found, (True, True)
    )
    assert not [name for name, one in found.items() if re.search("globaltimer|smid", one["ptx"])]


def test_a_traced_program_stamps_before_and_after_its_wait_and_behind_a_barrier_at_its_end(compiled) -> None:
    _, found = compiled
    for name, one in found.items():
        if not name.endswith("+pdl"):
            continue
        before, wait, after = one["traced"].partition("griddepcontrol.wait")
        assert wait, name
        assert before.count("%globaltimer") == 2, name  # the first moment, replaced by that right before the wait
        assert "st.global" not in before, name
        assert after.count("%globaltimer") == 2 and after.count("%smid") == 1, name
        end = after.rindex("%globaltimer")
        barrier = after.rindex("bar.sync", 0, end)
        assert "st.global" not in after[barrier:end] and "st.global" in after[:barrier], name
        assert after[end:].count("st.global") == 4, name


# Stage -> number of a pointer's parameter -> what its loads ask of the caches; all others ask nothing.
FIRST, LAST, NOTHING = ("evict_first", "evict_first"), ("evict_last", "evict_last"), ("", "")
HINTED = {
    "qkv": {2: {FIRST}},
    "attend": {1: {LAST, NOTHING}, 2: {LAST, NOTHING}},  # earlier rows, and the step's own after the wait
    "out": {1: {FIRST}},
    "gate_up": {2: {FIRST}},
    "down": {1: {FIRST}},
    "head": {2: {FIRST}},
}


def hints(ptx: str) -> dict[int, set[tuple[str, str]]]:
    """Of loads through each parameter: what goes first or last from the L1, and from the L2."""
    code = instructions(ptx)
    sources, made = parameters_of_addresses(code), by_result(code)
    found: dict[int, set[tuple[str, str]]] = {}
    for load in (one for one in code if one.does("ld", "global")):
        asked = [word.removeprefix("L1::") for word in load.words if word.startswith("L1::")]
        policies = made[load.transferred[1][-1]] if load.does("ld", "L2::cache_hint") else []
        asked_of_l2 = [word.removeprefix("L2::") for policy, _ in policies for word in policy.words if "L2::" in word]
        for parameter in sources[load.address]:
            found.setdefault(parameter, set()).add(("".join(asked), "".join(asked_of_l2)))
    return found


def test_weights_leave_the_caches_first_and_keys_and_values_last(compiled) -> None:
    names, found = compiled
    for name in names & HINTED.keys():
        asked = {parameter: found for parameter, found in hints(found[name]["ptx"]).items() if found != {NOTHING}}
        split = "merge" in names  # what is attended to in parts is too long to stay
        assert asked == ({} if split else HINTED[name]), name
        assert hints(found[f"{name}+pdl"]["ptx"]) == hints(found[name]["ptx"]), name
