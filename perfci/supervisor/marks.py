"""Processes are found by a mark in their environment, wherever they have gone to."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from perfci.errors import ServiceError

MARK = "PERFCI_TREE"
# What SIGKILL leaves behind needs no longer than the kernel takes to free its memory.
KILL_LIMIT_S = 20.0


def sweep(mark: str) -> int:
    """Kill every process that carries the mark, except this one and those above it; how many there were."""
    spared = {os.getpid(), *(p.pid for p in psutil.Process().parents())}
    killed: set[int] = set()
    until = time.monotonic() + KILL_LIMIT_S
    while left := [p for p in marked(mark) if p.pid not in spared]:
        killed.update(p.pid for p in left)
        kill(left)
        psutil.wait_procs(left, timeout=0.2)
        if time.monotonic() > until:
            raise ServiceError(
                f"process {left[0].pid} of an earlier run cannot be killed", next_step="end it and start again"
            )
    return len(killed)


def log_end(path: Path, *, lines: int) -> str:
    """The last lines that are not empty; "" when there is no such file."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - 65536))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join([line.rstrip() for line in text.splitlines() if line.strip()][-lines:])


def marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and alive(process):
                found.append(process)
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or another user's
    return found


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.Error:
            continue
