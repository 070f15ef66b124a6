"""A layer of a traced step, as an H200 stamped it in three implementations, against oracles that are slow and plain."""

from __future__ import annotations

import base64
import json
import zlib
from array import array
from collections import Counter
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from kernels import workloads
from kernels.timeline import perfetto, projection, recording, spans
from kernels.timeline.analysis import summarize
from kernels.timeline.partition import partition
from kernels.timeline.simulation import Mode
from kernels.timeline.stages import stages
from kernels.timeline.trace import Record, Slot, Trace

KEPT = json.loads((Path(__file__).parent / "h200.layer.json").read_text("utf-8"))
WORKLOAD = workloads.named(KEPT["workload"])
NAMES = ("modular-graph", "modular-pdl", "megakernel-graph")
ORDER = ("qkv", "attend", "out", "gate_up", "down")
TICK = 32


@cache
def piece(implementation: str) -> Trace:
    """Kept in ticks: begin from the layer's first, how long it waited, how long it worked; and the multiprocessor."""
    (body,) = (found for found in KEPT["pieces"] if found["implementation"] == implementation)
    numbers = array("H", zlib.decompress(base64.b64decode(body["columns"])))
    begin, wait, work, sm = torch.tensor(numbers.tolist(), dtype=torch.int64).reshape(4, -1)
    slots = tuple(Slot(stage, body["layer"], tile) for stage, programs in body["stages"] for tile in range(programs))
    moments = torch.stack([begin, begin + wait, begin + wait + work], dim=1) * body["tick"] + body["origin"]
    return Trace(slots, torch.cat([moments, sm[:, None] + 1], dim=1))


def by_stage(trace: Trace) -> Mapping[str, list[Record]]:
    found: dict[str, list[Record]] = {stage: [] for stage in ORDER}
    for record in trace.records():
        found[record.slot.stage].append(record)
    return found


def middle_end(records: list[Record]) -> int:
    """Median over multiprocessors of the last end on each; between two ticks where their number is even."""
    last: dict[int, int] = {}
    for record in records:
        last[record.sm] = max(last.get(record.sm, 0), record.done)
    ordered = sorted(last.values())
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


@pytest.mark.parametrize("name", NAMES)
def test_a_devices_moments_are_ticks_that_no_float_can_hold(name: str) -> None:
    trace = piece(name)
    assert bool(trace.written.all())
    assert int(trace.stamps[:, :3].min()) > 2**60
    assert any(int(float(moment)) != moment for moment in trace.stamps[:, 2].tolist())
    assert summarize([trace]).tick == TICK
    assert summarize([trace]).multiprocessors == 132


@pytest.mark.parametrize("name", NAMES)
def test_each_tick_of_a_real_layer_goes_to_the_front(name: str) -> None:
    trace = piece(name)
    found = stages(trace)
    assert [stage.key for stage in found] == [(stage, 7) for stage in ORDER]
    records = by_stage(trace)
    middles = {stage: middle_end(records[stage]) for stage in ORDER}
    start = min(record.wait_begin for record in trace.records())
    end = max(record.done for record in trace.records())
    expected: Counter[tuple[tuple[str, int], str]] = Counter()
    pending = 0
    half = TICK // 2  # a middle may lie between two ticks
    for moment in range(start, end, half):
        works = next((s for s in found if bool(((s.wait_end <= moment) & (moment < s.done)).any())), None)
        waits = next((s for s in found if bool(((s.begin <= moment) & (moment < s.wait_end)).any())), None)
        front = works or waits
        if front is None:
            pending += half
            continue
        key = (str(front.key[0]), 7)
        if pending:
            expected[key, "gap"] += pending
            pending = 0
        kind = "wait" if works is None else "tail" if moment >= middles[key[0]] else "busy"
        expected[key, kind] += half
    assert dict(partition(found)) == dict(expected)
    assert sum(expected.values()) == end - start == summarize([trace]).typical_step


@pytest.mark.parametrize("name", NAMES)
def test_figures_of_a_real_layer_are_those_of_its_records(name: str) -> None:
    trace = piece(name)
    records = by_stage(trace)
    before: list[Record] = []
    for figures in summarize([trace]).stages:
        mine = records[figures.stage]
        start, end = min(r.wait_begin for r in mine), max(r.done for r in mine)
        assert (figures.programs, figures.duration) == (len(mine), end - start)
        assert figures.tail == end - middle_end(mine)
        waited = sum(r.wait_end - r.wait_begin for r in mine)
        assert figures.wait_share == pytest.approx(waited / sum(r.done - r.wait_begin for r in mine))
        if before:
            assert figures.gap == start - max(r.done for r in before)
        before = mine


def test_what_the_three_ways_to_launch_are_known_by_shows_in_the_stamps() -> None:
    graph, pdl, mega = (summarize([piece(name)]) for name in NAMES)
    # Launches of a graph start about a microsecond after the last program before them has ended, and never wait.
    assert all(900 <= stage.gap <= 1400 for stage in graph.stages if stage.gap is not None)
    assert all(stage.wait_share == 0 for stage in graph.stages)
    # Dependent launches are there before that, and wait.
    assert all(stage.gap < 0 for stage in pdl.stages if stage.gap is not None)
    assert all(stage.wait_share > 0 for stage in pdl.stages)
    assert pdl.typical_step < graph.typical_step
    assert mega.parts()["gap"] == 0


@pytest.mark.parametrize("name", NAMES)
def test_the_picture_of_a_real_layer_has_a_track_a_multiprocessor_and_nothing_that_overlaps(name: str) -> None:
    trace = piece(name)
    timeline = recording.of_traces((trace,), WORKLOAD, implementation=name, overhead=1.0, device="cpu")
    assert spans.unpack(spans.pack(timeline)) == timeline
    assert sum(span.programs for span in timeline.spans) == len(trace.slots)
    made = perfetto.events([timeline])["traceEvents"]
    threads = {e["tid"]: e["args"]["name"] for e in made if e["name"] == "thread_name"}
    assert {told.split(" +")[0] for told in threads.values()} == {f"SM {number}" for number in range(132)}
    slices = [event for event in made if event["ph"] == "X"]
    assert min(event["ts"] for event in slices) == 0
    assert all(event["dur"] > 0 for event in slices)
    assert max(event["ts"] + event["dur"] for event in slices) == pytest.approx(timeline.duration / 1000)
    for thread in threads:
        mine = sorted((e["ts"], e["ts"] + e["dur"]) for e in slices if e["tid"] == thread)
        assert all(left[1] <= right[0] + 1e-6 for left, right in pairwise(mine))
    # What a multiprocessor's slices of a stage cover is from its first program's start to its last one's end.
    covered: Counter[tuple[str, str]] = Counter()
    for event in slices:
        sm = threads[event["tid"]].split(" +")[0]
        stage = event["name"].removeprefix("wait ").removesuffix(" 7")
        covered[stage, sm] += round(event["dur"] * 1000)
    for stage, records in by_stage(trace).items():
        for sm in {record.sm for record in records}:
            there = [r for r in records if r.sm == sm]
            assert covered[stage, f"SM {sm}"] == max(r.done for r in there) - min(r.wait_begin for r in there)


def test_from_a_real_layer_the_model_makes_the_whole_of_its_parts_and_tile_triggers_save_a_tick() -> None:
    """Of the way that it was traced in; of the other none, since a layer alone hides no loads behind its first wait."""
    traces: dict[Mode, Trace] = {"graph": piece("modular-graph"), "pdl": piece("modular-pdl")}
    graph, pdl = projection.predictions(traces, WORKLOAD, bandwidth=4500.0)
    assert abs(graph.errors["graph"]) < 0.01
    assert abs(pdl.errors["pdl"]) < 0.1
    assert graph.saved == pdl.saved == saved_by_hand(by_stage(piece("modular-pdl")))


def saved_by_hand(records: Mapping[str, list[Record]]) -> int:
    """384 programs project 48 heads, 8 each: 32 of queries, 8 of keys, 8 of values; 4 queries share a key."""
    projected = [record.done for record in records["qkv"]]
    ends = []
    for head, record in enumerate(records["attend"]):
        key = head // 4
        needed = [*projected[32 * key : 32 * key + 32], *projected[256 + 8 * key : 264 + 8 * key]]
        own = max(*needed, *projected[320 + 8 * key : 328 + 8 * key])
        ends.append(record.done - min(max(projected) - own, record.wait_end - record.wait_begin))
    return max(record.done for record in records["attend"]) - max(ends)
