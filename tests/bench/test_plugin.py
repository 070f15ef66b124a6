"""The plugin in real pytest processes: beside plain pytest-benchmark, without torch, and when things go wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perfci import artifact
from perfci.bench import outcome, plugin, process_report, rules
from perfci.bench.ledger import Device, Ledger
from perfci.bench.process import Ended
from perfci.bench.process_report import ProcessReport
from perfci.model import Measurement, RunStatus, Status
from tests.build import ENVIRONMENT, H200, NODE, a_measurement

# Shorter than the service's rules: what is tested is the way of the numbers, not the numbers.
QUICK = """\
import dataclasses
from perfci.bench import controls, rules
controls.CPU_MEMORY_MOST_BYTES = 1 << 26
rules.CPU = dataclasses.replace(rules.CPU, measured=0.02, warmup=0.0, warmup_limit=0.01)
from perfci.bench.case import CheckOnly
from perfci.model import Workload
from tests.bench.steps import Honest, case
import pytest
"""
# A foreign environment, as far as this process can tell.
WITHOUT = """\
import sys
for name in ("torch", "triton", "numpy", "pynvml", "sqlalchemy", "pydantic", "jsonschema", "psutil"):
    sys.modules[name] = None
"""


_EMPTY = "ignore:Not saving anything"  # pytest-benchmark's warning when no test was timed


@dataclass(frozen=True)
class Ran:
    code: int
    output: str
    report: ProcessReport | None
    rows: Mapping[str, Any]  # of pytest-benchmark's JSON, by test


Suite = Callable[..., Ran]


@pytest.fixture
def suite(repository: Path, tmp_path: Path) -> Suite:
    """Runs `text` as a benchmark file; `files` lie beside it."""

    def run(text: str, *options: str, files: Mapping[str, str] | None = None, **variables: str) -> Ran:
        for name, content in {**(files or {}), "test_it.py": text}.items():
            (tmp_path / name).write_text(content, "utf-8")
        (tmp_path / "out").mkdir(exist_ok=True)
        paths = {"PERFCI_REPORT": str(tmp_path / "out/report.json"), "PYTHONPATH": f"{repository}:{tmp_path}"}
        command = [
            "-q",
            "-p",
            "perfci.bench.plugin",
            "-p",
            "no:cacheprovider",
            "--benchmark-json=b.json",
            "-W",
            "error",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *command, "-W", "error", "-W", _EMPTY, *options],
            env={**os.environ, **paths, **variables},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        output = done.stdout + done.stderr
        report = Path({**paths, **variables}["PERFCI_REPORT"])
        results = tmp_path / "b.json"
        found = json.loads(results.read_text()) if results.is_file() and results.stat().st_size else {"benchmarks": []}
        return Ran(
            code=done.returncode,
            output=output,
            report=process_report.read(report) if report.is_file() else None,
            rows={row["fullname"]: row for row in found["benchmarks"]},
        )

    return run


def told(ran: Ran, test: str) -> tuple[Status, str]:
    assert ran.report is not None, ran.output
    return ran.report.failures[f"test_it.py::{test}"]


def test_samples_reach_pytest_benchmark_and_the_report_unchanged(suite: Suite) -> None:
    ran = suite(
        QUICK
        + """
@pytest.mark.benchmark(group="mine", min_rounds=7)
def test_case(measure):
    measure(case(workload=Workload("matmul/small", tokens=16)))
def test_plain(benchmark):
    assert benchmark(sum, range(100)) == 4950
def test_no_benchmark():
    pass
"""
    )
    assert ran.code == 0, ran.output
    assert ran.report is not None
    (only,) = ran.report.measurements
    row = ran.rows["test_it.py::test_case"]
    assert only.timing is not None
    assert tuple(row["stats"]["data"]) == only.timing.samples
    assert row["group"] == "mine"
    assert row["options"]["timer"] == "perfci_replay"
    assert row["extra_info"]["perfci"] == ran.report.harness
    assert row["extra_info"]["workload"] == only.workload.name == "matmul/small"
    assert row["extra_info"]["implementation"] == only.implementation == "torch"
    assert row["extra_info"]["clock"] == "perf_counter"
    assert row["extra_info"]["iterations"] == only.timing.iterations
    assert (only.status, only.verified, only.extras["cache"]) == (Status.OK, True, "unknown")
    # The plain one is pytest-benchmark's alone; an ordinary test is nobody's.
    assert "perfci" not in ran.rows["test_it.py::test_plain"]["extra_info"]
    assert ran.report.collected == ("test_it.py::test_case", "test_it.py::test_plain")
    assert ran.report.rows == {"test_it.py::test_case": ("matmul/small", "torch")}
    assert ran.report.failures == {}
    assert {control.name for control in ran.report.controls} >= {"read_bandwidth_memory", "matmul_rate"}
    assert ran.report.telemetry.load_average is not None


def test_a_foreign_suite_needs_nothing_but_pytest_and_pytest_benchmark(suite: Suite) -> None:
    ran = suite(
        """
def test_plain(benchmark):
    assert benchmark(sum, range(100)) == 4950
def test_wrong(benchmark):
    assert benchmark(sum, range(100)) == 1
def test_raises(benchmark):
    benchmark(sum, 5)
""",
        files={"sitecustomize.py": WITHOUT},
        PERFCI_SEED="1",
    )
    assert ran.code == 1, ran.output
    assert ran.report is not None
    assert ran.report.harness == rules.harness()
    assert ran.report.hardware.name
    assert ran.report.measurements == ran.report.controls == ()
    assert ran.report.failures == {
        "test_it.py::test_wrong": (Status.INCORRECT, "AssertionError: assert 4950 == 1"),
        "test_it.py::test_raises": (Status.ERROR, "TypeError: 'int' object is not iterable"),
    }


def test_every_way_to_fail_has_its_status_and_reason(suite: Suite) -> None:
    # The marks below are the measured suite's: what the plugin makes of them is what is tested.
    ran = suite(
        QUICK
        + """
@pytest.fixture
def no_device():
    raise OSError("no device 7")
@pytest.fixture
def leaks():
    yield
    raise RuntimeError("buffers still in use")
def test_setup(no_device, benchmark):
    pass
def test_teardown(leaks, measure):
    measure(case(workload=Workload("matmul/teardown")))
@pytest.mark.skip(reason="needs Hopper")
def test_skip(benchmark):
    pass
def test_skip_inside(measure):
    measure(case(unsupported="no CUDA graph on a CPU"))
@pytest.mark.xfail(reason="known to be wrong")
def test_xfail(benchmark):
    assert benchmark(sum, [1]) == 2
@pytest.mark.xfail(strict=True)
def test_strict_xpass(benchmark):
    benchmark(sum, [1])
def test_check_only(measure):
    check = CheckOnly(lambda: {"registers": 128, "spills": float("nan"), "target": "sm_90\\n", "ok": True}, "no GPU")
    measure(case(workload=Workload("matmul/check"), check_only=check))
def test_fail(benchmark):
    pytest.fail("by hand")
"""
    )
    assert ran.code == 1, ran.output
    assert told(ran, "test_setup") == (Status.ERROR, "OSError: no device 7")
    assert told(ran, "test_teardown") == (Status.ERROR, "RuntimeError: buffers still in use")
    assert told(ran, "test_skip") == (Status.UNSUPPORTED, "needs Hopper")
    assert told(ran, "test_skip_inside") == (Status.UNSUPPORTED, "no CUDA graph on a CPU")
    assert told(ran, "test_xfail") == (Status.UNSUPPORTED, "expected to fail: known to be wrong")
    assert told(ran, "test_strict_xpass")[0] is Status.ERROR
    assert told(ran, "test_fail") == (Status.ERROR, "Failed: by hand")
    assert ran.report is not None
    by_name = {m.workload.name: m for m in ran.report.measurements}
    assert by_name["matmul/teardown"].status is Status.ERROR
    assert by_name["matmul/teardown"].timing is None
    assert by_name["matmul/Honest"].status is Status.UNSUPPORTED
    checked = by_name["matmul/check"]
    assert (checked.status, checked.verified, checked.reason) == (Status.CHECKED, True, "no GPU")
    assert checked.extras == {"registers": 128, "spills": "nan", "target": "sm_90 ", "ok": True}
    assert "test_it.py::test_check_only" not in ran.rows


def test_a_file_that_cannot_be_collected_is_told_with_its_reason(suite: Suite) -> None:
    ran = suite(
        "import no_such_module_here\n",
        files={
            "test_other.py": "def test_plain(benchmark):\n    benchmark(sum, [1])\n",
            "test_skipped.py": "import pytest\npytest.importorskip('no_such_module_either')\n",
        },
    )
    assert ran.code == 2, ran.output
    assert ran.report is not None
    assert ran.report.failures["test_it.py"] == (
        Status.ERROR,
        "it could not be collected: ModuleNotFoundError: No module named 'no_such_module_here'",
    )
    status, reason = ran.report.failures["test_skipped.py"]
    assert (status, "could not import 'no_such_module_either'" in reason) == (Status.UNSUPPORTED, True)


def test_a_session_that_is_interrupted_reports_what_it_had(suite: Suite) -> None:
    ran = suite(
        QUICK
        + """
def test_first(measure):
    measure(case(workload=Workload("matmul/first")))
def test_second(measure):
    raise KeyboardInterrupt
def test_third(measure):
    measure(case(workload=Workload("matmul/third")))
""",
        "-W",
        "default",  # pytest-benchmark warns about the second one
    )
    assert ran.code == 2, ran.output
    assert ran.report is not None
    assert [m.workload.name for m in ran.report.measurements] == ["matmul/first"]
    assert len(ran.report.collected) == 3


@pytest.mark.parametrize(
    ("option", "status"), [("--benchmark-disable", Status.CHECKED), ("--benchmark-skip", Status.UNSUPPORTED)]
)
def test_switched_off_timing_is_no_time(suite: Suite, option: str, status: Status) -> None:
    ran = suite(
        QUICK + "def test_case(measure):\n    measure(case())\ndef test_plain(benchmark):\n    benchmark(sum, [1])\n",
        option,
        PERFCI_SEED="17",
    )
    assert ran.code == 0, ran.output
    assert ran.report is not None
    found = {m.status for m in ran.report.measurements} or {told(ran, "test_case")[0]}
    assert found == {status}
    assert ran.rows == {}
    if status is Status.CHECKED:
        assert ran.report.measurements[0].reason == "timing was switched off (--benchmark-disable)"
        assert ran.report.measurements[0].extras["seed"] == 17


def test_benchmark_only_takes_cases_as_benchmarks(suite: Suite) -> None:
    text = QUICK + "def test_case(measure):\n    measure(case())\ndef test_other():\n    pass\n"
    ran = suite(text, "--benchmark-only")
    assert ran.code == 0, ran.output
    assert list(ran.rows) == ["test_it.py::test_case"]


def test_without_a_seed_every_process_draws_other_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERFCI_SEED", raising=False)
    assert len({plugin._seed() for _ in range(20)}) > 15


BROKEN_OFF = """
import os, signal, pytest
from perfci.bench.case import Case, CheckOnly
from perfci.model import Workload

@pytest.mark.parametrize("name", ["done", "taken-back", "at-work", "never"])
def test_case(measure, name):
    def check():
        if name == "at-work":
            os.kill(os.getpid(), signal.SIGKILL)
        return {"registers": 40}
    workload = Workload(f"decode/{name}", tokens=3)
    measure(Case(workload=workload, implementation="mine", check_only=CheckOnly(check, "no GPU")))
    assert name != "taken-back"

def test_plain(benchmark):
    benchmark(sum, [1])
"""


@pytest.mark.parametrize(("timed_out", "status"), [(False, Status.ERROR), (True, Status.TIMEOUT)])
def test_what_a_process_found_before_it_was_killed_is_kept(
    suite: Suite, tmp_path: Path, timed_out: bool, status: Status
) -> None:
    ran = suite(BROKEN_OFF)
    assert ran.code == -signal.SIGKILL, ran.output
    assert ran.report is not None
    assert not ran.report.finished
    now = datetime.now(UTC)
    ended = Ended(137, timed_out, "", now, now)
    expect = [("decode/done", "mine"), ("decode/never", "mine")]
    found = outcome.judge(ended, tmp_path / "out/report.json", tmp_path / "b.json", expect=expect)
    assert found.status == RunStatus(status)
    assert {(m.workload.name, m.implementation): m.status for m in found.measurements} == {
        ("decode/done", "mine"): Status.CHECKED,
        ("decode/taken-back", "mine"): Status.INCORRECT,
        ("decode/at-work", "mine"): status,
        ("decode/never", "mine"): status,
        ("test_it.py::test_plain", "suite"): status,
    }
    assert found.report is not None
    assert found.report.hardware.name
    assert "killed" in found.reason if timed_out else "the process broke off" in found.reason


def test_a_reason_that_is_no_text_does_not_cost_the_report(suite: Suite) -> None:
    ran = suite("def test_wrong(benchmark):\n    raise ValueError('half of a pair: \\ud800')\n")
    assert told(ran, "test_wrong") == (Status.ERROR, "ValueError: half of a pair: ?")


XDIST = """
def pytest_addoption(parser):
    parser.addoption("--dist", default="no")
"""


def test_tests_beside_each_other_are_refused(suite: Suite) -> None:
    """The stand-in has the option that pytest-xdist sets for -n."""
    text = "def test_plain(benchmark):\n    benchmark(sum, [1])\n"
    ran = suite(text, "-p", "standin", "--dist=load", files={"standin.py": XDIST})
    assert (ran.code, ran.report) == (4, None)
    assert "take -n out of the command" in ran.output


@pytest.mark.parametrize(
    ("variables", "code", "message"),
    [
        ({"PERFCI_REPORT": "nowhere/report.json"}, 4, "PERFCI_REPORT = nowhere/report.json: there is no such folder"),
        ({"PERFCI_REPORT": "out"}, 2, "PERFCI_REPORT = out: Is a directory"),
        ({"PERFCI_SEED": "lucky"}, 4, "PERFCI_SEED = 'lucky'"),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_it(
    suite: Suite, tmp_path: Path, variables: dict[str, str], code: int, message: str
) -> None:
    ran = suite("def test_nothing():\n    pass\n", **variables)
    assert ran.code == code, ran.output
    assert message in ran.output
    assert "Traceback" not in ran.output
    assert not list(tmp_path.rglob(".writing-*"))


def test_without_perfci_a_suite_runs_as_an_ordinary_test(suite: Suite) -> None:
    ran = suite(QUICK + "def test_case(measure):\n    measure(case())\n", PERFCI_REPORT="")
    assert (ran.code, ran.report) == (0, None)
    assert list(ran.rows) == ["test_it.py::test_case"]


def test_a_trace_adds_facts_to_a_good_time_and_takes_none_away(suite: Suite) -> None:
    ran = suite(
        QUICK
        + """
def facts():
    return {"trace.wait_share": 0.25, "seed": "mine", "implementation": "mine"}
def broken():
    raise KeyError("no stage attend")
def skipped():
    pytest.skip("no trace here")
def never():
    raise SystemExit("a trace of what was not timed")
@pytest.mark.parametrize("trace", [facts, broken, skipped], ids=lambda trace: trace.__name__)
def test_case(measure, trace):
    measure(case(workload=Workload(f"matmul/{trace.__name__}", tokens=16), trace=trace))
def test_wrong(measure):
    class Wrong(Honest):
        def solve(self):
            super().solve()
            self.y[0] = 0
    measure(case(Wrong, workload=Workload("matmul/wrong", tokens=16), trace=never))
""",
        PERFCI_SEED="8",
    )
    assert ran.code == 1, ran.output
    assert told(ran, "test_wrong")[0] is Status.INCORRECT
    assert ran.report is not None
    found = {m.workload.name.removeprefix("matmul/"): m for m in ran.report.measurements}
    for name in ("facts", "broken", "skipped"):
        assert (found[name].status, found[name].reason, found[name].extras["seed"]) == (Status.OK, "", 8), name
        assert found[name].timing is not None
    assert found["facts"].extras["trace.wait_share"] == 0.25
    assert found["broken"].extras["trace_failed"] == "KeyError: 'no stage attend'"
    assert found["skipped"].extras["trace_failed"] == "Skipped: no trace here"
    assert "trace_failed" not in found["facts"].extras
    assert found["wrong"].timing is None


def test_a_packed_trace_is_kept_whole_beside_the_extras_or_cut_like_any_text_where_it_is_none(suite: Suite) -> None:
    ran = suite(
        QUICK
        + """
def packed():
    return {"trace": "QUJD" * 30_000, "trace.step_s": 1e-3}
def plain():
    return {"trace": "not base64! " * 100}
def large():
    return {"trace": "QUJD" * 40_000}
@pytest.mark.parametrize("trace", [packed, plain, large], ids=lambda trace: trace.__name__)
def test_case(measure, trace):
    measure(case(workload=Workload(f"matmul/{trace.__name__}", tokens=16), trace=trace))
"""
    )
    assert ran.code == 0, ran.output
    assert ran.report is not None
    found = {m.workload.name.removeprefix("matmul/"): m for m in ran.report.measurements}
    assert (found["packed"].trace, found["packed"].extras["trace.step_s"]) == ("QUJD" * 30_000, 1e-3)
    assert "trace" not in found["packed"].extras
    assert (found["plain"].trace, len(str(found["plain"].extras["trace"]))) == ("", 500)
    assert (found["large"].trace, len(str(found["large"].extras["trace"]))) == ("", 500)


@pytest.mark.parametrize("trace", ["not base64!", "A" * 131_073, 5, None, ["QUJD"]])
def test_a_report_that_was_tampered_with_loses_its_trace_and_keeps_its_numbers(tmp_path: Path, trace: object) -> None:
    device = Device(hardware=H200, node=NODE, environment=ENVIRONMENT, harness="perfci/test")
    path = tmp_path / "report.json"

    def kept(given: object) -> Measurement:
        row = {**json.loads(json.dumps(artifact.plain(a_measurement()))), "trace": given}
        path.write_text(json.dumps({**Ledger(finished=True).plain(device), "measurements": [row]}))
        return process_report.read(path).measurements[0]

    assert (kept(trace).trace, kept(trace).status) == ("", Status.OK)
    assert kept("QUJD").trace == "QUJD"


def test_without_a_time_there_is_no_trace(suite: Suite) -> None:
    ran = suite(
        QUICK
        + """
def never():
    raise SystemExit("a trace of what was not timed")
def test_case(measure):
    measure(case(workload=Workload("matmul/small", tokens=16), trace=never))
""",
        "--benchmark-disable",
    )
    assert ran.code == 0, ran.output
    assert ran.report is not None
    assert [m.status for m in ran.report.measurements] == [Status.CHECKED]
