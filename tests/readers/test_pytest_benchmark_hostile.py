"""pytest-benchmark's files as nobody should write them: refused with line and field, or the row an error."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.errors import ArtifactError
from perfci.model import Status
from perfci.readers import pytest_benchmark
from perfci.readers.pytest_benchmark import decode, read
from tests.readers.benchmark_files import a_benchmark, a_file, decoded, refusal


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
