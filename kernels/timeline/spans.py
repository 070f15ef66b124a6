"""A step as spans on tracks, whatever wrote it: what is kept, drawn and printed for every implementation.

A track is a multiprocessor (traced programs) or a stream (kernels that the profiler saw). Moments are ns from the
step's first event, so that all implementations share one axis.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.timeline.stages import stages
from kernels.timeline.trace import Trace

VERSION = 1
MAX_TEXT = 131_072
"""Characters of a packed timeline; a result file takes no more."""
_MAX_JSON = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Span:
    """What one stage did on one track; moments in ns from the step's first event, begin <= wait_end <= done.

    programs: how many ran there. begin and wait_end are those of the first, done is the last one's.
    """

    track: int
    stage: str
    layer: int | None
    programs: int
    begin: int
    wait_end: int
    done: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """tracks: their names, "SM 0", "stream 7"; Span.track is an index. figures: what analysis found, as plain JSON."""

    workload: str
    implementation: str
    tracks: tuple[str, ...]
    spans: tuple[Span, ...]
    figures: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def duration(self) -> int:
        """ns."""
        return max((span.done for span in self.spans), default=0)


def of_trace(trace: Trace, *, workload: str, implementation: str, figures: Mapping[str, Any] | None = None) -> Timeline:
    """One span for each stage of each layer on each multiprocessor that it used."""
    found = stages(trace)
    origin = min((stage.first_start for stage in found), default=0)
    processors = sorted({sm for stage in found for sm in stage.sm.tolist()})
    index = {sm: track for track, sm in enumerate(processors)}
    spans: list[Span] = []
    for stage in found:
        name, layer = stage.key
        merged: dict[int, tuple[int, int, int, int]] = {}
        columns = (stage.sm.tolist(), stage.begin.tolist(), stage.wait_end.tolist(), stage.done.tolist())
        for sm, begin, wait_end, done in zip(*columns, strict=True):
            programs, first, released, last = merged.get(sm, (0, begin, wait_end, done))
            merged[sm] = (programs + 1, min(first, begin), min(released, wait_end), max(last, done))
        spans += [
            Span(index[sm], name, layer, programs, first - origin, released - origin, last - origin)
            for sm, (programs, first, released, last) in sorted(merged.items())
        ]
    tracks = tuple(f"SM {sm}" for sm in processors)
    return Timeline(workload, implementation, tracks, tuple(spans), figures or {})


def pack(timeline: Timeline) -> str:
    """As one line of base64: JSON in columns, compressed. ValueError beyond MAX_TEXT characters."""
    runs = _runs(timeline.spans)
    unit = math.gcd(*(moment for s in timeline.spans for moment in (s.begin, s.wait_end, s.done))) or 1
    columns: dict[str, list[int]] = {name: [] for name in ("track", "programs", "begin", "wait", "work")}
    for run in runs:
        before = 0
        for span in run:
            columns["track"].append(span.track)
            columns["programs"].append(span.programs)
            columns["begin"].append(span.begin // unit - before)
            columns["wait"].append((span.wait_end - span.begin) // unit)
            columns["work"].append((span.done - span.wait_end) // unit)
            before = run[0].begin // unit
    body = {
        "version": VERSION,
        "workload": timeline.workload,
        "implementation": timeline.implementation,
        "tracks": timeline.tracks,
        "unit": unit,
        "stages": [[run[0].stage, run[0].layer, len(run)] for run in runs],
        "columns": columns,
        "figures": timeline.figures,
    }
    packed = zlib.compress(json.dumps(body, allow_nan=False, separators=(",", ":")).encode(), level=9)
    text = base64.b64encode(packed).decode()
    if len(text) > MAX_TEXT:
        raise ValueError(f"{timeline.implementation}: a timeline of {len(text)} characters; {MAX_TEXT} can be kept")
    return text


def unpack(text: str) -> Timeline:
    """What `pack` made. ValueError for anything else: a result file is read as hostile input."""
    try:
        inflating = zlib.decompressobj()
        data = inflating.decompress(base64.b64decode(text, validate=True), _MAX_JSON)
        if not inflating.eof:
            raise ValueError(f"it is truncated, or has more than {_MAX_JSON} bytes")
        return _timeline(json.loads(data))
    except (zlib.error, binascii.Error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"this is no packed timeline: {type(error).__name__}: {error}") from error


def _timeline(body: dict[str, Any]) -> Timeline:
    if body["version"] != VERSION:
        raise ValueError(f"version {body['version']!r}, this reads {VERSION}")
    unit, tracks = int(body["unit"]), tuple(map(str, body["tracks"]))
    names = ("track", "programs", "begin", "wait", "work")
    rows = list(zip(*([int(value) for value in body["columns"][name]] for name in names), strict=True))
    spans: list[Span] = []
    for stage, layer, count in body["stages"]:
        before = 0
        run = rows[len(spans) : len(spans) + count]
        if len(run) != count:
            raise ValueError(f"{count} spans of {stage!r}, and {len(rows) - len(spans)} rows are left")
        for place, (track, programs, begin, wait, work) in enumerate(run):
            if not 0 <= track < len(tracks) or wait < 0 or work < 0:
                raise ValueError(f"span {len(spans)} is on track {track} with a wait of {wait} and work of {work}")
            start = before + begin
            before = start if place == 0 else before
            moments = (start * unit, (start + wait) * unit, (start + wait + work) * unit)
            spans.append(Span(track, str(stage), None if layer is None else int(layer), programs, *moments))
    if len(spans) != len(rows):
        raise ValueError(f"{len(spans)} spans in stages, {len(rows)} rows")
    return Timeline(str(body["workload"]), str(body["implementation"]), tracks, tuple(spans), dict(body["figures"]))


def _runs(spans: Sequence[Span]) -> list[list[Span]]:
    """Consecutive spans of one stage and layer."""
    runs: list[list[Span]] = []
    for span in spans:
        if runs and (runs[-1][0].stage, runs[-1][0].layer) == (span.stage, span.layer):
            runs[-1].append(span)
        else:
            runs.append([span])
    return runs
