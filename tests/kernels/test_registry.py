"""The registry is lazy: nothing is imported before it is asked for, and nothing but what is asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import registry

IMPLEMENTATIONS = {entry.target.partition(":")[0] for entry in registry.ENTRIES}


def imported_by(statement: str, repository: Path) -> set[str]:
    """Names of all modules that a fresh interpreter has after this statement."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=True)
    return set(json.loads(ran.stdout.splitlines()[-1]))


def test_importing_the_registry_imports_neither_torch_nor_triton(repository: Path) -> None:
    modules = imported_by("import kernels.registry", repository)
    assert not {"torch", "triton", "numpy"} & modules
    assert not IMPLEMENTATIONS & modules


@pytest.mark.parametrize("name", [entry.name for entry in registry.ENTRIES])
def test_loading_one_implementation_imports_no_other(name: str, repository: Path) -> None:
    entry = registry.entry("decode", name)
    modules = imported_by(f"from kernels import registry\nregistry.entry('decode', {name!r}).load()", repository)
    assert IMPLEMENTATIONS & modules == {entry.target.partition(":")[0]}
    if entry.language == "triton":
        assert "kernels.llama.torch_model" not in modules
    else:
        assert "kernels.llama.operations" not in modules


def test_an_unknown_implementation_is_named_with_those_there_are() -> None:
    with pytest.raises(KeyError, match=r"no implementation 'cuda' of 'decode'; there are torch-eager"):
        registry.entry("decode", "cuda")


@pytest.mark.parametrize(
    ("name", "capability", "reason"),
    [
        ("torch-eager", None, ""),
        ("torch-graph", None, "CUDA graphs need a CUDA device"),
        ("modular-pdl", None, ""),
        ("modular-pdl", 80, "needs sm_90 or newer; this device is sm_80"),
        ("modular-pdl", 90, ""),
        ("modular", 75, "needs sm_80 or newer; this device is sm_75"),
        ("modular-graph", 80, ""),
    ],
)
def test_it_says_why_something_cannot_run_here(name: str, capability: int | None, reason: str) -> None:
    assert registry.entry("decode", name).unsupported(capability) == reason


def test_every_tolerance_has_a_reason_and_can_fail() -> None:
    for entry in registry.ENTRIES:
        assert 0 < entry.tolerance.fp32 < entry.tolerance.bf16 < 0.1
        assert "seen" in entry.tolerance.reason
