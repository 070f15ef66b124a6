"""The model of a device on steps whose duration can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import workloads
from kernels.timeline.dependencies import producers
from kernels.timeline.simulation import MODES, Launch, Machine, Producers, simulate

ONE = Machine(multiprocessors=1, bandwidth=10.0, gap=5.0, release=3.0, trigger=0.0)
FOUR = replace(ONE, multiprocessors=4)


@pytest.mark.parametrize("mode", MODES)
def test_one_program_alone_takes_its_latencies_and_its_transfers(mode: str) -> None:
    launch = Launch("a", 1, 1, lead=7, early_bytes=100, late_bytes=50, follow=2)
    assert simulate([launch], ONE, mode).duration == pytest.approx(7 + 10 + 5 + 2)  # type: ignore[arg-type]


def test_programs_of_a_launch_share_the_memory_and_not_the_latencies() -> None:
    together = Launch("a", 4, 1, lead=7, early_bytes=100, follow=2)
    assert simulate([together], FOUR, "graph").duration == pytest.approx(7 + 40 + 2)
    assert simulate([replace(together, residents=4)], ONE, "graph").duration == pytest.approx(7 + 40 + 2)
    assert simulate([together], ONE, "graph").duration == pytest.approx(4 * (7 + 10 + 2))


def test_a_transfer_that_starts_later_shares_only_what_is_left() -> None:
    # 100 bytes alone for 4 ns (40 got), then both at 5 bytes a ns: 60 left take 12 ns, and 20 late ones come after.
    first = Launch("a", 1, 2, early_bytes=100)
    second = Launch("b", 1, 2, lead=4, early_bytes=40)
    outcome = simulate([first, second], replace(ONE, release=0.0), "pdl")
    assert outcome.ended[0] == pytest.approx(4 + 8 + (100 - 40 - 40) / 10)
    assert outcome.ended[1] == pytest.approx(outcome.ended[0])


def test_a_graph_pays_gap_and_lead_each_time_and_a_dependent_launch_hides_them() -> None:
    a = Launch("a", 1, 2, lead=7, follow=13)
    b = Launch("b", 1, 2, lead=7, early_bytes=60, late_bytes=20, follow=4)
    assert simulate([a, b], ONE, "graph").duration == pytest.approx(20 + 5 + 7 + 6 + 2 + 4)
    outcome = simulate([a, b], ONE, "pdl")
    assert outcome.duration == pytest.approx(20 + 3 + 2 + 4)  # b's lead and early bytes are over at 13
    assert outcome.released == (0.0, pytest.approx(23))


def test_without_room_beside_it_a_dependent_launch_hides_nothing() -> None:
    a = Launch("a", 1, 1, lead=7, follow=13)
    b = Launch("b", 1, 1, lead=7, early_bytes=60, follow=4)
    assert simulate([a, b], ONE, "pdl").duration == pytest.approx(20 + 7 + 6 + 4)
    assert simulate([a, b], FOUR, "pdl").duration == pytest.approx(20 + 3 + 4)


def test_a_launch_is_admitted_when_all_of_the_one_before_have_started_and_a_trigger_later() -> None:
    a = Launch("a", 2, 1, lead=10)
    b = Launch("b", 1, 2, lead=10)
    outcome = simulate([a, b], replace(FOUR, release=0.0, trigger=4.0), "pdl")
    assert outcome.ended == (pytest.approx(10), pytest.approx(14))
    outcome = simulate([a, b], replace(ONE, release=0.0, trigger=4.0), "pdl")  # a's second program starts at 10
    assert outcome.ended == (pytest.approx(20), pytest.approx(30))  # b waits for room, not for the trigger at 14


def test_with_tile_triggers_a_program_waits_for_its_own_producer_alone() -> None:
    # a runs in two waves on two places; the first half of b needs the first wave only.
    a = Launch("a", 4, 2, lead=10)
    b = Launch("b", 4, 2, follow=6, producers=lambda program: (range(program, program + 1),))
    machine = replace(FOUR, multiprocessors=1, release=1.0)
    assert simulate([a, b], machine, "pdl").ended == (pytest.approx(20), pytest.approx(33))
    # From 20 on: tiles 0 and 1 were released at 11, 2 and 3 at 21, when the first two are still there.
    assert simulate([a, b], machine, "tiles").ended == (pytest.approx(20), pytest.approx(32))
    wide = replace(a, programs=4, residents=8)
    slow = [wide, Launch("mid", 4, 8, follow=5, producers=b.producers), replace(b, residents=8)]
    assert simulate(slow, machine, "tiles").duration == pytest.approx(10 + 1 + 5 + 1 + 6)


def test_one_late_producer_holds_up_its_own_consumers_and_no_others() -> None:
    uneven = Launch("a", 3, 1, lead=10)  # the third runs after the first two, on one of two places
    follower = Launch("b", 2, 8, follow=1, producers=lambda program: (range(program, program + 1),))
    machine = Machine(multiprocessors=2, bandwidth=1.0, gap=0.0, release=0.0)
    assert simulate([uneven, follower], machine, "pdl").ended == (pytest.approx(20), pytest.approx(21))
    # Producer 2 is nobody's, so both consumers are done as soon as there is room: at 10 beside the late one.
    assert simulate([uneven, follower], machine, "tiles").ended == (pytest.approx(20), pytest.approx(11))


def test_a_program_that_needs_nothing_does_not_wait() -> None:
    a = Launch("a", 1, 4, lead=50)
    b = Launch("b", 1, 4, follow=5, producers=lambda program: ())
    assert simulate([a, b], ONE, "tiles").ended == (pytest.approx(50), pytest.approx(5))


def test_the_memory_bounds_every_mode_from_below() -> None:
    launches = [Launch(str(n), 6, 2, lead=1, early_bytes=90, late_bytes=10, follow=1) for n in range(5)]
    for mode in MODES:
        assert simulate(launches, FOUR, mode).duration >= 5 * 6 * 100 / 10


def _all(program: int) -> None:
    return None


def _one_of(before: int) -> Producers:
    return lambda program: (range(program % before, program % before + 1),)


@st.composite
def _steps(draw: st.DrawFn) -> tuple[list[Launch], Machine]:
    latency = st.sampled_from([0.0, 1.0, 2.5, 40.0])
    size = st.sampled_from([0.0, 8.0, 100.0])
    launches: list[Launch] = []
    for number in range(draw(st.integers(1, 5))):
        before = launches[-1].programs if launches else 0
        own = draw(st.booleans())
        launches.append(
            Launch(
                str(number),
                draw(st.integers(1, 7)),
                draw(st.integers(1, 3)),
                draw(latency),
                draw(size),
                draw(size),
                draw(latency),
                _one_of(before) if own and before else _all,
            )
        )
    machine = Machine(draw(st.integers(1, 3)), 10.0, draw(latency), draw(latency), draw(latency))
    return launches, machine


@settings(max_examples=300, deadline=None)
@given(_steps())
def test_every_step_ends_and_within_its_bounds(step: tuple[list[Launch], Machine]) -> None:
    launches, machine = step
    total = sum(launch.programs * (launch.early_bytes + launch.late_bytes) for launch in launches) / machine.bandwidth
    for mode in MODES:
        outcome = simulate(launches, machine, mode)
        fixed = sum(
            launch.programs * (launch.lead + launch.follow + machine.gap + machine.release + machine.trigger)
            for launch in launches
        )
        assert total - 1e-6 <= outcome.duration <= total + fixed + 1e-6


@settings(max_examples=200, deadline=None)
@given(_steps())
def test_a_chain_of_launches_that_need_all_is_the_same_with_tile_triggers_as_with_pdl(
    step: tuple[list[Launch], Machine],
) -> None:
    launches = [replace(launch, producers=lambda program: None) for launch in step[0]]
    assert simulate(launches, step[1], "tiles") == simulate(launches, step[1], "pdl")


@pytest.mark.parametrize("fault", [{"multiprocessors": 0}, {"bandwidth": 0.0}, {"gap": -1.0}])
def test_impossible_machines_launches_and_steps_are_refused(fault: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="needs a multiprocessor"):
        replace(ONE, **fault)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="0 programs"):
        Launch("a", 0, 1)
    with pytest.raises(ValueError, match="below 0"):
        Launch("a", 1, 1, follow=-1.0)
    with pytest.raises(ValueError, match="without launches"):
        simulate([], ONE, "pdl")
    lost = Launch("b", 1, 1, producers=lambda program: (range(7, 8),))
    with pytest.raises(ValueError, match="b waits for programs that the launch before it does not have"):
        simulate([Launch("a", 1, 1), lost], ONE, "tiles")


SHAPE = workloads.LLAMA_1B


def test_a_query_head_needs_its_group_and_nothing_else_of_the_projection() -> None:
    # 48 heads of 8 programs each: 32 query heads, then 8 of keys, then 8 of values.
    needed = producers(SHAPE, before=("qkv", 384), stage=("attend", 32), program=13)
    assert needed == (range(12 * 8, 16 * 8), range((32 + 3) * 8, 36 * 8), range((40 + 3) * 8, 44 * 8))
    split = producers(SHAPE, before=("qkv", 384), stage=("attend", 8 * 32), program=3 * 32 + 5)
    assert split == needed


def test_attention_reads_every_projection_program_exactly_as_often_as_its_group_is_large() -> None:
    reads = [0] * 384
    for program in range(32):
        for tiles in producers(SHAPE, before=("qkv", 384), stage=("attend", 32), program=program) or ():
            for tile in tiles:
                reads[tile] += 1
    assert set(reads) == {4}


def test_a_merge_needs_the_parts_of_its_group_and_products_need_all() -> None:
    assert producers(SHAPE, before=("attend", 8 * 32), stage=("merge", 32), program=31) == (range(7 * 32, 8 * 32),)
    for before, stage in (
        ("attend", "out"),
        ("out", "gate_up"),
        ("gate_up", "down"),
        ("down", "qkv"),
        ("head", "pick"),
    ):
        assert producers(SHAPE, before=(before, 9), stage=(stage, 3), program=0) is None
    assert producers(SHAPE, before=("qkv", 384), stage=("attend", 32), program=0, tiles=2) is None
    assert producers(SHAPE, before=("qkv", 100), stage=("attend", 32), program=0) is None
    with pytest.raises(ValueError, match="program 32 of attend, which has 32"):
        producers(SHAPE, before=("qkv", 384), stage=("attend", 32), program=32)
