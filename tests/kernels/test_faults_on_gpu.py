"""Faults of the megakernel that only a GPU can show, and the gate that refuses them. Other processes: here Triton
interprets, and a fault may take the process down."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels import faults_on_gpu
from tests.kernels.variants import planted

RIGHT = "none"
SAID = {
    "tags not looked at": "not finite|is off by|repeats differ in their bits",
    "leftover counters": "repeats differ in their bits",
    "unwritten row": "logits is not finite in 1 of 128256",
    "cached result": "is off by",
    "zero inputs": "is off by",
    "wrong position": "not finite|is off by",
}


def said(fault: str, repository: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", faults_on_gpu.__name__, fault]
    ran = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@pytest.mark.gpu
@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", faults_on_gpu.FAULTS)
def test_the_gate_refuses_the_megakernel_with(fault: str, repository: Path) -> None:
    reason = said(fault, repository)
    assert any(part in reason for part in SAID[fault].split("|")), reason


@pytest.mark.gpu
@pytest.mark.timeout(300)
def test_the_gate_accepts_the_megakernel_without_a_fault(repository: Path) -> None:
    assert said(RIGHT, repository) == ""


@pytest.mark.parametrize("fault", faults_on_gpu.PLANTED)
def test_the_place_of_a_fault_is_still_there(fault: str, tmp_path: Path) -> None:
    with planted(faults_on_gpu.PLANTED[fault], tmp_path):
        for module in faults_on_gpu.PLANTED[fault]:
            assert str(tmp_path) in str(importlib.import_module(module).__file__)
