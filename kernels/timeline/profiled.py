"""Steps of PyTorch's kernels as timelines: what torch.profiler (kineto, CUPTI) saw of kernels that we cannot stamp.

Kernels are known by start and end alone: nothing shows what a kernel waits for, or on which multiprocessors it runs.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from kernels.timeline.spans import Span, Timeline

_ON_DEVICE = {"kernel": "stream", "gpu_memcpy": "stream", "gpu_memset": "stream"}
_ON_HOST = {"cpu_op": "thread"}
_NAME_LENGTH = 80


@dataclass(frozen=True, slots=True)
class Event:
    """One kernel on a stream, or one outermost operator on a CPU thread; moments in ns of the profiler's clock."""

    name: str
    track: str
    begin: int
    end: int


def profiled(launch: Callable[[], object], *, device: str, steps: int) -> tuple[tuple[Event, ...], ...]:
    """The events of each of `steps` launches, by start. `launch` must have been warmed up.

    ValueError where the launches did not run equally many kernels: they cannot be told apart then.
    """
    activity = ProfilerActivity.CUDA if device == "cuda" else ProfilerActivity.CPU
    with profile(activities=[activity]) as seen:
        for _ in range(steps):
            launch()
            if device == "cuda":
                torch.cuda.synchronize()  # a step of its own: the next one must not fill its gaps
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        seen.export_chrome_trace(str(path))
        events = events_of(json.loads(path.read_text("utf-8")), _ON_DEVICE if device == "cuda" else _ON_HOST)
    if not events or len(events) % steps:
        raise ValueError(f"the profiler saw {len(events)} kernels in {steps} steps; trace a step that repeats itself")
    count = len(events) // steps
    return tuple(events[start : start + count] for start in range(0, len(events), count))


def events_of(body: Mapping[str, Any], kinds: Mapping[str, str]) -> tuple[Event, ...]:
    """Events of these categories (category -> kind of track), by start; of nested ones the outermost."""
    found = [
        Event(
            name=short_name(str(event["name"])),
            track=f"{kinds[event['cat']]} {event['tid']}",
            begin=round(event["ts"] * 1000),
            end=round((event["ts"] + event["dur"]) * 1000),
        )
        for event in body["traceEvents"]
        if event.get("cat") in kinds and event.get("ph") == "X"
    ]
    found.sort(key=lambda event: (event.begin, -event.end))
    outermost: list[Event] = []
    reached: dict[str, int] = {}
    for event in found:
        if event.begin >= reached.get(event.track, event.begin):
            outermost.append(event)
            reached[event.track] = event.end
    return tuple(outermost)


def short_name(name: str) -> str:
    """A C++ kernel's name without return type, arguments and templates."""
    plain = name.removeprefix("void ")
    for _ in range(20):  # from the innermost brackets outwards
        smaller = re.sub(r"<[^<>]*>", "", plain)
        if smaller == plain:
            break
        plain = smaller
    return (plain.split("(")[0].strip() or name)[:_NAME_LENGTH]


def timeline(
    steps: Sequence[Sequence[Event]], *, workload: str, implementation: str, figures: Mapping[str, Any] | None = None
) -> Timeline:
    """Of the typical step: the one whose duration is nearest to the median."""
    step = typical(steps)
    origin = step[0].begin
    tracks = tuple(dict.fromkeys(event.track for event in step))
    spans = tuple(
        Span(tracks.index(e.track), e.name, None, 1, e.begin - origin, e.begin - origin, e.end - origin) for e in step
    )
    return Timeline(workload, implementation, tracks, spans, figures or {})


def typical(steps: Sequence[Sequence[Event]]) -> Sequence[Event]:
    middle = median(map(duration, steps))
    return min(steps, key=lambda step: abs(duration(step) - middle))


def duration(step: Sequence[Event]) -> int:
    """ns from the first start to the last end."""
    return max(event.end for event in step) - step[0].begin


def busy(step: Sequence[Event]) -> tuple[int, Mapping[str, int]]:
    """ns in which at least one kernel ran, and the same ns by kernel: of those that overlap, the one that began first.

    What is left of `duration` are gaps: kernels and gaps add up to the step exactly.
    """
    shares: Counter[str] = Counter()
    reached = step[0].begin
    for event in step:
        shares[event.name] += max(0, event.end - max(event.begin, reached))
        reached = max(reached, event.end)
    return sum(shares.values()), dict(shares.most_common())
