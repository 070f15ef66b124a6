"""Timelines in files: in perfci's result files, packed, and raw traces for the schedule model."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kernels.timeline import spans
from kernels.timeline.spans import Timeline
from kernels.timeline.trace import Slot, Trace

_MAX_BYTES = 32 * 1024 * 1024


def timelines(path: Path, *, workload: str | None = None, implementation: str | None = None) -> tuple[Timeline, ...]:
    """Those of a result file's measurements that have a trace, or of a file that `write` made; in the file's order.

    Only those of a workload or implementation where one is named. ValueError for any other file, OSError.
    """
    with path.open("rb") as stream:
        data = stream.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ValueError(f"{path} has more than {_MAX_BYTES} bytes; name a result file")
    try:
        body = json.loads(data)
        measurements = body["run"]["measurements"] if "run" in body else body["measurements"]
        packed = [found["trace"] for found in measurements if found.get("trace")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is no result file ({type(error).__name__}: {error}); name one") from error
    found = tuple(map(spans.unpack, packed))
    chosen = tuple(
        timeline
        for timeline in found
        if workload in (None, timeline.workload) and implementation in (None, timeline.implementation)
    )
    if not chosen:
        there = ", ".join(sorted({f"{t.workload} {t.implementation}" for t in found})) or "none"
        raise ValueError(f"{path} has no such trace; it has {there}")
    return chosen


def write(timelines: Sequence[Timeline], path: Path) -> None:
    """As the part of a result file that `timelines` reads."""
    body = {"measurements": [{"trace": spans.pack(timeline)} for timeline in timelines]}
    path.write_text(json.dumps(body) + "\n", "utf-8")


def write_traces(traces: Sequence[Trace], path: Path, *, workload: str, implementation: str) -> None:
    """Every stamp, for `projection`: 1.7 MB a step of the modular pipeline."""
    body: dict[str, Any] = {
        "workload": workload,
        "implementation": implementation,
        "slots": [tuple(slot) for slot in traces[0].slots],
        "stamps": [trace.stamps for trace in traces],
    }
    torch.save(body, path)


def read_traces(path: Path) -> tuple[str, str, tuple[Trace, ...]]:
    """Workload, implementation, traces. ValueError for a file that `write_traces` did not make, OSError."""
    try:
        body = torch.load(path, weights_only=True)
        slots = tuple(Slot(*slot) for slot in body["slots"])
        traces = tuple(Trace(slots, stamps) for stamps in body["stamps"])
        return str(body["workload"]), str(body["implementation"]), traces
    except (
        RuntimeError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        EOFError,
        pickle.UnpicklingError,
    ) as error:
        raise ValueError(f"{path} holds no traces ({type(error).__name__}); make it with `record`") from error
