"""Settings of the measured process, made before a kernel is defined, and the choice of workloads."""

from __future__ import annotations

import os
import sys

import pytest
import torch

from kernels.workloads import GROUPS

if not torch.cuda.is_available():
    # Triton decides where a kernel is defined whether it is compiled or interpreted.
    if "kernels.llama.operations" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"
    # With a thread on every core, a step waits at each of its barriers for the thread that lost its core to a
    # neighbour: 35 times slower was seen on two busy cores. One thread is slower and steady.
    torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--workloads",
        default="nightly",
        metavar="GROUP",
        help=f"what to measure: a workload's name or one of the groups {', '.join(GROUPS)} (default: nightly)",
    )
