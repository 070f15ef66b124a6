"""The registry is lazy: nothing is imported before it is asked for, and nothing but what is asked for."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import registry, workloads
from kernels.llama.megakernel.configuration import configuration_for, tape_for

IMPLEMENTATIONS = {entry.target.partition(":")[0] for entry in registry.ENTRIES}


def imported_by(statement: str, repository: Path) -> set[str]:
    """Names of all modules that a fresh interpreter has after this statement."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=True)
    return set(json.loads(ran.stdout.splitlines()[-1]))


# One interpreter that has torch and triton already forks into one for each: ten times their import is 15 s.
LOADING = """
import json, os, sys
import torch, triton.experimental.gluon
from kernels import registry
for entry in registry.ENTRIES:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        entry.load()
        print(json.dumps([entry.name, sorted(sys.modules)]), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


@functools.cache
def imported_by_loading(repository: Path) -> dict[str, set[str]]:
    """Names of all modules by the name of the one implementation that was loaded."""
    ran = subprocess.run([sys.executable, "-c", LOADING], cwd=repository, capture_output=True, text=True, check=False)
    found = {name: set(modules) for name, modules in map(json.loads, ran.stdout.splitlines())}
    assert found.keys() == set(registry.names("decode")), ran.stderr
    return found


def test_importing_the_registry_imports_neither_torch_nor_triton(repository: Path) -> None:
    modules = imported_by("import kernels.registry", repository)
    assert not {"torch", "triton", "numpy"} & modules
    assert not IMPLEMENTATIONS & modules


@pytest.mark.parametrize("name", [entry.name for entry in registry.ENTRIES])
def test_loading_one_implementation_imports_no_other(name: str, repository: Path) -> None:
    entry = registry.entry("decode", name)
    modules = imported_by_loading(repository)[name]
    assert IMPLEMENTATIONS & modules == {entry.target.partition(":")[0]}
    if entry.language == "triton":
        assert "kernels.llama.torch_model" not in modules
    else:
        assert "kernels.llama.operations" not in modules


def test_an_unknown_implementation_is_named_with_those_there_are() -> None:
    with pytest.raises(KeyError, match=r"no implementation 'cuda' of 'decode'; there are torch-eager"):
        registry.entry("decode", "cuda")


@pytest.mark.parametrize(
    ("name", "capability", "size", "reason"),
    [
        ("torch-eager", None, "mini/b1-ctx128-fp32", ""),
        ("torch-eager", 90, "1b/b1-ctx512-bf16", ""),
        ("torch-eager", 90, "1b/b8-ctx512-bf16", "bound by the host .* at decode/llama-1b/b1-ctx512-bf16 alone"),
        ("torch-graph", None, "mini/b1-ctx128-fp32", "CUDA graphs need a CUDA device"),
        ("torch-graph", 90, "1b/b64-ctx512-bf16", ""),
        ("torch-compile", 90, "1b/b1-gen32+127-bf16", ""),
        ("torch-compile-autotune", None, "mini/b1-ctx128-fp32", "max-autotune times candidates for a GPU; .*"),
        ("torch-compile-autotune", 90, "1b/b1-ctx512-bf16", ""),
        ("torch-compile-autotune", 90, "1b/b1-ctx4096-bf16", "it takes 45 s to compile: .*-ctx512-bf16 alone"),
        ("modular-pdl", None, "mini/b1-ctx128-fp32", ""),
        ("modular-pdl", 80, "1b/b1-ctx512-bf16", "needs sm_90 or newer; this device is sm_80"),
        ("modular-pdl", 90, "1b/b64-ctx512-bf16", ""),
        ("modular", 75, "1b/b1-ctx512-bf16", "needs sm_80 or newer; this device is sm_75"),
        ("modular-graph", 80, "1b/b1-ctx512-bf16", ""),
        ("megakernel", 90, "1b/b1-gen32+127-bf16", ""),
        ("megakernel", 80, "1b/b1-ctx512-bf16", "needs sm_90 or newer; this device is sm_80"),
        ("megakernel", 90, "1b/b8-ctx512-bf16", "the megakernel is written for batch 1"),
        ("megakernel-graph", 90, "1b/b64-ctx512-bf16", "the megakernel is written for batch 1"),
        ("megakernel-graph", None, "mini/b1-ctx128-fp32", ""),
    ],
)
def test_it_says_why_something_does_not_run_here(name: str, capability: int | None, size: str, reason: str) -> None:
    workload = workloads.named(f"decode/llama-{size}")
    assert re.fullmatch(reason, registry.entry("decode", name).unsupported(capability, workload))


def test_there_are_nine_implementations_of_three_kinds() -> None:
    assert registry.names("decode") == (
        *("torch-eager", "torch-graph", "torch-compile", "torch-compile-autotune"),
        *("modular", "modular-graph", "modular-pdl"),
        *("megakernel", "megakernel-graph"),
    )


def test_entries_of_a_family_promise_equal_bits_and_each_family_says_why_another_has_others() -> None:
    families: dict[str, set[registry.Bits]] = {}
    for entry in registry.ENTRIES:
        if entry.bits is not None:
            assert entry.bitwise, entry.name
            families.setdefault(entry.bits.family, set()).add(entry.bits)
    assert families.keys() == {"modular", "megakernel"}
    assert all(len(members) == 1 for members in families.values())
    assert "megakernel" in registry.entry("decode", "modular").bits.reason
    assert "modular" in registry.entry("decode", "megakernel").bits.reason
    assert registry.entry("decode", "torch-compile").bits is None


def test_every_tolerance_has_a_reason_and_can_fail() -> None:
    for entry in registry.ENTRIES:
        assert 0 < entry.tolerance.fp32 < entry.tolerance.bf16 < 0.1
        assert "seen" in entry.tolerance.reason


@pytest.mark.parametrize(("count", "fits"), [(114, False), (128, True), (132, True), (192, True), (193, False)])
def test_the_megakernel_says_how_many_multiprocessors_it_is_written_for(count: int, fits: bool) -> None:
    workload = workloads.named("decode/llama-1b/b1-ctx512-bf16")
    reason = registry.entry("decode", "megakernel").unsupported(90, workload, multiprocessors=count)
    assert reason == ("" if fits else f"is written for 128 to 192 multiprocessors; this device has {count}")
    if fits:
        tape_for(workload, configuration_for(workload), multiprocessors=count)
    else:
        with pytest.raises(ValueError, match="programs"):
            tape_for(workload, configuration_for(workload), multiprocessors=count)
