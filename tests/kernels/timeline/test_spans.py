"""Timelines there and back, as Perfetto JSON against a golden file, and what hostile text they refuse."""

from __future__ import annotations

import base64
import json
import zlib
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import workloads
from kernels.timeline import perfetto, recording, spans
from kernels.timeline.spans import Span, Timeline
from tests.kernels.timeline.synthetic import trace_of

GOLDEN = Path(__file__).parent
TINY = workloads.named("decode/llama-tiny/b1-ctx21-fp32")

# Two launches of two layers with overlap, two programs on one multiprocessor, ticks of 32 ns.
STEP = trace_of(
    [
        ("embed", None, 0, 5, 3200, 3200, 3264),
        ("qkv", 0, 0, 5, 3232, 3296, 3424),
        ("qkv", 0, 1, 7, 3232, 3328, 3456),
        ("qkv", 0, 2, 7, 3264, 3328, 3488),
        ("attend", 0, 0, 5, 3424, 3520, 3584),
        ("qkv", 1, 0, 7, 3616, 3616, 3680),
        ("head", None, 0, 5, 3648, 3712, 3840),
    ]
)


def golden() -> Timeline:
    return recording.of_traces((STEP,), TINY, implementation="modular-pdl", overhead=1.25, device="cpu")


def test_a_span_is_what_a_stage_did_on_one_multiprocessor() -> None:
    timeline = golden()
    assert timeline.tracks == ("SM 5", "SM 7")
    assert timeline.duration == 640
    assert [s for s in timeline.spans if (s.stage, s.layer) == ("qkv", 0)] == [
        Span(0, "qkv", 0, 1, 32, 96, 224),
        Span(1, "qkv", 0, 2, 32, 128, 288),
    ]


def test_todays_perfetto_json_is_the_golden_file() -> None:
    wanted = json.loads((GOLDEN / "modular.perfetto.json").read_text("utf-8"))
    assert json.loads(json.dumps(perfetto.events([golden()]))) == wanted


def test_what_an_earlier_version_packed_is_read() -> None:
    packed = (GOLDEN / "modular.timeline.txt").read_text("utf-8").strip()
    assert spans.unpack(packed) == golden()


def test_perfetto_slices_of_a_thread_never_overlap_and_lose_no_time() -> None:
    made = perfetto.events([golden(), golden()])["traceEvents"]
    slices = [event for event in made if event["ph"] == "X"]
    threads = {(event["pid"], event["tid"]) for event in slices}
    assert {pid for pid, _ in threads} == {1, 2}
    for thread in threads:
        mine = sorted((e["ts"], e["ts"] + e["dur"]) for e in slices if (e["pid"], e["tid"]) == thread)
        assert all(left[1] <= right[0] + 1e-9 for left, right in pairwise(mine))
    covered = sum(event["dur"] for event in slices) * 1000
    assert covered == pytest.approx(2 * sum(span.done - span.begin for span in golden().spans))
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in made if e["name"] == "thread_name"}
    assert set(named) == threads
    assert {name.split(" +")[0] for name in named.values()} == {"SM 5", "SM 7"}


@st.composite
def _timelines(draw: st.DrawFn) -> Timeline:
    tracks = draw(st.integers(1, 3))
    unit = draw(st.sampled_from([1, 32]))
    made = []
    for _ in range(draw(st.integers(0, 12))):
        begin, wait_end, done = sorted(draw(st.tuples(*[st.integers(0, 200)] * 3)))
        made.append(
            Span(
                draw(st.integers(0, tracks - 1)),
                draw(st.sampled_from(["qkv", "out", "é <kernel>"])),
                draw(st.none() | st.integers(0, 2)),
                draw(st.integers(1, 9)),
                begin * unit,
                wait_end * unit,
                done * unit,
            )
        )
    return Timeline("w", "i", tuple(f"SM {n}" for n in range(tracks)), tuple(made), {"steps": 3})


@settings(max_examples=200, deadline=None)
@given(_timelines())
def test_every_timeline_survives_packing(timeline: Timeline) -> None:
    assert spans.unpack(spans.pack(timeline)) == timeline


@settings(max_examples=100, deadline=None)
@given(_timelines())
def test_lanes_hold_every_span_once_and_no_two_that_overlap(timeline: Timeline) -> None:
    made = perfetto.lanes(timeline.spans)
    assert sorted(map(repr, (span for lane in made for span in lane))) == sorted(map(repr, timeline.spans))
    assert all(left.done <= right.begin for lane in made for left, right in pairwise(lane))


def test_a_timeline_that_no_result_takes_is_refused_when_it_is_packed() -> None:
    import random

    at = random.Random(1)
    many = [Span(0, "a", n, 1, at.getrandbits(40), 2**41, 2**41 + at.getrandbits(40)) for n in range(20_000)]
    with pytest.raises(ValueError, match=r"a timeline of \d+ characters; 131072 can be kept"):
        spans.pack(Timeline("w", "i", ("SM 0",), tuple(many)))


def packed(change: dict[str, object]) -> str:
    body = json.loads(zlib.decompress(base64.b64decode(spans.pack(golden()))))
    return base64.b64encode(zlib.compress(json.dumps(body | change).encode())).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not base64!",
        base64.b64encode(b"not compressed").decode(),
        base64.b64encode(zlib.compress(b"[]")).decode(),
        base64.b64encode(zlib.compress(b"{}")).decode(),
        base64.b64encode(zlib.compress(b"[" * 100_000)).decode(),
        base64.b64encode(zlib.compress(b" " * (17 * 2**20))).decode(),
        base64.b64encode(zlib.compress(b"{}" * 1000)[:-8]).decode(),
        packed({"version": 2}),
        packed({"unit": None}),
        packed({"stages": [["qkv", 0, 10**9]]}),
        packed({"stages": []}),
        packed({"tracks": []}),
        packed({"columns": {}}),
        packed({"columns": {"track": [0], "programs": [1], "begin": [0], "wait": [-1], "work": [0]}}),
        packed({"columns": {"track": [0, 0], "programs": [1], "begin": [0], "wait": [1], "work": [0]}}),
        packed({"figures": 5}),
    ],
    ids=range(17),
)
def test_text_that_is_no_timeline_is_refused_as_such(text: str) -> None:
    with pytest.raises(ValueError, match="this is no packed timeline"):
        spans.unpack(text)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 400))
def test_a_damaged_timeline_is_read_or_refused_and_nothing_else(noise: bytes, at: int) -> None:
    data = base64.b64decode(spans.pack(golden()))
    try:
        spans.unpack(base64.b64encode(data[:at] + noise + data[at + len(noise) :]).decode())
    except ValueError as error:
        assert "this is no packed timeline" in str(error)
