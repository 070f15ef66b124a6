"""How many programs fit on a multiprocessor; and the way from recorded traces to a printed projection."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.timeline import __main__ as command
from kernels.timeline import files
from kernels.timeline.occupancy import early_share, fitting
from tests.kernels.timeline.test_projection import WORKLOAD, traced
from tests.kernels.timeline.test_spans import STEP

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("registers", "warps", "shared_bytes", "fits"),
    [
        (32, 4, 0, 16),  # 64 warps
        (16, 1, 0, 32),  # no more than 32 programs
        (255, 8, 0, 1),  # 8 warps of 8192 registers are all of them
        (255, 2, 0, 4),
        (176, 8, 0, 1),  # 5632 a warp: 2 in each quarter, 8 in all
        (128, 8, 0, 2),
        (64, 16, 0, 2),
        (32, 4, 100_000, 2),
        (32, 4, 232_448, 1),
        (32, 4, 232_449, 0),
        (255, 16, 0, 0),
    ],
)
def test_programs_on_a_hopper_multiprocessor(registers: int, warps: int, shared_bytes: int, fits: int) -> None:
    assert fitting(registers=registers, warps=warps, shared_bytes=shared_bytes) == fits


@pytest.mark.parametrize(
    ("options", "share"),
    [
        ({"D": 2048, "ROWS": 4}, 1.0),
        ({"TILES": 4, "PROGRAMS": 264}, 0.25),
        ({"BLOCK": 512, "CONTEXT": 512}, 1.0),
        ({"BLOCK": 128, "CONTEXT": 513}, 0.25),
        ({"BLOCK": 128, "CONTEXT": 4096, "SPLITS": 32}, 1.0),
    ],
)
def test_what_a_program_loads_before_it_waits(options: dict[str, int], share: float) -> None:
    assert early_share(options) == share


def test_recorded_traces_become_a_printed_projection(tmp_path: Path) -> None:
    """In a process of its own: this one interprets Triton's kernels and cannot compile them."""
    name = "decode/llama-1b/b1-ctx512-bf16"
    for mode in ("graph", "pdl"):
        files.write_traces([traced(mode)], tmp_path / f"{mode}.pt", workload=name, implementation=f"modular-{mode}")
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    traces = [str(tmp_path / "graph.pt"), str(tmp_path / "pdl.pt")]
    ran = subprocess.run(
        [sys.executable, "-m", "kernels.timeline", "project", *traces, "--bandwidth", "4.5"],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("PROJECTION") == 3
    assert "8 multiprocessors, 4.50 TB/s" in ran.stdout


def test_traces_that_the_model_does_not_take_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files.write_traces([STEP], tmp_path / "mega.pt", workload=WORKLOAD.name, implementation="megakernel")
    files.write_traces([traced("graph")], tmp_path / "a.pt", workload="a", implementation="modular-graph")
    files.write_traces([traced("pdl")], tmp_path / "b.pt", workload="b", implementation="modular-pdl")
    for names, problem in (
        (["mega.pt"], "is of megakernel; the model takes modular-graph and modular-pdl"),
        (["a.pt", "b.pt"], "traces of a and b; give those of one workload"),
        (["a.pt"], "no workload 'a'"),
    ):
        assert command.main(["project", *(str(tmp_path / name) for name in names)]) == 2
        assert problem in capsys.readouterr().err
