"""pytest-benchmark's files: as old and new versions write them, and as nobody should."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.errors import ArtifactError
from perfci.model import Clock, Status
from perfci.readers import pytest_benchmark
from perfci.readers.pytest_benchmark import MAX_SAMPLES, Results, decode, read


def a_benchmark(name: str = "bench.py::test_a", **stats: Any) -> dict[str, Any]:
    values = {
        "min": 0.001,
        "max": 0.003,
        "mean": 0.002,
        "stddev": 0.001,
        "rounds": 3,
        "median": 0.002,
        "iqr": 0.001,
        "outliers": "1;0",
        "ops": 500.0,
        "iterations": 1,
        "data": [0.001, 0.003, 0.002],
    }
    return {"group": None, "name": name.rpartition(":")[2], "fullname": name, "stats": values | stats}


def a_file(*benchmarks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    top = {
        "machine_info": {"node": "a"},
        "commit_info": {"id": "a" * 40, "time": "2026-01-01T00:00:00+00:00", "dirty": False},
        "benchmarks": list(benchmarks),
        "datetime": "2026-01-01T00:00:00.5+00:00",
        "version": "5.3.1",
    }
    return top | fields


def decoded(body: object, **options: Any) -> Results:
    return decode(json.dumps(body, indent=1, **options).encode(), name="results.json")


def refusal(data: bytes) -> str:
    with pytest.raises(ArtifactError) as caught:
        decode(data, name="results.json")
    assert caught.value.message.startswith("results.json is no pytest-benchmark result: ")
    assert "\n" not in str(caught.value)
    return caught.value.message


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


@pytest.mark.parametrize(
    ("stats", "problem"),
    [
        ({"data": [0.001, float("nan")]}, "data[1] is nan"),
        ({"data": [float("inf")]}, "data[0] is inf"),
        ({"data": [0.001, 0.0]}, "data[1] is 0.0: the suite's timer cannot tell so short a time"),
        ({"data": [-1.0]}, "data[0] is -1.0"),
        ({"data": ["0.1"]}, "data[0] is '0.1', no number of seconds"),
        ({"data": [True]}, "data[0] is 'True', no number of seconds"),
        ({"data": [None]}, "data[0] is 'None', no number of seconds"),
        ({"data": [10**400]}, "data[0] is inf"),
        ({"data": [1e300]}, "data[0] is 1e+300"),
        ({"data": {"0": 1.0}}, "data is no list"),
        ({"data": None, "median": None}, "median is 'None', no number of seconds"),
        ({"iterations": 0}, "iterations is '0', no count"),
        ({"iterations": 1.5}, "iterations is '1.5', no count"),
        ({"rounds": "many"}, "rounds is 'many', no count"),
    ],
)
def test_a_benchmark_with_unusable_numbers_is_an_error_beside_its_neighbours(
    stats: dict[str, Any], problem: str
) -> None:
    bad, good = decoded(a_file(a_benchmark(**stats), a_benchmark("other"))).rows
    assert bad.measurement.status is Status.ERROR
    assert bad.measurement.timing is None
    assert bad.measurement.reason.startswith(f"benchmarks[0].stats: {problem}")
    assert good.measurement.status is Status.OK


def test_numbers_that_nobody_reads_may_be_anything() -> None:
    assert decoded(a_file(a_benchmark(ops=float("nan"), stddev=None))).rows[0].measurement.status is Status.OK


def without(body: dict[str, Any], *path: str | int) -> dict[str, Any]:
    copied = copy.deepcopy(body)
    inner: Any = copied
    for part in path[:-1]:
        inner = inner[part]
    del inner[path[-1]]
    return copied


WHOLE = a_file(a_benchmark("one"), a_benchmark("two"))
LINE_OF = {line.strip(): n for n, line in enumerate(json.dumps(WHOLE, indent=1).splitlines(), 1)}


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ([], "line 1: the file is no object"),
        ({}, "line 1: the file has no 'benchmarks'"),
        (a_file() | {"benchmarks": {}}, "benchmarks is no list"),
        (a_file() | {"benchmarks": [3]}, "benchmarks[0] is no object"),
        (without(WHOLE, "benchmarks", 1, "stats"), "benchmarks[1].stats is no object"),
        (a_file(a_benchmark("one"), a_benchmark("one")), "benchmarks[1] is 'one' a second time"),
        (a_file(a_benchmark("")), "benchmarks[0].fullname is empty"),
        (a_file(a_benchmark("one") | {"fullname": 7}), "benchmarks[0].fullname is no text"),
        (a_file(commit_info={"time": "yesterday"}), "commit_info.time is no time: 'yesterday'"),
        (a_file(commit_info={"time": 7}), "commit_info.time is no time"),
        (a_file(datetime="0001-01-01T00:00:00+23:00"), "datetime is beyond the calendar"),
    ],
)
def test_a_file_of_another_shape_is_refused_with_line_and_field(body: object, problem: str) -> None:
    assert problem in refusal(json.dumps(body, indent=1).encode())


def test_the_line_of_a_refusal_is_that_of_the_field() -> None:
    body = copy.deepcopy(WHOLE)
    body["benchmarks"][1]["fullname"] = ""
    line = LINE_OF['"fullname": "two",']
    assert f"line {line}: benchmarks[1].fullname" in refusal(json.dumps(body, indent=1).encode())
    assert "line 1: benchmarks[1].fullname" in refusal(json.dumps(body).encode())


@given(cut=st.integers(1, len(json.dumps(WHOLE, indent=1)) - 1))
def test_a_truncated_file_is_refused_wherever_it_was_cut(cut: int) -> None:
    assert "line " in refusal(json.dumps(WHOLE, indent=1).encode()[:cut])


def test_an_empty_file_and_bytes_that_are_no_text_are_refused() -> None:
    assert "line 1: Expecting value" in refusal(b"")
    assert "line 2: not UTF-8" in refusal(b'{\n"a\xff": 1}')
    assert "not UTF-8" in refusal(json.dumps(WHOLE).encode("utf-16"))
    assert decode(b"\xef\xbb\xbf" + json.dumps(WHOLE).encode(), name="x").rows


def test_nesting_and_keys_meant_to_confuse_are_refused() -> None:
    assert refusal(b"[" * 100_000)
    assert "'benchmarks' appears twice" in refusal(b'{"benchmarks": [], "benchmarks": []}')
    assert refusal(b'{"benchmarks": ' + b"9" * 10_000 + b"}")


def test_a_huge_file_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as stream:
        stream.truncate(pytest_benchmark.MAX_BYTES + 1)
    with pytest.raises(ArtifactError, match="more than 268435456 bytes; run fewer rounds"):
        read(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"gone.json: No such file or directory; name a readable"):
        read(tmp_path / "gone.json")
    with pytest.raises(ArtifactError, match="Is a directory"):
        read(tmp_path)


@given(
    body=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["benchmarks", "stats", "fullname", "name", "data", "median", "commit_info", "datetime", "time"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_any_json_is_read_or_refused_in_one_line(body: object) -> None:
    data = json.dumps(body).encode()
    try:
        found = decode(data, name="results.json")
    except ArtifactError as error:
        assert "\n" not in str(error)
    else:
        assert all((row.measurement.status is Status.OK) == (row.measurement.timing is not None) for row in found.rows)
