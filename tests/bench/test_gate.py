"""Each adversary of subjects/adversaries.py in one real process, judged by what perfci reads afterwards."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perfci.artifact import measurement_of
from perfci.bench import gate, rules
from perfci.bench.faults import IncorrectOutput
from perfci.model import Control, Measurement, Status, Workload
from tests.bench.steps import Honest, case

SUBJECT = Path(__file__).parent / "subjects/adversaries.py"

INCORRECT = {
    "OneElementWrong": "y is ",
    "Zeros": "y is off by 1 of its norm",
    "ReplaysTheFirstResult": "when timed, ",
    "SkipsRows": "y is not finite in 64 of 1024",
    "SkipsRowsWhenTimed": "when timed, y is not finite in 64 of 1024",
    "LeavesStaleOutput": "y is not finite",
    "MovesItsOutput": "other buffers after a launch",
    "KeepsAndChangesItsInputs": "y is off",
    "ChangesItsInputs": "y is off",
    "ChangesItsWeights": "changed its constants",
    "ChangesItsWeightsWhenTimed": "changed its constants",
    "OtherBitsOnARepeat": "1 of 2 repeats differ in their bits",
    "WritesNaN": "y is not finite in 1 of 1024",
    "ReadsItsScratch": "y is not finite",
    "WrongShape": "y has shape (1, 16, 64), the reference (16, 64)",
    "WrongKind": "y is torch.int32",
    "LacksAnOutput": "no output named y; there are best",
    "HandsOutALazyTensor": "no plain tensor",
    "WorksLater": "not finite",
    "TooFast": "faster than possible",
    "BrokenCheck": "logits differ by 0.3",
}
ERROR = {
    "RaisesOnItsSecondLaunch": "RuntimeError: no such stream",
    "RaisesWhenTimed": "MemoryError: out of memory … see the manual",
    "AssertsInside": "AssertionError: a tile count",
    "NamesTooMany": "no reference for output z",
    "SlowsTheClock": "time.perf_counter_ns was replaced",
    "IgnoresItsSeed": "fresh_inputs ignores its seed",
    "InfiniteReference": "the reference of y is not finite",
    "ZeroReference": "zero everywhere",
    "ToleranceOfOne": "tolerance 1",
    "NoInputs": "gives no inputs",
    "NoName": "workload.name = ''",
    "ControlCharacter": "workload.name = 'matmul/\\n'",
}


Report = Mapping[str, Any]


@pytest.fixture(scope="module")
def report(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("adversaries")
    shutil.copy(SUBJECT, folder / "test_adversaries.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "perfci.bench.plugin", "-p", "no:cacheprovider", str(folder)],
        env={**os.environ, "PYTHONPATH": str(repository), "PERFCI_REPORT": str(folder / "r.json"), "PERFCI_SEED": "5"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    loaded: Report = json.loads((folder / "r.json").read_text("utf-8"))
    return loaded


def failure(report: Report, test: str) -> tuple[str, str]:
    told = report["failures"][f"test_adversaries.py::{test}"]
    return told["status"], told["reason"]


def measured(report: Report, test: str) -> Measurement:
    workload, implementation = report["rows"][f"test_adversaries.py::{test}"]
    found = [measurement_of(m) for m in report["measurements"] if m["workload"]["name"] == workload]
    (only,) = [m for m in found if m.implementation == implementation]
    return only


@pytest.mark.parametrize("name", INCORRECT)
def test_a_wrong_output_is_incorrect_and_has_no_speed(report: Report, name: str) -> None:
    status, reason = failure(report, f"test_adversary[{name}]")
    assert (status, INCORRECT[name] in reason) == ("incorrect", True), reason
    found = measured(report, f"test_adversary[{name}]")
    assert (found.status, found.timing, found.verified, found.reason) == (Status.INCORRECT, None, False, reason)


@pytest.mark.parametrize("name", ERROR)
def test_what_cannot_be_judged_is_an_error_with_its_reason(report: Report, name: str) -> None:
    status, reason = failure(report, f"test_adversary[{name}]")
    assert (status, ERROR[name] in reason) == ("error", True), reason


def test_no_adversary_is_left_out_and_none_is_ok(report: Report) -> None:
    tests = {node.split("::")[1] for node in report["collected"]}
    adversaries = {test[len("test_adversary[") : -1] for test in tests if test.startswith("test_adversary[")}
    assert adversaries == INCORRECT.keys() | ERROR.keys()
    fine = [m["workload"]["name"] for m in report["measurements"] if m["status"] in {"ok", "checked"}]
    assert fine == ["matmul/honest"]


def test_the_honest_step_among_them_is_verified_and_timed(report: Report) -> None:
    found = measured(report, "test_honest")
    assert (found.status, found.verified, found.reason) == (Status.OK, True, "")
    assert found.timing is not None
    assert found.error is not None
    assert 0 < found.error < 1e-6


def test_the_error_of_a_wrong_output_is_kept(report: Report) -> None:
    found = measured(report, "test_adversary[OneElementWrong]")
    assert found.error is not None
    assert found.tolerance is not None
    assert found.error > found.tolerance


def test_a_test_that_fails_after_its_measurement_loses_the_speed(report: Report) -> None:
    found = measured(report, "test_fails_after_it_was_measured")
    assert (found.status, found.timing) == (Status.INCORRECT, None)
    assert found.reason == "AssertionError: a second look at the output"


def test_a_second_case_in_one_test_and_a_second_time_for_one_case_are_errors(report: Report) -> None:
    assert failure(report, "test_measures_two_cases")[0] == "error"
    assert "its second" in failure(report, "test_measures_two_cases")[1]
    assert (
        "was measured by test_adversaries.py::test_honest before"
        in failure(report, "test_measures_what_another_test_has_measured")[1]
    )


def rates(*tries: float) -> gate.Rates:
    """Reading bandwidths that are found one after the other."""
    left = list(tries)
    return gate.Rates(lambda device: (Control("read_bandwidth_cache", "B/s", left.pop(0), working_set_bytes=2**20),))


FOUR_MIB = Workload("matmul/bytes", bytes_moved=2**22, working_set_bytes=2**22)


def test_a_result_beyond_the_ceiling_has_the_control_measured_again_before_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "CPU", dataclasses.replace(rules.CPU, measured=0.1, warmup_limit=0.1))
    checked = gate.check(case(workload=FOUR_MIB), seed=1)
    with pytest.raises(IncorrectOutput, match="faster than possible"):
        gate.measure(checked, rates=rates(1.0, 2.0, 1.0))
    # Two tries were disturbed: 2 B/s; the third says that 4 MiB in a microsecond are possible.
    assert gate.measure(checked, rates=rates(1.0, 2.0, 2.0**42)).status is Status.OK


def test_inputs_differ_by_session_workload_and_phase_but_not_by_implementation() -> None:
    seeds = {gate.seed_of(s, w, p) for s in (1, 2) for w in ("a", "b") for p in ("check", "time")}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_a_step_without_a_reference_is_not_verified_but_must_write_its_outputs() -> None:
    found = gate.not_timed(gate.check(case(reference=None, exact=()), seed=1), reason="off")
    assert (found.status, found.verified, found.error, found.tolerance) == (Status.CHECKED, False, None, None)

    class Silent(Honest):
        def solve(self) -> None:
            pass

    with pytest.raises(IncorrectOutput, match="y holds NaN"):
        gate.check(case(Silent, reference=None, exact=()), seed=1)
