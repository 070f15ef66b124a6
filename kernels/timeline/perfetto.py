"""Timelines as Perfetto JSON: the Trace Event Format that ui.perfetto.dev and chrome://tracing open.

One process an implementation, all with 0 at their step's first event; one thread a multiprocessor or stream, and
further ones for it where spans overlap on it. A wait is a slice of its own, before the work that it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernels.timeline.spans import Span, Timeline

_NS_PER_US = 1000.0  # the format counts in microseconds


def events(timelines: Sequence[Timeline]) -> Mapping[str, Any]:
    """What to write as JSON."""
    made: list[dict[str, Any]] = []
    for process, timeline in enumerate(timelines, start=1):
        made.append(_name("process_name", process, 0, f"{timeline.implementation}  {timeline.workload}"))
        made.append(
            {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}}
        )
        thread = 0
        for track, name in enumerate(timeline.tracks):
            for number, lane in enumerate(lanes([span for span in timeline.spans if span.track == track])):
                thread += 1
                made.append(_name("thread_name", process, thread, name if not number else f"{name} +{number}"))
                for span in lane:
                    made += _slices(span, process, thread)
    caveat = "traced, so slower than timed; blank is not idle; a span is a program that is there, not one that is busy"
    return {"traceEvents": made, "displayTimeUnit": "ns", "otherData": {"caveat": caveat}}


def lanes(spans: Sequence[Span]) -> list[list[Span]]:
    """As few groups as needed so that no two spans of a group overlap, each in order."""
    made: list[list[Span]] = []
    for span in sorted(spans, key=lambda span: (span.begin, span.done)):
        free = next((lane for lane in made if lane[-1].done <= span.begin), None)
        if free is None:
            made.append([span])
        else:
            free.append(span)
    return made


def _slices(span: Span, process: int, thread: int) -> list[dict[str, Any]]:
    where = {"pid": process, "tid": thread, "ph": "X"}
    told = {"layer": span.layer, "programs": span.programs}
    name = span.stage if span.layer is None else f"{span.stage} {span.layer}"
    work = {
        **where,
        "name": name,
        "cat": span.stage,
        "ts": span.wait_end / _NS_PER_US,
        "dur": (span.done - span.wait_end) / _NS_PER_US,
        "args": told,
    }
    if span.wait_end == span.begin:
        return [work]
    wait = {
        **where,
        "name": f"wait {span.stage}",
        "cat": "wait",
        "ts": span.begin / _NS_PER_US,
        "dur": (span.wait_end - span.begin) / _NS_PER_US,
        "args": told,
    }
    return [wait, work]


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}
