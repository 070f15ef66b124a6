"""Implementations that must not be believed, as a suite's benchmark file: run in a process of its own."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from perfci.bench import rules
from perfci.bench.case import Case, CheckOnly, Measure, Tensors
from perfci.model import Workload
from tests.bench.steps import ROWS, WIDTH, Honest, case, expected, fresh

torch.set_num_threads(1)  # a barrier of two threads waits long on a busy machine
# What is tested is who gets a time, not the time.
rules.CPU = dataclasses.replace(rules.CPU, measured=0.1, warmup=0.02, warmup_limit=0.05)

CHECKED_LAUNCHES = 3  # before the timing


class OneElementWrong(Honest):
    def solve(self) -> None:
        super().solve()
        self.y[3, 5] += 0.01


class Zeros(Honest):
    def solve(self) -> None:
        self.y.zero_()
        self.best.zero_()


class ReplaysTheFirstResult(Honest):
    kept: Tensor | None = None

    def solve(self) -> None:
        if self.kept is None:
            super().solve()
            self.kept = self.y.clone()
        self.y.copy_(self.kept)
        self.best.copy_(self.y[-1].argmax())


class SkipsRows(Honest):
    def solve(self) -> None:
        torch.mm(self.x[: ROWS - 1], self.w, out=self.y[: ROWS - 1])
        self.best.zero_()


class SkipsRowsWhenTimed(Honest):
    def solve(self) -> None:
        if self.launches <= CHECKED_LAUNCHES:
            super().solve()
        else:
            torch.mm(self.x[1:], self.w, out=self.y[1:])
            self.best.copy_(self.y[-1].argmax())


class LeavesStaleOutput(Honest):
    def solve(self) -> None:
        if self.launches == 1:
            super().solve()


class MovesItsOutput(Honest):
    def solve(self) -> None:
        self.y = self.x @ self.w
        self.best.copy_(self.y[-1].argmax())


class KeepsAndChangesItsInputs(Honest):
    def load(self, inputs: Tensors) -> None:
        self.x = inputs["x"]

    def solve(self) -> None:
        super().solve()
        self.x[0, 0] += 1


class ChangesItsInputs(Honest):
    """A second launch on equal inputs is legal, and must give equal outputs."""

    bitwise = False

    def solve(self) -> None:
        super().solve()
        self.x += 1


class ChangesItsWeights(Honest):
    bitwise = False

    def solve(self) -> None:
        super().solve()
        self.w[0, 0] += 1e-6


class ChangesItsWeightsWhenTimed(Honest):
    bitwise = False

    def solve(self) -> None:
        super().solve()
        if self.launches == CHECKED_LAUNCHES + 50:
            self.w[-1, -1] += 1e-7


class OtherBitsOnARepeat(Honest):
    def solve(self) -> None:
        super().solve()
        self.y[0, 0] *= 1 + 1e-6 * (self.launches % 2)


class RaisesOnItsSecondLaunch(Honest):
    def solve(self) -> None:
        super().solve()
        if self.launches == 2:
            raise RuntimeError("no such stream")


class RaisesWhenTimed(Honest):
    def solve(self) -> None:
        super().solve()
        if self.launches > CHECKED_LAUNCHES:
            raise MemoryError("out of memory\nsecond line of many\nsee the manual")


class AssertsInside(Honest):
    def solve(self) -> None:
        super().solve()
        assert self.launches < 2, "a tile count"


class WritesNaN(Honest):
    def solve(self) -> None:
        super().solve()
        self.y[2, 2] = math.nan


class ReadsItsScratch(Honest):
    def solve(self) -> None:
        if self.launches > 1 and not torch.isnan(self.hidden).any():
            super().solve()
            return
        self.y.copy_(self.hidden)


class WrongShape(Honest):
    def __init__(self, inputs: Tensors) -> None:
        super().__init__(inputs)
        self.y = torch.empty(1, ROWS, WIDTH)


class WrongKind(Honest):
    def __init__(self, inputs: Tensors) -> None:
        super().__init__(inputs)
        self.y = torch.empty(ROWS, WIDTH, dtype=torch.int32)

    def solve(self) -> None:
        self.y.copy_((self.x @ self.w).to(torch.int32))
        self.best.zero_()


class LacksAnOutput(Honest):
    @property
    def outputs(self) -> Mapping[str, Tensor]:
        return {"best": self.best}


class NamesTooMany(Honest):
    @property
    def outputs(self) -> Mapping[str, Tensor]:
        return {**super().outputs, "z": self.hidden}


class LazyTensor(Tensor):
    pass


class HandsOutALazyTensor(Honest):
    def __init__(self, inputs: Tensors) -> None:
        super().__init__(inputs)
        self.y = torch.empty(ROWS, WIDTH).as_subclass(LazyTensor)


class WorksLater(Honest):
    def solve(self) -> None:
        threading.Thread(target=self.later, name="later").start()

    def later(self) -> None:
        time.sleep(0.02)
        super().solve()


class SlowsTheClock(Honest):
    """Runs after perfci was imported, as all of a subject does."""

    def solve(self) -> None:
        super().solve()
        if time.perf_counter_ns is not SLOW_CLOCK:
            time.perf_counter_ns = SLOW_CLOCK


_real = time.perf_counter_ns
SLOW_CLOCK = lambda: _real() // 1000  # noqa: E731


class TooFast(Honest):
    pass


def same_inputs(seed: int) -> Tensors:
    return fresh(1)


def infinite(inputs: Tensors) -> Tensors:
    return {**expected(inputs), "y": torch.full((ROWS, WIDTH), math.inf)}


def all_zero(inputs: Tensors) -> Tensors:
    return {"y": torch.zeros(ROWS, WIDTH), "best": torch.zeros(1, dtype=torch.int64)}


def broken_check() -> Mapping[str, float]:
    raise AssertionError("logits differ by 0.3")


IMPOSSIBLE = Workload(name="matmul/TooFast", bytes_moved=2**40, working_set_bytes=2**40)

CASES: Sequence[tuple[str, Case]] = [
    *((step.__name__, case(step)) for step in Honest.__subclasses__() if step is not TooFast),
    ("TooFast", case(TooFast, workload=IMPOSSIBLE)),
    ("IgnoresItsSeed", case(workload=Workload("matmul/seed"), fresh_inputs=same_inputs)),
    ("InfiniteReference", case(workload=Workload("matmul/infinite"), reference=infinite)),
    ("ZeroReference", case(Zeros, workload=Workload("matmul/zero"), reference=all_zero)),
    ("ToleranceOfOne", case(Zeros, workload=Workload("matmul/tolerance"), tolerance=1.0, exact=())),
    ("NoInputs", case(workload=Workload("matmul/none"), fresh_inputs=None)),
    ("NoName", case(workload=Workload(""))),
    ("ControlCharacter", case(workload=Workload("matmul/\n"))),
    ("BrokenCheck", case(workload=Workload("matmul/check"), check_only=CheckOnly(broken_check, "interpreted"))),
]
# The clock stays replaced for the rest of the process.
ORDER = sorted(CASES, key=lambda pair: pair[0] == "SlowsTheClock")


def test_honest(measure: Measure) -> None:
    measure(case(workload=Workload("matmul/honest")))


def test_fails_after_it_was_measured(measure: Measure) -> None:
    measure(case(workload=Workload("matmul/looks-twice")))
    seen = "another token"
    assert seen == "the token", "a second look at the output"


def test_measures_two_cases(measure: Measure) -> None:
    measure(case(workload=Workload("matmul/first")))
    measure(case(workload=Workload("matmul/second")))


def test_measures_what_another_test_has_measured(measure: Measure) -> None:
    measure(case(workload=Workload("matmul/honest")))


@pytest.mark.parametrize("given", [given for _, given in ORDER], ids=[name for name, _ in ORDER])
def test_adversary(measure: Measure, given: Any) -> None:
    measure(given)
