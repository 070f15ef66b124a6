"""From a traced step to its table and its picture, by the commands that a reader would type."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernels import registry
from kernels.benchmarks import tracing
from kernels.llama import inputs as fresh_inputs
from kernels.llama.weights import Weights
from kernels.timeline import __main__ as command
from kernels.timeline import figures, files, profiled, recording, spans, traced
from kernels.timeline.profiled import Event
from kernels.workloads import Decode, named
from perfci import artifact
from perfci.bench.ledger import clean_extras
from tests.build import a_measurement, a_run
from tests.kernels.timeline.synthetic import trace_of
from tests.kernels.timeline.test_analysis import GRAPH
from tests.kernels.timeline.test_spans import STEP, golden


@pytest.fixture
def eager(tiny: Decode, tiny_weights: Weights) -> spans.Timeline:
    entry = registry.entry("decode", "torch-eager")
    drawn = fresh_inputs.fresh(tiny, tiny_weights, 1)
    with torch.no_grad():
        timeline, traces = recording.recorded(entry, tiny, tiny_weights, drawn, steps=2)
    assert traces == ()
    return timeline


@pytest.mark.filterwarnings("default")  # the profiler's own
def test_a_step_of_pytorch_is_a_track_of_its_operators_that_add_up(eager: spans.Timeline, tiny: Decode) -> None:
    found = eager.figures
    names = {span.stage for span in eager.spans}
    assert {"aten::linear", "aten::rms_norm", "aten::scaled_dot_product_attention"} <= names
    assert found["busy"] + found["gap"] == found["typical_step"] == eager.duration
    assert 0 < sum(found["kernels"].values()) <= found["busy"]
    assert found["launches"] == len(eager.spans)
    assert len(eager.tracks) == 1
    assert "aten::linear" in figures.table(eager)


def test_nested_operators_count_once_and_overlapping_kernels_share_no_time() -> None:
    def one(name: str, tid: int, ts: float, dur: float, cat: str = "kernel") -> dict[str, object]:
        return {"ph": "X", "cat": cat, "name": name, "tid": tid, "ts": ts, "dur": dur}

    body = {
        "traceEvents": [
            one("void gemv<float, 3>(int, float)", 7, 1.0, 2.0),
            one("inner", 7, 1.5, 0.5),
            one("copy", 9, 2.0, 2.5, "gpu_memcpy"),
            one("python", 1, 0.0, 9.0, "python_function"),
            {"ph": "i", "cat": "kernel", "name": "mark", "tid": 7, "ts": 8.0},
            one("void gemv<float, 3>(int, float)", 7, 5.0, 1.0),
        ]
    }
    events = profiled.events_of(body, {"kernel": "stream", "gpu_memcpy": "stream"})
    assert events == (
        Event("gemv", "stream 7", 1000, 3000),
        Event("copy", "stream 9", 2000, 4500),
        Event("gemv", "stream 7", 5000, 6000),
    )
    assert profiled.busy(events) == (4500, {"gemv": 3000, "copy": 1500})
    told = figures.of_kernels([events], overhead=1.5)
    assert (told["typical_step"], told["busy"], told["gap"]) == (5000, 4500, 500)


def test_facts_of_a_trace_add_up_to_its_step_and_fit_into_a_result() -> None:
    facts = figures.facts(golden().figures)
    parts = [value for name, value in facts.items() if name.endswith(("busy_s", "tail_s", "wait_s", "gap_s"))]
    assert sum(map(float, parts)) == pytest.approx(float(facts["trace.step_s"]), rel=1e-12)
    assert facts["trace.step_s"] == pytest.approx(640e-9)
    assert (facts["trace.overhead"], facts["trace.tick_s"], facts["trace.multiprocessors"]) == (1.25, 32e-9, 2)
    assert clean_extras(facts) == facts
    assert len(facts) <= 8 + 5 * 4


def test_a_table_says_that_it_was_traced_and_what_blank_means() -> None:
    told = figures.table(golden())
    assert "1.250 times the step without a trace" in told
    assert "Blank is not idle" in told
    assert "give no latency" in told
    rows = {line.split()[0]: line.split() for line in told.splitlines() if line.startswith("  ")}
    assert rows["step"][-1] == "100.0%"
    assert sum(float(cell) for cell in rows["step"][1:5]) == pytest.approx(0.64)


def test_a_result_file_becomes_a_table_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = replace(golden(), implementation="modular-graph")
    run = a_run(
        [
            replace(a_measurement("modular-pdl"), trace=spans.pack(golden())),
            replace(a_measurement("modular-graph"), trace=spans.pack(other)),
            a_measurement("torch-eager"),
        ]
    )
    path = artifact.write(run, tmp_path)
    assert [t.implementation for t in files.timelines(path)] == ["modular-pdl", "modular-graph"]
    assert command.main(["summary", str(path), "--implementation", "modular-graph"]) == 0
    told = capsys.readouterr().out
    assert "modular-graph" in told
    assert "modular-pdl" not in told
    picture = tmp_path / "trace.json"
    assert command.main(["perfetto", str(path), "-o", str(picture)]) == 0
    assert {event["pid"] for event in json.loads(picture.read_text("utf-8"))["traceEvents"]} == {1, 2}


def test_what_is_no_result_or_has_no_trace_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = artifact.write(a_run([a_measurement()]), tmp_path)
    (tmp_path / "text").write_text("no JSON")
    for path, problem in (
        (plain, "no such trace; it has none"),
        (tmp_path / "text", "no result file"),
        (tmp_path / "no", "No such file"),
    ):
        assert command.main(["summary", str(path)]) == 2
        assert problem in capsys.readouterr().err
    shapeless = tmp_path / "shapeless.json"
    files.write([replace(golden(), figures={"source": "programs"})], shapeless)
    assert command.main(["summary", str(shapeless)]) == 2
    assert "figures of another shape" in capsys.readouterr().err


@pytest.mark.filterwarnings("default")
def test_recording_leaves_timelines_that_the_other_commands_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tiny: Decode
) -> None:
    assert command.main(["record", tiny.name, "torch-eager", "--steps", "2", "-o", str(tmp_path)]) == 0
    (timeline,) = files.timelines(tmp_path / "timelines.json")
    assert (timeline.workload, timeline.implementation) == (tiny.name, "torch-eager")
    assert "aten::linear" in capsys.readouterr().out


def test_raw_traces_survive_their_file_and_others_are_refused(tmp_path: Path) -> None:
    files.write_traces([STEP, STEP], tmp_path / "a.pt", workload="w", implementation="modular")
    workload, implementation, traces = files.read_traces(tmp_path / "a.pt")
    assert (workload, implementation, len(traces)) == ("w", "modular", 2)
    assert traces[1].slots == STEP.slots
    assert torch.equal(traces[1].stamps, STEP.stamps)
    (tmp_path / "b.pt").write_bytes(b"nothing")
    torch.save({"slots": 5}, tmp_path / "c.pt")
    for name in ("b.pt", "c.pt"):
        with pytest.raises(ValueError, match="holds no traces"):
            files.read_traces(tmp_path / name)


@pytest.mark.filterwarnings("default")
def test_the_suites_facts_carry_a_packed_timeline(tiny: Decode, tiny_weights: Weights) -> None:
    entry = registry.entry("decode", "torch-eager")
    trace = tracing.trace_of(
        entry,
        tiny,
        lambda: tiny_weights,
        lambda: fresh_inputs.fresh(tiny, tiny_weights, 1),
        environment={"PERFCI_TRACE": "1"},
    )
    assert trace is not None
    with torch.no_grad():
        facts = trace()
    assert artifact.is_trace(facts["trace"])
    assert spans.unpack(str(facts["trace"])).implementation == "torch-eager"
    assert float(facts["trace.cost_s"]) > 0
    assert facts["trace.busy_s"] + facts["trace.gap_s"] == pytest.approx(facts["trace.step_s"])  # type: ignore[operator]


def test_a_generation_and_kernels_without_stamps_are_not_traced(tiny: Decode, tiny_weights: Weights) -> None:
    generation = named("decode/llama-tiny/b1-gen5+6-fp32")
    entry = registry.entry("decode", "modular")
    assert tracing.trace_of(entry, generation, lambda: tiny_weights, dict) is None
    with pytest.raises(ValueError, match="has 6 steps; trace a workload of one"):
        recording.recorded(entry, generation, tiny_weights, {})
    with pytest.raises(ValueError, match="has 6 steps; trace a workload of one"):
        traced.prepare("modular", generation, tiny_weights, {})
    with pytest.raises(ValueError, match="torch-eager writes no stamps"):
        traced.prepare("torch-eager", tiny, tiny_weights, {})


@pytest.mark.parametrize(
    ("asked", "device", "wanted"), [("", "cuda", True), ("", "cpu", False), ("0", "cuda", False), ("1", "cpu", True)]
)
def test_tracing_is_on_where_there_is_a_gpu_unless_it_is_switched(asked: str, device: str, wanted: bool) -> None:
    assert tracing.wanted(device, {"PERFCI_TRACE": asked}) is wanted
    with pytest.raises(ValueError, match="PERFCI_TRACE = 'yes': set it to 1 or 0"):
        tracing.wanted(device, {"PERFCI_TRACE": "yes"})


def test_only_our_own_kernels_are_traced_unasked(tiny: Decode, tiny_weights: Weights) -> None:
    """A profiler's session stays in the driver, where it would be in later implementations' times."""
    entries = [entry for entry in registry.ENTRIES if entry.operation == "decode"]
    for asked, wanted in ({}, set(traced.STAMPED)), ({"PERFCI_TRACE": "1"}, {entry.name for entry in entries}):
        found = {
            entry.name
            for entry in entries
            if tracing.trace_of(entry, tiny, lambda: tiny_weights, dict, environment=asked) is not None
        }
        assert found == wanted


def test_traces_are_recorded_after_other_launches_and_from_a_cleared_buffer() -> None:
    from kernels.timeline.trace import TraceBuffer

    step = trace_of(GRAPH)
    buffer = TraceBuffer(step.slots, device="cpu")
    launches: list[int] = []

    def launch() -> None:
        launches.append(int(buffer.tensor.abs().sum()))
        buffer.tensor.copy_(step.stamps + len(launches))

    first, second = traced.record(launch, buffer, steps=2)
    assert launches[3] == launches[7] == 0
    assert torch.equal(first.stamps, step.stamps + 4)
    assert torch.equal(second.stamps, step.stamps + 8)


def test_recording_a_stamped_implementation_without_a_gpu_is_refused_at_once(
    tiny: Decode, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command.main(["record", tiny.name, "modular-pdl", "-o", str(tmp_path / "none")]) == 2
    assert "modular-pdl stamps its kernels on a GPU, and there is none here" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
