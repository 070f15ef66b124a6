"""A process whose clock is wrong, as on a node without NTP."""

from __future__ import annotations

import subprocess
from pathlib import Path


def skewed(folder: Path, *, seconds: int) -> dict[str, str]:
    """Environment of a process whose clock is ahead of the machine's by so many seconds; the shim is built in
    `folder`."""
    library = folder / "skew.so"
    source = Path(__file__).with_name("skew.cpp")
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    return {"LD_PRELOAD": str(library), "PERFCI_TEST_SKEW_S": str(seconds)}
