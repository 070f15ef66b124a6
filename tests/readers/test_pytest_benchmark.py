"""pytest-benchmark's files as old and new versions write them."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from perfci.model import Clock, Status
from perfci.readers import pytest_benchmark
from perfci.readers.pytest_benchmark import MAX_SAMPLES, read
from tests.readers.benchmark_files import a_benchmark, a_file, decoded


def test_samples_are_seconds_in_the_order_in_which_they_were_taken() -> None:
    found = decoded(a_file(a_benchmark(iterations=7)))
    assert (found.version, found.commit_sha) == ("5.3.1", "a" * 40)
    row = found.rows[0]
    assert (row.name, row.own) == ("bench.py::test_a", False)
    measurement = row.measurement
    assert (measurement.status, measurement.verified, measurement.error) == (Status.OK, False, None)
    assert (measurement.workload.name, measurement.implementation) == ("bench.py::test_a", "suite")
    assert measurement.workload.tokens == 0
    assert measurement.timing is not None
    assert measurement.timing.samples == (0.001, 0.003, 0.002)
    assert (measurement.timing.clock, measurement.timing.iterations) == (Clock.FOREIGN, 7)


def test_what_the_installed_version_writes_is_read(tmp_path: Path) -> None:
    (tmp_path / "bench_a.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('path', ['a/b', '[x]', 'é'])\n"
        "def test_a(benchmark, path):\n"
        "    if path == '[x]': benchmark.extra_info['perfci'] = 'x'\n"
        "    benchmark.pedantic(sum, args=([1.0] * 1000,), rounds=5, iterations=2)\n"
        "def test_once(benchmark): benchmark.pedantic(sum, args=([1.0] * 1000,), rounds=1)\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--benchmark-json=out.json",
        "bench_a.py",
        "-p",
        "no:cacheprovider",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    found = read(tmp_path / "out.json")
    rows = {row.name: row for row in found.rows}
    assert [name.partition("::")[2] for name in rows] == ["test_a[a/b]", "test_a[[x]]", r"test_a[\xe9]", "test_once"]
    assert rows["bench_a.py::test_a[[x]]"].own
    assert not rows["bench_a.py::test_once"].own
    timing = rows[r"bench_a.py::test_a[\xe9]"].measurement.timing
    assert timing is not None
    assert len(timing.samples) == 5
    assert timing.iterations == 2
    assert all(1e-7 < sample < 1 for sample in timing.samples)
    once = rows["bench_a.py::test_once"].measurement
    assert once.status is Status.OK
    assert "noise is unknown" in once.reason
    assert found.measured_at is not None
    assert found.measured_at.tzinfo is UTC


def test_a_file_of_version_3_without_ops_and_extra_info_is_read() -> None:
    old = a_benchmark()
    for key in ("ops", "iqr", "outliers"):
        del old["stats"][key]
    found = decoded(a_file(old, version="3.0.0", datetime="2017-03-01T12:00:00.123456"))
    assert found.rows[0].measurement.status is Status.OK
    assert found.measured_at == datetime(2017, 3, 1, 12, 0, 0, 123456, tzinfo=UTC), "old versions mean UTC"


def test_of_a_file_saved_without_samples_the_median_is_left() -> None:
    saved = a_benchmark(rounds=50)
    del saved["stats"]["data"]
    measurement = decoded(a_file(saved)).rows[0].measurement
    assert measurement.timing is not None
    assert measurement.timing.samples == (0.002,)
    assert measurement.extras["rounds"] == 50
    assert "noise is unknown" in measurement.reason


def test_one_round_means_that_the_noise_is_unknown() -> None:
    measurement = decoded(a_file(a_benchmark(rounds=1, stddev=0, data=[0.002]))).rows[0].measurement
    assert measurement.timing is not None
    assert measurement.timing.samples == (0.002,)
    assert measurement.reason == "one round: its noise is unknown"


def test_a_commit_time_may_be_absent_and_time_zones_are_the_same_moment() -> None:
    assert decoded(a_file(commit_info={"id": None, "time": None})).committed_at is None
    assert decoded(a_file(commit_info=None)).commit_sha == ""
    east = decoded(a_file(commit_info={"time": "2020-04-23T10:00:00+02:00"})).committed_at
    assert east == datetime(2020, 4, 23, 8, tzinfo=UTC)
    assert east == decoded(a_file(commit_info={"time": "2020-04-23T08:00:00Z"})).committed_at


def test_names_with_brackets_and_slashes_stay_as_they_are() -> None:
    name = "a/b/bench.py::TestX::test_y[shape/1x[2]-é-fp16]"
    assert decoded(a_file(a_benchmark(name)), ensure_ascii=False).rows[0].measurement.workload.name == name


def test_a_name_that_no_result_file_takes_is_made_to_fit() -> None:
    found = decoded(a_file(a_benchmark("x" * 900 + "1"), a_benchmark("x" * 900 + "2"), a_benchmark("a\nb\u200b")))
    names = [row.name for row in found.rows]
    assert [len(name) for name in names[:2]] == [500, 500]
    assert names[0] != names[1]
    assert names[2] == r"a\nb\u200b"


def test_many_benchmarks_share_the_samples_that_a_result_file_takes() -> None:
    benchmarks = [a_benchmark(str(n), data=[1.0] * 300, rounds=300) for n in range(2000)]
    kept = [row.measurement.timing for row in decoded(a_file(*benchmarks)).rows]
    assert {len(timing.samples) for timing in kept if timing} == {pytest_benchmark.MAX_SAMPLES_OF_A_FILE // 2000}


def test_many_samples_are_thinned_evenly_and_in_order() -> None:
    data = [1 + n / 100_000 for n in range(100_000)]
    measurement = decoded(a_file(a_benchmark(data=data, rounds=100_000))).rows[0].measurement
    assert measurement.timing is not None
    kept = measurement.timing.samples
    assert len(kept) == MAX_SAMPLES
    assert kept == tuple(data[::50])
    assert measurement.extras == {"rounds": 100_000, "samples_kept": MAX_SAMPLES}


@given(n=st.integers(1, 7000))
def test_thinning_keeps_order_and_never_takes_a_sample_twice(n: int) -> None:
    row = decoded(a_file(a_benchmark(data=[1 + i / 8192 for i in range(n)]))).rows[0]
    assert row.measurement.timing is not None
    kept = row.measurement.timing.samples
    assert len(kept) == min(n, MAX_SAMPLES)
    assert list(kept) == sorted(set(kept))
    assert kept[0] == 1
