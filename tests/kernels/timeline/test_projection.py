"""The schedule model against a device that behaves as it says, with latencies that it is not told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernels import workloads
from kernels.timeline import projection, spread
from kernels.timeline.dependencies import producers
from kernels.timeline.occupancy import Footprint
from kernels.timeline.projection import predictions, table
from kernels.timeline.simulation import Launch, Machine, Mode, Producers, simulate
from kernels.timeline.stages import stages
from kernels.timeline.trace import Trace
from kernels.timeline.traffic import stage_bytes
from tests.kernels.timeline.synthetic import trace_of, trace_of_outcome

WORKLOAD = workloads.decode_workload(
    "llama-two-layers", replace(workloads.LLAMA_1B, layers=2), context=512, number="bf16", device="test"
)
DEVICE = Machine(multiprocessors=8, bandwidth=4000.0, gap=900.0, release=500.0, trigger=100.0)
# Programs, those on one multiprocessor at once, and the latency after the wait, ns.
STAGES = {
    "embed": (1, 8, 900.0),
    "qkv": (48, 6, 1100.0),
    "attend": (32, 4, 1900.0),
    "out": (16, 4, 800.0),
    "gate_up": (32, 4, 1500.0),
    "down": (16, 2, 1000.0),
    "head": (96, 4, 1200.0),
    "pick": (1, 8, 700.0),
}
# The share of bytes before the wait: one tile of several where a program walks.
EARLY = {"embed": 0.0, "qkv": 1.0, "attend": 1.0, "out": 1.0, "gate_up": 0.25, "down": 0.25, "head": 0.5, "pick": 0.0}
FOOTPRINTS = {name: Footprint(fits, EARLY[name]) for name, (_, fits, _) in STAGES.items()}
LAYERS = [None, *[layer for layer in range(2) for _ in range(5)], None, None]


def _nothing(program: int) -> None:
    return None


def _needs(before: tuple[str, int], stage: tuple[str, int]) -> Producers:
    return lambda program: producers(WORKLOAD.shape, before=before, stage=stage, program=program)


def step(*, slower: float = 0.0) -> tuple[Launch, ...]:
    names = ["embed", *["qkv", "attend", "out", "gate_up", "down"] * 2, "head", "pick"]
    moved = stage_bytes(WORKLOAD)
    made = []
    for place, name in enumerate(names):
        programs, residents, follow = STAGES[name]
        each = moved[name] / programs
        early = each * EARLY[name]
        made.append(
            Launch(
                name,
                programs,
                residents,
                projection.LATENCY,
                early,
                each - early,
                follow + slower,
                _needs((names[place - 1], STAGES[names[place - 1]][0]), (name, programs)) if place else _nothing,
            )
        )
    return tuple(made)


def traced(mode: Mode, launches: tuple[Launch, ...] | None = None) -> Trace:
    launches = launches or step()
    return trace_of_outcome(launches, LAYERS, simulate(launches, DEVICE, mode))


def test_calibrated_on_either_trace_the_model_predicts_both_and_what_tile_triggers_would_give() -> None:
    truth = {mode: simulate(step(), DEVICE, mode).duration for mode in ("graph", "pdl", "tiles")}
    assert truth["tiles"] <= truth["pdl"] < truth["graph"]
    found = predictions(
        {"graph": traced("graph"), "pdl": traced("pdl")},
        WORKLOAD,
        bandwidth=DEVICE.bandwidth,
        multiprocessors=8,
        footprints=FOOTPRINTS,
    )
    assert [prediction.calibrated_on for prediction in found] == ["graph", "pdl"]
    for prediction in found:
        for mode in ("graph", "pdl"):
            assert abs(prediction.errors[mode]) < 0.01, (prediction.calibrated_on, mode)
            assert prediction.errors[mode] == pytest.approx(prediction.predicted[mode] / truth[mode] - 1, abs=1e-3)
        assert prediction.predicted["tiles"] == pytest.approx(truth["tiles"], rel=0.01)
        assert prediction.gain == pytest.approx(truth["tiles"] / truth["pdl"] - 1, abs=0.02)
        assert prediction.machine.gap == pytest.approx(DEVICE.gap, abs=2)
        assert prediction.machine.release == pytest.approx(DEVICE.release, abs=2)


def test_from_one_trace_alone_the_other_latencies_are_assumed_and_said_to_be() -> None:
    (graph,) = predictions({"graph": traced("graph")}, WORKLOAD, multiprocessors=8)
    assert (graph.machine.release, graph.machine.trigger) == (projection.RELEASE, 0.0)
    assert any("to release a wait" in text for text in graph.assumed)
    assert set(graph.errors) == {"graph"}
    (pdl,) = predictions({"pdl": traced("pdl")}, WORKLOAD, multiprocessors=8)
    assert pdl.machine.gap == projection.GAP
    assert any("between launches of a graph" in text for text in pdl.assumed)


def test_a_trace_of_another_device_than_the_model_shows_in_the_error() -> None:
    """The other launches are 6 us slower in one trace than in the other: no model can be right about both."""
    slow = step(slower=6000.0)
    found = predictions(
        {"graph": traced("graph"), "pdl": traced("pdl", slow)}, WORKLOAD, bandwidth=4000.0, multiprocessors=8
    )
    assert found[0].errors["pdl"] < -0.1
    assert found[1].errors["graph"] > 0.1


def test_every_projection_is_called_one_wherever_it_is_printed() -> None:
    found = predictions({"graph": traced("graph"), "pdl": traced("pdl")}, WORKLOAD, multiprocessors=8)
    told = table(found, WORKLOAD).splitlines()
    lines = [line for line in told if line.lstrip().startswith("tiles")]
    assert len(lines) == 2
    assert all("PROJECTION" in line for line in [*lines, told[-2]])
    assert "stamps alone" in told[-2]
    assert "no measurement" in told[-1]
    errors = [line for line in told if "error" in line and "traced" in line]
    assert len(errors) == 4


def test_a_release_of_its_own_for_each_kernel_is_read_from_the_pdl_trace() -> None:
    late = {"qkv": 9000.0, "gate_up": 7000.0}
    launches = tuple(replace(launch, release=late.get(launch.name)) for launch in step())
    truth = simulate(launches, DEVICE, "pdl").duration
    found = predictions(
        {"graph": traced("graph", launches), "pdl": traced("pdl", launches)},
        WORKLOAD,
        bandwidth=DEVICE.bandwidth,
        multiprocessors=8,
        footprints=FOOTPRINTS,
    )
    assert truth > 1.01 * simulate(step(), DEVICE, "pdl").duration
    for prediction in found:
        assert prediction.predicted["pdl"] == pytest.approx(truth, rel=0.01)


def test_what_own_producers_would_have_saved_is_what_the_last_program_ends_earlier() -> None:
    """48 programs of the projection, one a head, the last query head of the first group late by 300."""
    qkv = [("qkv", 0, tile, tile % 8, 1000, 1000, 2300 if tile == 3 else 2000 + tile) for tile in range(48)]
    # All wait until 2400. Only the first group's four need the late one; the others need no more than 2047.
    attend = [("attend", 0, tile, tile % 8, 1500, 2400, 2900 if tile < 4 else 3000) for tile in range(32)]
    out = [("out", 0, 0, 0, 1600, 3100, 3200)]
    assert spread.saved(stages(trace_of([*qkv, *attend, *out])), WORKLOAD, tiles={}) == 100
    # Its end bounds the step then: 2900 stays, and where it came last from the start nothing is saved.
    slow = [(*row[:-1], 3050) if row[2] == 0 else row for row in attend]
    assert spread.saved(stages(trace_of([*qkv, *slow, *out])), WORKLOAD, tiles={}) == 0
    assert spread.saved(stages(trace_of([*qkv, *attend, *out])), WORKLOAD, tiles={"qkv": 2}) == 0
    # A program that came late has not waited, so nothing can be saved.
    came_late = [(*row[:4], 2400, *row[5:]) for row in attend]
    assert spread.saved(stages(trace_of([*qkv, *came_late, *out])), WORKLOAD, tiles={}) == 0


def test_the_bandwidth_is_what_the_largest_stage_reached_unless_it_is_given() -> None:
    (found,) = predictions({"graph": traced("graph")}, WORKLOAD, multiprocessors=8)
    assert 0.9 * DEVICE.bandwidth < found.machine.bandwidth <= DEVICE.bandwidth


def test_one_multiprocessor_and_one_program_a_stage_still_give_a_prediction() -> None:
    alone = [
        (name, layer, 0, 0, 1000 * n, 1000 * n, 1000 * n + 900)
        for n, (name, layer) in enumerate(zip([launch.name for launch in step()], LAYERS, strict=True), start=1)
    ]
    (found,) = predictions({"graph": trace_of(alone)}, WORKLOAD)
    assert found.machine.multiprocessors == 1
    assert found.machine.gap == 100
    assert all(launch.residents == launch.programs == 1 for launch in found.launches)
    assert found.predicted["tiles"] == found.predicted["pdl"]


def test_what_the_model_cannot_know_is_refused_by_name() -> None:
    graph = traced("graph")
    with pytest.raises(ValueError, match="traces of nothing"):
        predictions({}, WORKLOAD)
    with pytest.raises(ValueError, match="traces of tiles"):
        predictions({"tiles": graph}, WORKLOAD)
    with pytest.raises(ValueError, match="of other launches than the first"):
        predictions({"graph": graph, "pdl": trace_of([("embed", None, 0, 0, 1, 1, 2)])}, WORKLOAD)
    for name in ("decode/llama-1b/b8-ctx512-bf16", "decode/llama-1b/b1-gen32+127-bf16"):
        with pytest.raises(ValueError, match="one step of one sequence"):
            predictions({"graph": graph}, workloads.named(name))


def test_residents_are_the_most_programs_at_one_moment_and_not_all_that_came_by() -> None:
    rows = [
        ("qkv", 0, tile, tile % 2, 100 * (tile // 4) + 1, 100 * (tile // 4) + 1, 100 * (tile // 4) + 101)
        for tile in range(12)
    ]
    assert projection.residents([stages(trace_of(rows))]) == {"qkv": 2}
