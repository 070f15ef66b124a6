"""Files of pytest-benchmark, made by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perfci.errors import ArtifactError
from perfci.readers.pytest_benchmark import Results, decode


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
