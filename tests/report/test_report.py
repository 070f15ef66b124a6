"""The night's table against golden files. `python -m tests.report.test_report` writes them anew: look at them then."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.changes import Verdict
from perfci.model import AbsenceReason, AlertState, ChangeKind, Direction, Origin, RunStatus, SeriesKey, Status
from perfci.report import (
    WIDTH,
    Night,
    Row,
    Section,
    alerts_text,
    exit_code,
    gain,
    night_json,
    night_table,
    percent,
    results_table,
    seconds,
)
from perfci.results import Result
from perfci.store.rows import AbsenceRow, AlertRow, RunRow
from tests.build import EPOCH, a_commit, a_sha

GOLDEN = Path(__file__).with_name("golden")
WORKLOAD = "decode/llama-1b/b1-ctx512-bf16"


def a_result(implementation: str = "torch-graph", median_s: float | None = 0.00123, **more: object) -> Result:
    made = Result(
        suite="kernels",
        commit=a_sha(7),
        workload=WORKLOAD,
        implementation=implementation,
        hardware="h200",
        node="node-a",
        origin=Origin.MEASURED,
        status=Status.OK if median_s is not None else Status.ERROR,
        verified=median_s is not None,
        median_s=median_s,
        tokens_per_second=None if median_s is None else 1 / median_s,
        ceiling_fraction=None if median_s is None else 0.00057 / median_s,
        n_runs=3,
    )
    return replace(made, **more)


def a_row(found: Result | None = None, **more: object) -> Row:
    return replace(Row(found or a_result(), spread=0.0008, gain=0.004, past=30, verdict=Verdict.BEYOND_SPREAD), **more)


def a_section(*rows: Row, failed: tuple[RunRow, ...] = (), subject: str = "Fuse the norm into the matmul") -> Section:
    return Section("kernels", a_sha(7), subject, "h200", 3, rows, failed)


def an_alert(kind: ChangeKind = ChangeKind.REGRESSION, ratio: float = 1.052) -> AlertRow:
    key = SeriesKey("kernels", WORKLOAD, "modular", "latency", "h200")
    return AlertRow(
        id=3,
        series=key,
        series_id=1,
        commit=a_commit(41, subject="Read the cache twice"),
        kind=kind,
        ratio=ratio,
        low=ratio - 0.004,
        high=ratio + 0.004,
        state=AlertState.NEW,
        assignee="",
        note="",
        created_at=EPOCH,
        updated_at=EPOCH,
    )


def a_broken_run() -> RunRow:
    log = "\n".join(f"line {i}" for i in range(30)) + "\nptxas fatal: Unresolved extern function 'foo'"
    return RunRow(
        id=1,
        artifact_sha256="0" * 64,
        suite="kernels",
        commit=a_commit(41),
        hardware="h200",
        node="node-a",
        session="night-1",
        index=0,
        origin=Origin.MEASURED,
        status=RunStatus.BUILD_FAILED,
        reason="build = 'make' ended with exit code 2",
        log_tail=log,
        started_at=EPOCH,
        finished_at=EPOCH,
    )


def failing(implementation: str, status: Status, reason: str) -> Row:
    found = a_result(implementation, None, status=status, verified=status is Status.CHECKED)
    return a_row(found, spread=None, gain=None, past=0, verdict=Verdict.TOO_FEW, reasons=(reason,))


def an_absence(reason: AbsenceReason, text: str, hardware: str = "b200") -> AbsenceRow:
    return AbsenceRow("night-1", "kernels", hardware, reason, text, EPOCH)


QUIET = an_absence(AbsenceReason.UNAFFECTED, 'no new commit since 1a2b3c4d5 "Fuse the norm"; 3 more such nights')
INTERPRETER = "Triton's interpreter on a CPU: values are right, a time would say nothing about a GPU"
NIGHTS = {
    "an-ordinary-night": Night(
        "night-1",
        (a_section(a_row(), a_row(a_result("megakernel", 0.00081), gain=-0.0003, verdict=Verdict.WITHIN_SPREAD)),),
    ),
    "a-regression": Night(
        "night-1",
        (a_section(a_row(), a_row(a_result("modular", 0.002), gain=-0.0494, alerts=(3,))),),
        (an_alert(),),
    ),
    "a-first-night-on-a-cpu": Night(
        "night-1",
        (
            a_section(
                a_row(a_result("torch-eager", 0.0123), gain=None, past=0, verdict=Verdict.TOO_FEW),
                a_row(a_result("torch-compile", 0.0101), gain=-0.012, past=3, verdict=Verdict.TOO_FEW, spread=None),
                failing("modular", Status.CHECKED, INTERPRETER),
                failing("modular-graph", Status.CHECKED, INTERPRETER),
                failing("torch-graph", Status.UNSUPPORTED, "there is no CUDA device"),
            ),
        ),
    ),
    "failures": Night(
        "night-1",
        (
            a_section(
                a_row(a_result("torch-eager", 0.0123, verified=False)),
                failing("modular", Status.INCORRECT, "logits: error 0.31 is more than 0.02\nat seed 7"),
                failing("modular-pdl", Status.TIMEOUT, "stopped after 1800 s"),
                failing("megakernel", Status.MISSING, "measured at commit 1a2b3c4d5, absent here"),
            ),
            a_section(failed=(a_broken_run(),), subject="Break the build"),
        ),
        problems=("measure kernels: DeviceError: the GPU is in use by python (4711)",),
    ),
    "a-foreign-suite-with-long-names": Night(
        "night-1",
        (
            a_section(
                a_row(
                    a_result(
                        "a-remarkably-long-implementation-name",
                        3.2e-7,
                        workload="benchmarks/layers/test_attention.py::test_attention[causal-4096-128-float16]",
                        verified=False,
                        tokens_per_second=None,
                        ceiling_fraction=None,
                    )
                )
            ),
        ),
        notes=("toy: 2 of the 3 newest commits are measured on h200 already",),
    ),
    "hardware-without-a-node": Night(
        "night-1",
        (a_section(a_row()),),
        absences=(
            an_absence(
                AbsenceReason.NO_NODE,
                "no live node serves queue 'blackwell': node-b is offline, last seen 2027-01-14 02:00 UTC; "
                '1a2b3c4d5 "Fuse the norm into the matmul" waits for it',
            ),
            an_absence(
                AbsenceReason.BUDGET,
                '1a2b3c4d5 "Fuse the norm into the matmul" (about 7 min): of 60 device minutes a night 57 were spent '
                "before it, and 3 are left beside what comes first",
                "gh200",
            ),
            replace(QUIET, hardware="rtx-5090"),
        ),
        device_seconds={"h200": 754.2, "gh200": 3420.0},
    ),
    "a-quiet-night": Night("night-1", absences=(QUIET,)),
    "nothing": Night("night-1", problems=("plan: SourceError: repository /gone does not exist; mend `repo`",)),
}


@pytest.mark.parametrize("name", NIGHTS)
def test_the_table_is_the_golden_one(name: str) -> None:
    assert night_table(NIGHTS[name]) == (GOLDEN / f"{name}.txt").read_text("utf-8")


@pytest.mark.parametrize("name", NIGHTS)
def test_the_table_fits_the_terminal_and_the_json_is_json(name: str) -> None:
    assert max(map(len, night_table(NIGHTS[name]).splitlines())) <= WIDTH
    body = night_json(NIGHTS[name])
    assert json.loads(json.dumps(body, allow_nan=False)) == body
    assert body["exit_code"] == exit_code(NIGHTS[name])


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("an-ordinary-night", 0),
        ("a-regression", 1),
        ("a-first-night-on-a-cpu", 0),
        ("failures", 1),
        ("a-foreign-suite-with-long-names", 0),
        ("hardware-without-a-node", 2),
        ("a-quiet-night", 0),
        ("nothing", 2),
    ],
)
def test_the_exit_code_tells_worse_from_unmeasured(name: str, code: int) -> None:
    assert exit_code(NIGHTS[name]) == code


@pytest.mark.parametrize("status", [Status.ERROR, Status.TIMEOUT, Status.BUILD_FAILED, Status.MISSING])
def test_what_could_not_be_measured_is_no_success(status: Status) -> None:
    assert exit_code(Night("n", (a_section(a_row(), failing("modular", status, "why")),))) == 2


@pytest.mark.parametrize(
    ("reasons", "measured", "code"),
    [
        ([AbsenceReason.UNAFFECTED], False, 0),
        ([AbsenceReason.BUDGET], False, 2),
        ([AbsenceReason.BUDGET, AbsenceReason.UNAFFECTED], False, 2),
        ([AbsenceReason.BUDGET, AbsenceReason.UNAFFECTED], True, 0),
        ([AbsenceReason.NO_NODE], True, 2),
    ],
)
def test_a_missing_node_is_a_failure_and_what_the_settings_leave_out_is_none(
    reasons: list[AbsenceReason], measured: bool, code: int
) -> None:
    sections = (a_section(a_row()),) if measured else ()
    absences = tuple(an_absence(reason, "why") for reason in reasons)
    assert exit_code(Night("n", sections, absences=absences)) == code


def test_an_improvement_and_an_open_problem_are_not_confused_with_a_regression() -> None:
    better = Night("n", (a_section(a_row()),), (an_alert(ChangeKind.IMPROVEMENT, 0.9),))
    assert exit_code(better) == 0
    assert exit_code(replace(better, problems=("no device",))) == 2


def test_an_alert_says_how_much_faster_or_slower_in_the_direction_of_its_metric() -> None:
    assert "-4.9 % (-5.3 % to -4.6 %)" in alerts_text([an_alert()])
    assert "+11.1 % (+10.6 % to +11.6 %)" in alerts_text([an_alert(ChangeKind.IMPROVEMENT, 0.9)])
    assert "-10.0 % (-10.4 % to -9.6 %)" in alerts_text([an_alert(ChangeKind.REGRESSION, 0.9)])  # of a rate
    assert alerts_text([]) == "No alerts."
    assert alerts_text([replace(an_alert(), assignee="ada", note="a new driver\ndid it")]).endswith(
        "(ada: a new driver did it)"
    )


def test_a_long_log_is_cut_to_its_end() -> None:
    text = night_table(NIGHTS["failures"])
    assert "ptxas fatal" in text
    assert "line 29" in text
    assert "line 3\n" not in text


def test_no_results_say_what_to_do() -> None:
    assert "perfci nightly" in results_table([])


def test_results_are_grouped_and_name_their_origin() -> None:
    rows = [a_result(), a_result(origin=Origin.RECORDED, hardware="b200")]
    text = results_table(rows)
    assert "kernels on h200" in text
    assert "kernels on b200" in text
    assert "ok, recorded" in text


def test_workloads_whose_names_are_too_long_are_still_told_apart() -> None:
    names = [f"decode/llama-1b/{name}-bf16" for name in ("b1-ctx512", "b8-ctx512", "b64-ctx512", "b1-gen32+127")]
    rows = [a_result("torch-compile-autotune", workload=name, origin=Origin.RECORDED) for name in names]
    _, _, _, *lines = results_table(rows).splitlines()
    assert [line.split()[0] for line in lines] == [f"…/{name.rpartition('/')[2]}" for name in names]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.5, "1.500 s"),
        (0.00123456, "1.235 ms"),
        (36.66e-6, "36.66 us"),
        (999.96e-6, "1.000 ms"),
        (990e-9, "990.0 ns"),
        (1.1e-6, "1.100 us"),
        (12345.0, "12,345 s"),
    ],
)
def test_times_have_four_digits_and_the_right_unit(value: float, shown: str) -> None:
    assert seconds(value) == shown


@given(st.floats(1e-9, 1e5))
def test_a_time_reads_back_as_itself(value: float) -> None:
    number, unit = seconds(value).split()
    size = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]
    assert float(number.replace(",", "")) * size == pytest.approx(value, rel=6e-4)


def test_percentages_have_no_negative_zero() -> None:
    assert percent(-0.0001, sign=True) == "0.0 %"
    assert percent(0.0001, sign=True) == "0.0 %"
    assert percent(0.012, sign=True) == "+1.2 %"


@given(st.floats(0.1, 10))
def test_a_gain_has_the_sign_of_better(ratio: float) -> None:
    assert (gain(ratio, Direction.LOWER) > 0) == (ratio < 1)
    assert (gain(ratio, Direction.HIGHER) > 0) == (ratio > 1)


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, night in NIGHTS.items():
        (GOLDEN / f"{name}.txt").write_text(night_table(night), "utf-8")
