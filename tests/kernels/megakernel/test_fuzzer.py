"""The schedule fuzzer finds what is wrong with a tape, kind by kind, and nothing wrong with a right one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from kernels.llama.megakernel.fuzzer import Verdict
from kernels.llama.megakernel.instructions import Instruction, Kind
from kernels.llama.megakernel.interpreter import Interpreter
from tests.kernels.megakernel import faults
from tests.kernels.megakernel.conftest import Bench

SEEDS = range(20)
FEW = range(5)  # where no order can hide the fault
COUNTERS = ("x", "qkv", "attended", "mid", "hidden", "best", "token")


def found(verdicts: Sequence[Verdict]) -> int:
    return sum(bool(verdict.wrong) for verdict in verdicts)


@pytest.mark.parametrize("programs", [3, 7])
def test_a_right_tape_gives_the_same_bits_in_every_order(programs: int, bench: Callable[[int], Bench]) -> None:
    right = bench(programs)
    assert [verdict.wrong for verdict in right.fuzz(right.tape, SEEDS, launches=4)] == [""] * len(SEEDS)


@pytest.mark.parametrize("programs", [3, 7])
@pytest.mark.parametrize("counter", COUNTERS)
def test_one_removed_wait_is_found(counter: str, programs: int, bench: Callable[[int], Bench]) -> None:
    """One wait of one program in one layer, another with each seed."""
    right = bench(programs)
    waits = right.waits(counter)
    verdicts = [
        right.fuzz(faults.without_wait(right.tape, random.Random(seed).choice(waits)), [seed])[0] for seed in SEEDS
    ]
    assert found(verdicts) >= 19


@pytest.mark.parametrize("programs", [1, 3])
def test_only_waits_that_others_imply_can_go_unnoticed(programs: int, bench: Callable[[int], Bench]) -> None:
    right = bench(programs)
    assert len(right.implied) <= len(right.needed) / 3
    for place in right.implied:
        assert found(right.fuzz(faults.without_wait(right.tape, place), range(3))) == 0


@pytest.mark.parametrize("counter", [counter for counter in COUNTERS if counter != "token"])
def test_a_wait_for_one_arrival_too_few_is_found(counter: str, bench: Callable[[int], Bench]) -> None:
    right = bench(3)
    waits = right.waits(counter)
    verdicts = [
        right.fuzz(faults.one_arrival_short(right.tape, random.Random(seed).choice(waits)), [seed])[0] for seed in SEEDS
    ]
    assert found(verdicts) >= 16  # unlike a removed wait, it is passed only once the program is there


@pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.name)
def test_a_signal_before_its_store_is_found(kind: Kind, bench: Callable[[int], Bench]) -> None:
    class Hasty(Interpreter):
        def finish(self, instruction: Instruction, stores: Sequence[tuple[object, object]]) -> Iterator[None]:
            if instruction.kind is not kind:
                yield from super().finish(instruction, stores)
                return
            self.signal(instruction)
            yield None
            self.store(stores)

    right = bench(3)
    assert found(right.fuzz(right.tape, SEEDS, Hasty)) >= 19


def test_counters_left_over_from_the_launch_before_are_found(bench: Callable[[int], Bench]) -> None:
    class Forgetful(Interpreter):
        def run(self) -> None:
            self.first_epoch = 1
            super().run()

    right = bench(3)
    verdicts = right.fuzz(right.tape, SEEDS, Forgetful)
    assert found(verdicts) >= 19
    assert not any(verdict.wrong.startswith("launch 0") for verdict in verdicts)


def test_counters_reset_between_launches_are_found(bench: Callable[[int], Bench]) -> None:
    class Reset(Interpreter):
        def run(self) -> None:
            self.counters.zero_()
            super().run()

    right = bench(3)
    verdicts = right.fuzz(right.tape, FEW, Reset)
    assert found(verdicts) == len(FEW)
    assert all("no program can go on" in verdict.wrong for verdict in verdicts)


@pytest.mark.parametrize("layer", [0, 1])
def test_a_skipped_layer_is_found(layer: int, bench: Callable[[int], Bench]) -> None:
    right = bench(3)
    skipped = faults.without_a_layer(right.tape, right.layout, layer)
    assert found(right.fuzz(skipped, FEW)) == len(FEW)


@pytest.mark.parametrize("off", [-1, 1])
def test_a_wrong_position_is_found(off: int, bench: Callable[[int], Bench]) -> None:
    class Elsewhere(Interpreter):
        def run(self) -> None:
            self.semantics.first_position = min(self.semantics.first_position + off, 16)
            super().run()

    right = bench(3)
    shifted = [launch for launch, inputs in enumerate(right.launches) if int(inputs["position"]) + off <= 16]
    verdicts = right.fuzz(right.tape, FEW, Elsewhere)
    assert all(verdict.wrong.startswith(f"launch {shifted[0]}") for verdict in verdicts)


@pytest.mark.parametrize("kind", [Kind.QKV, Kind.OUT, Kind.GATE_UP, Kind.DOWN, Kind.HEAD], ids=lambda kind: kind.name)
def test_a_stale_vector_is_found(kind: Kind, bench: Callable[[int], Bench]) -> None:
    right = bench(3)
    verdicts = [right.fuzz(faults.with_a_stale_vector(right.tape, kind, seed), [seed])[0] for seed in FEW]
    assert found(verdicts) == len(FEW)


@pytest.mark.parametrize("kind", [Kind.QKV, Kind.OUT, Kind.GATE_UP, Kind.HEAD], ids=lambda kind: kind.name)
def test_unwritten_rows_are_found(kind: Kind, bench: Callable[[int], Bench]) -> None:
    right = bench(3)
    verdicts = [right.fuzz(faults.without_a_tile(right.tape, kind, seed), [seed])[0] for seed in FEW]
    assert found(verdicts) == len(FEW)
