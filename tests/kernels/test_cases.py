"""What the suite hands to perfci for each implementation and workload, and how a group is chosen."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import registry, workloads
from kernels.benchmarks import bench_decode, cases
from perfci import config

GENERATION = "decode/llama-tiny/b1-gen5+6-fp32"
STEP = "decode/llama-tiny/b1-ctx21-fp32"


@pytest.mark.parametrize(
    ("implementation", "device", "steps", "repeats"),
    [
        ("modular-pdl", "cuda", 1, 200),
        ("megakernel", "cuda", 1, 200),
        ("megakernel", "cuda", 127, 3),
        ("modular", "cuda", 50, 4),
        ("modular", "cuda", 60, 4),
        ("torch-graph", "cuda", 1, 3),
        ("modular", "cpu", 1, 3),
    ],
)
def test_triton_s_launches_are_repeated_on_a_gpu(implementation: str, device: str, steps: int, repeats: int) -> None:
    entry = registry.entry("decode", implementation)
    assert cases.repeats(entry, device=device, steps=steps) == repeats


def test_a_single_step_has_a_reference_and_a_generation_a_guided_one() -> None:
    entry = registry.entry("decode", "torch-eager")
    step, generation = (bench_decode.decode_case(workloads.named(name), entry) for name in (STEP, GENERATION))
    assert step.reference is not None and step.guided_reference is None
    assert generation.reference is None and generation.guided_reference is not None
    assert step.exact == generation.exact == ("token",)
    assert (generation.workload.tokens, step.workload.tokens) == (6, 1)


def test_the_guided_reference_s_slack_is_the_implementation_s_own() -> None:
    workload = workloads.named(GENERATION)
    case = bench_decode.decode_case(workload, registry.entry("decode", "torch-eager"))
    inputs = case.fresh_inputs(4)
    step = case.prepare(inputs)
    step()
    expected = case.guided_reference(inputs, {"token": step.outputs["token"]})
    assert expected["token"].tolist() == step.outputs["token"].tolist()
    wrong = (step.outputs["token"] + 1) % 256
    assert case.guided_reference(inputs, {"token": wrong})["token"].tolist() != wrong.tolist()


def test_what_cannot_run_here_says_why_and_nothing_else() -> None:
    case = bench_decode.decode_case(workloads.named(STEP), registry.entry("decode", "torch-graph"))
    assert case.unsupported == "CUDA graphs need a CUDA device"
    assert case.prepare is None and case.fresh_inputs is None


def test_the_workloads_of_one_shape_share_their_matrices() -> None:
    one, other = bench_decode.shared_weights(STEP), bench_decode.shared_weights(GENERATION)
    assert all(a.data_ptr() == b.data_ptr() for a, b in zip(one.tensors()[:6], other.tensors()[:6], strict=True))
    assert (one.cosine.shape[0], other.cosine.shape[0]) == (21, 11)
    assert one.cosine[:11].equal(other.cosine)


def collected(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "kernels/benchmarks/bench_decode.py", "--collect-only", "-q"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command += ["-p", "perfci.bench.plugin", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)


def test_a_suite_without_options_collects_the_night_s_and_an_unknown_group_is_refused(repository: Path) -> None:
    found = collected(repository)
    names = [line for line in found.stdout.splitlines() if "::test_decode[" in line]
    assert len(names) == len(registry.names("decode")), found.stdout + found.stderr
    assert all("llama-mini/b1-ctx128-fp32" in name for name in names)
    refused = collected(repository, "--workloads", "bacth")
    assert refused.returncode != 0
    assert "--workloads: no group or workload 'bacth'; there are the groups nightly" in refused.stdout


def test_every_group_of_the_settings_is_one_command(repository: Path) -> None:
    settings = config.load(repository / "kernels" / "groups.toml")
    assert set(settings.suites) == workloads.GROUPS.keys() - {"nightly", "all"}
    for name, suite in settings.suites.items():
        words = shlex.split(suite.run)
        assert words[words.index("--workloads") + 1] == name
        assert Path(settings.repository(suite)) == repository
    assert settings.state.resolve() == repository / ".perfci"
