"""Processes whose clock is wrong, as on a node without NTP."""

from __future__ import annotations

import subprocess
from pathlib import Path

# In a mount namespace of its own, with an /etc that has every process there load the shim, whatever its environment.
_ENTER = 'mount --bind "$0" /etc && exec "$@"'


def skewed(folder: Path, *, seconds: int) -> dict[str, str]:
    """Environment of a process whose clock is ahead of the machine's by so many seconds."""
    return {"LD_PRELOAD": str(_shim(folder, seconds))}


def skewed_box(folder: Path, *, seconds: int) -> tuple[str, ...]:
    """What goes before a command, so that it and all that it starts have such a clock, with any environment. For
    root."""
    etc = folder / "etc"
    subprocess.run(["cp", "-a", "/etc", etc], check=True)
    (etc / "ld.so.preload").write_text(f"{_shim(folder, seconds)}\n")
    return ("unshare", "--mount", "--propagation=private", "sh", "-c", _ENTER, str(etc))


def _shim(folder: Path, seconds: int) -> Path:
    library = folder / "skew.so"
    source = Path(__file__).with_name("skew.cpp")
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", f"-DSKEW_S={seconds}", "-o", library, source], check=True)
    return library
