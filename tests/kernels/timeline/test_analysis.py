"""Figures of traces that were made by hand, and the partition's promise on traces that nobody would make by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import workloads
from kernels.timeline.analysis import summarize
from kernels.timeline.partition import partition
from kernels.timeline.stages import multiprocessors, stages, tick, union
from kernels.timeline.trace import Slot, Trace, TraceBuffer
from kernels.timeline.traffic import LAYER_STAGES, stage_bytes
from tests.kernels.timeline.synthetic import Row, trace_of

GRAPH = [
    # Two stages on two multiprocessors, the second after a gap of 50; nothing waits.
    ("first", None, 0, 0, 1000, 1000, 1100),
    ("first", None, 1, 1, 1010, 1010, 1160),
    ("second", None, 0, 0, 1210, 1210, 1300),
    ("second", None, 1, 1, 1220, 1220, 1310),
]
PDL = [
    # The second stage's programs are there while the first works, and go on 20 and 30 after its last end.
    ("first", None, 0, 0, 1000, 1000, 1100),
    ("first", None, 1, 1, 1010, 1010, 1160),
    ("second", None, 0, 0, 1020, 1180, 1300),
    ("second", None, 1, 1, 1030, 1190, 1310),
]


def test_a_graphs_step_is_work_tails_and_gaps() -> None:
    summary = summarize([trace_of(GRAPH)])
    first, second = summary.stages
    assert (summary.step, summary.typical_step, summary.multiprocessors, summary.tick) == (310, 310, 2, 10)
    assert dict(first.parts) == {"busy": 130, "tail": 30}
    assert dict(second.parts) == {"busy": 95, "tail": 5, "gap": 50}
    assert (first.gap, first.barrier, second.gap, second.barrier) == (None, None, 50, 55)
    assert (first.tail, second.tail) == (30, 5)
    assert summary.occupancy == pytest.approx((100 + 150 + 90 + 90) / (2 * 310))


def test_overlap_is_a_negative_gap_and_handing_over_a_wait() -> None:
    first, second = summarize([trace_of(PDL)]).stages
    assert (second.gap, second.barrier) == (-140, 25)
    assert dict(first.parts) == {"busy": 130, "tail": 30}
    assert dict(second.parts) == {"busy": 125, "tail": 5, "wait": 20}
    assert second.wait_share == pytest.approx(320 / 560)


def test_layers_are_summed_in_the_parts_and_typical_in_the_figures() -> None:
    layers = [
        (stage, n, tile, sm, *(t + 400 * n for t in times)) for n in range(3) for stage, _, tile, sm, *times in PDL
    ]
    summary = summarize([trace_of(layers)], stage_bytes={"first": 1000})
    first, second = summary.stages
    assert (first.layers, first.programs, second.layers) == (3, 2, 3)
    assert (second.gap, first.gap) == (-140, 90)
    assert dict(second.parts) == {"busy": 375, "tail": 15, "wait": 60}
    assert dict(first.parts) == {"busy": 390, "tail": 90, "gap": 180}
    assert first.bytes_per_second == pytest.approx(3000 / 660e-9)
    assert second.bytes_per_second is None


def test_a_stage_in_two_waves_has_its_tail_where_multiprocessors_run_dry_and_not_in_its_middle() -> None:
    rows = [
        ("head", None, 2 * wave + sm, sm, 1000 + 100 * wave, 1000 + 100 * wave, 1100 + 100 * wave)
        for wave in range(9)
        for sm in range(2)
    ]
    (head,) = stages(trace_of(rows))
    assert head.last_end - head.middle_end == 0
    assert head.middle_release == 1000


def test_figures_are_medians_over_steps_and_the_parts_those_of_the_middle_one() -> None:
    steps = [[(*row[:4], *(t if t < 1200 else t + late for t in row[4:])) for row in GRAPH] for late in (1000, 0, 7)]
    summary = summarize([trace_of(step) for step in steps])
    assert (summary.steps, summary.step, summary.typical_step) == (3, 317, 317)
    assert summary.stages[1].gap == 57
    assert sum(summary.parts().values()) == 317


def test_the_order_of_stages_is_that_of_their_ends_and_not_of_the_slots() -> None:
    assert [stage.key[0] for stage in stages(trace_of(reversed(PDL)))] == ["first", "second"]


def test_slots_that_were_not_written_are_no_records() -> None:
    buffer = TraceBuffer((Slot("a", 0, 0), Slot("a", 0, 1), Slot("b", None, 0)), device="cpu")
    assert buffer.records() == ()
    buffer.tensor[1] = torch.tensor([5, 6, 7, 1])
    (record,) = buffer.records()
    assert (record.slot, record.wait_begin, record.wait_end, record.done, record.sm) == (Slot("a", 0, 1), 5, 6, 7, 0)
    kept = buffer.read()
    buffer.clear()
    assert (buffer.records(), len(kept.records())) == ((), 1)
    assert [stage.key for stage in stages(kept)] == [("a", 0)]


@pytest.mark.parametrize("times", [(0, 5, 6), (5, 4, 6), (5, 6, 5)])
def test_stamps_that_cannot_be_are_refused(times: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"wait_begin <= wait_end <= done"):
        stages(trace_of([("a", None, 0, 0, *times)]))


def test_empty_and_unequal_traces_are_refused() -> None:
    with pytest.raises(ValueError, match="without a written record"):
        summarize([Trace((Slot("a", 0, 0),), torch.zeros(1, 4, dtype=torch.int64))])
    with pytest.raises(ValueError, match="without a written record"):
        summarize([])
    with pytest.raises(ValueError, match=r"second.*in some of the traced steps"):
        summarize([trace_of(GRAPH), trace_of(GRAPH[:2])])
    with pytest.raises(ValueError, match=r"make them int64 \(2, 4\)"):
        Trace((Slot("a", 0, 0), Slot("a", 0, 1)), torch.zeros(1, 4, dtype=torch.int64))


def test_one_program_of_no_duration_is_a_step_of_no_duration() -> None:
    summary = summarize([trace_of([("pick", None, 0, 3, 9, 9, 9)])])
    assert (summary.step, summary.tick, summary.occupancy, dict(summary.parts())) == (
        0,
        0,
        0.0,
        {"busy": 0, "tail": 0, "wait": 0, "gap": 0},
    )


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Any records that the format allows, few distinct moments so that many coincide."""
    moments = st.integers(1, 40)
    count = draw(st.integers(1, 12))
    rows: list[Row] = []
    for tile in range(count):
        begin, end, done = sorted(draw(st.tuples(moments, moments, moments)))
        rows.append(
            (
                draw(st.sampled_from("abc")),
                draw(st.none() | st.integers(0, 1)),
                tile,
                draw(st.integers(0, 3)),
                begin,
                end,
                done,
            )
        )
    return trace_of(rows)


@settings(max_examples=300, deadline=None)
@given(traces())
def test_the_parts_add_up_to_the_step_to_the_nanosecond(trace: Trace) -> None:
    found = stages(trace)
    parts = partition(found)
    assert sum(parts.values()) == max(s.last_end for s in found) - min(s.first_start for s in found)
    assert all(value > 0 for value in parts.values())
    summary = summarize([trace])
    assert sum(summary.parts().values()) == summary.typical_step == sum(stage.share for stage in summary.stages)


@settings(max_examples=100, deadline=None)
@given(traces())
def test_figures_are_the_same_on_a_clock_that_counts_from_1970(trace: Trace) -> None:
    late = trace.stamps.clone()
    late[:, :3] += 1_796_142_000_000_000_001
    assert summarize([Trace(trace.slots, late)]) == summarize([trace])


@settings(max_examples=200, deadline=None)
@given(traces())
def test_each_nanosecond_goes_to_the_front_as_a_slow_oracle_finds_it(trace: Trace) -> None:
    found = stages(trace)
    expected: dict[object, int] = {}
    open_gap = 0
    for moment in range(min(s.first_start for s in found), max(s.last_end for s in found)):
        works = [i for i, s in enumerate(found) if bool(((s.wait_end <= moment) & (moment < s.done)).any())]
        waits = [i for i, s in enumerate(found) if bool(((s.begin <= moment) & (moment < s.wait_end)).any())]
        if not works and not waits:
            open_gap += 1
            continue
        if open_gap:
            gap = (found[min(works + waits)].key, "gap")
            expected[gap] = expected.get(gap, 0) + open_gap
            open_gap = 0
        front = found[min(works or waits)]
        kind = "wait" if not works else "tail" if moment >= front.middle_end else "busy"
        expected[front.key, kind] = expected.get((front.key, kind), 0) + 1
    if open_gap:
        expected[found[-1].key, "gap"] = expected.get((found[-1].key, "gap"), 0) + open_gap
    assert dict(partition(found)) == expected


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=10))
def test_a_union_holds_the_same_moments_in_disjoint_pieces(pairs: list[tuple[int, int]]) -> None:
    begin, end = (
        torch.tensor([p[0] for p in pairs], dtype=torch.int64),
        torch.tensor([p[1] for p in pairs], dtype=torch.int64),
    )
    found = [(int(b), int(e)) for b, e in zip(*union(begin, end), strict=True)]
    assert {t for b, e in found for t in range(b, e)} == {t for b, e in pairs for t in range(b, e)}
    assert all(b < e for b, e in found)
    assert all(left[1] < right[0] for left, right in pairwise(found))


def test_the_tick_is_the_smallest_step_and_processors_are_counted_once() -> None:
    trace = trace_of([("a", None, 0, 4, 64, 96, 160), ("a", None, 1, 4, 64, 160, 1024), ("a", None, 2, 9, 64, 64, 64)])
    assert (tick(trace), multiprocessors(trace)) == (32, 2)


@pytest.mark.parametrize("workload", workloads.WORKLOADS, ids=lambda workload: workload.name)
def test_the_stages_traffic_is_the_workloads(workload: workloads.Decode) -> None:
    moved = stage_bytes(workload)
    once = sum(size for stage, size in moved.items() if stage not in LAYER_STAGES)
    assert once + workload.shape.layers * sum(moved[stage] for stage in LAYER_STAGES) == workload.bytes_moved
