"""A result file is whatever somebody sent: it is taken whole, or refused whole with the file's and the field's name."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfci import artifact
from perfci.errors import ArtifactError
from tests.build import a_commit, a_measurement, a_run

GOOD = artifact.encode(
    a_run([a_measurement(extras={"registers": 64}), a_measurement("second", samples=(0.5, 0.25))], commit=a_commit(7))
)
FIRST = "run/measurements/0"


def refusal(data: bytes) -> str:
    with pytest.raises(ArtifactError) as caught:
        artifact.decode(data, name="incoming/it.perfci.json")
    message = str(caught.value)
    assert message.startswith("incoming/it.perfci.json ")
    assert message.endswith("; nothing of it was stored; measure again")
    assert "\n" not in message
    assert len(message) < 500
    message.encode()  # it can be printed
    return message


def place(path: str) -> Callable[[Any, object], None]:
    *steps, last = (int(step) if step.isdigit() else step for step in path.split("/"))

    def put(body: Any, value: object) -> None:
        for step in steps:
            body = body[step]
        body[last] = value

    return put


def changed(path: str, value: object) -> bytes:
    body = json.loads(GOOD)
    place(path)(body, value)
    return json.dumps(body).encode()


def with_text(path: str, literal: str) -> bytes:
    """As `changed`, with a literal that Python's writer would not write."""
    return changed(path, "@here@").replace(b'"@here@"', literal.encode())


def test_the_file_that_these_tests_spoil_is_good() -> None:
    artifact.decode(GOOD, name="x")
    artifact.decode(changed("run/suite", "kernels"), name="x")


@pytest.mark.parametrize("share", [0, 0.001, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_a_truncated_file_is_refused(share: float) -> None:
    refusal(GOOD[: int(share * len(GOOD))])


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(GOOD) - 3))
def test_a_file_truncated_anywhere_is_refused(length: int) -> None:
    refusal(GOOD[:length])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.binary(min_size=1, max_size=4))
def test_a_damaged_file_is_read_or_refused_and_nothing_else(offset: int, noise: bytes) -> None:
    with contextlib.suppress(ArtifactError):
        artifact.decode(GOOD[:offset] + noise + GOOD[offset + len(noise) :], name="x")


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(
        [
            *("format", "version", "run", "run/commit", "run/commit/sha", "run/hardware", "run/index"),
            *("run/started_at", "run/telemetry", "run/measurements"),
            *(FIRST, f"{FIRST}/timing", f"{FIRST}/timing/samples", f"{FIRST}/extras"),
        ]
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    ),
)
def test_any_value_in_any_place_is_read_or_refused_and_nothing_else(path: str, value: object) -> None:
    with contextlib.suppress(ArtifactError):
        artifact.decode(changed(path, value), name="x")


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"", "not JSON"),
        (b"\0" * 100, "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b"\xef\xbb\xbf" + GOOD, "BOM"),
        (GOOD.decode().encode("utf-16"), "not JSON"),
        (GOOD + b"{}", "Extra data"),
        (GOOD * 2, "Extra data"),
        (b"null", '"format"'),
        (b"[]", '"format"'),
        (b'"perfci-artifact"', '"format"'),
        (b'{"format": "other"}', '"format"'),
        (b'{"machine_info": {}, "benchmarks": [], "version": "5.3.1"}', '"format"'),
        (b'{"format": "perfci-artifact"}', "format version None, this perfci reads 1"),
        (changed("version", 2), "format version 2, this perfci reads 1"),
        (changed("version", "1"), "format version '1', this perfci reads 1"),
        (changed("version", True), "format version True, this perfci reads 1"),
        (changed("version", 1.0), "format version 1.0, this perfci reads 1"),
        (changed("version", [[["x" * 1000]]]), "this perfci reads 1"),
    ],
)
def test_foreign_bytes_are_refused_with_what_they_are_not(data: bytes, named: str) -> None:
    assert named in refusal(data)


def test_forty_megabytes_are_not_even_parsed(tmp_path: Path) -> None:
    path = tmp_path / "big.perfci.json"
    with path.open("wb") as stream:
        stream.truncate(40_000_000)
    with pytest.raises(ArtifactError, match=f"{path} is no perfci result: more than 33554432 bytes"):
        artifact.read(path)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"format":"perfci-artifact","version":1,"run":[['])
def test_a_file_nested_too_deep_for_the_parser_is_refused(opening: bytes) -> None:
    refusal(opening * 100_000)


@pytest.mark.parametrize(
    "path", ["run", "run/measurements", FIRST, f"{FIRST}/extras/registers", "run/telemetry/others"]
)
def test_a_file_nested_as_deep_as_the_parser_goes_is_refused_by_its_place(path: str) -> None:
    assert f" {path}" in refusal(with_text(path, "[" * 500 + "]" * 500))


def test_between_what_the_parser_and_what_the_schema_can_descend_nothing_escapes() -> None:
    for depth in range(700, 1_100):  # Python's limit is 1,000 frames, less what a caller has used
        refusal(with_text("run", "[" * depth + "]" * depth))


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 5000, "-" + "9" * 50])
@pytest.mark.parametrize(
    "path",
    [
        f"{FIRST}/timing/samples/1",
        f"{FIRST}/timing/resolution",
        f"{FIRST}/timing/iterations",
        f"{FIRST}/workload/flops",
        f"{FIRST}/extras/registers",
        "run/controls/0/value",
        "run/commit/position",
        "run/index",
        "run/hardware/power_cap_w",
        "run/telemetry/load_average",
    ],
)
def test_a_number_that_is_none_or_has_no_end_is_refused_by_its_place(path: str, literal: str) -> None:
    assert f" {path}: " in refusal(with_text(path, literal))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{FIRST}/timing/samples/2", 0),
        (f"{FIRST}/timing/samples/2", -1e-3),
        (f"{FIRST}/timing/samples/2", 1.1e12),
        (f"{FIRST}/timing/samples/2", True),
        (f"{FIRST}/timing/samples/2", "0.1"),
        (f"{FIRST}/timing/samples/2", None),
        (f"{FIRST}/timing/samples", []),
        (f"{FIRST}/timing/samples", [0.1] * 100_001),
        (f"{FIRST}/timing/samples", {"0": 0.1}),
        (f"{FIRST}/timing/iterations", 0),
        (f"{FIRST}/timing/iterations", 1.0),
        (f"{FIRST}/timing/clock", "sundial"),
        (f"{FIRST}/workload/bytes_moved", -1),
        (f"{FIRST}/workload/bytes_moved", 2**63),
        (f"{FIRST}/workload/name", ""),
        (f"{FIRST}/workload/name", "x" * 501),
        (f"{FIRST}/implementation", "a\nb"),
        (f"{FIRST}/implementation", "newline at the end\n"),
        (f"{FIRST}/implementation", "nul\0"),
        (f"{FIRST}/implementation", "escape\x1b[2J"),
        (f"{FIRST}/implementation", "next line\x85"),
        (f"{FIRST}/implementation", "right to left \u202e"),
        (f"{FIRST}/metric/unit", "s\0"),
        (f"{FIRST}/metric/direction", "sideways"),
        (f"{FIRST}/status", "fine"),
        (f"{FIRST}/verified", 1),
        (f"{FIRST}/reason", "nul\0"),
        (f"{FIRST}/reason", "x" * 20_001),
        (f"{FIRST}/error", -0.5),
        (f"{FIRST}/trace", ""),
        (f"{FIRST}/trace", None),
        (f"{FIRST}/trace", "eJw=\n"),
        (f"{FIRST}/trace", "<script>"),
        (f"{FIRST}/trace", "A" * 131_073),
        (f"{FIRST}/extras/registers", None),
        (f"{FIRST}/extras/registers", {"deep": 1}),
        (f"{FIRST}/extras", {str(number): 1 for number in range(201)}),
        ("run/commit/subject", "newline at the end\n"),
        ("run/hardware/model", "two\nlines"),
        ("run/commit/sha", "abc"),
        ("run/commit/sha", "g" * 40),
        ("run/commit/sha", "a" * 40 + "\n"),
        ("run/commit/sha", "A" * 40),
        ("run/commit/position", 0),
        ("run/commit/position", 1.5),
        ("run/hardware/count", 0),
        ("run/index", -1),
        ("run/index", 3.0),
        ("run/origin", "invented"),
        ("run/session", "tab\t"),
        ("run/started_at", "2026-12-01T02:00:00"),
        ("run/started_at", "2026-12-01"),
        ("run/started_at", "last night"),
        ("run/started_at", 1764554400),
        ("run/finished_at", "2026-12-01T01:59:59+00:00"),
        ("run/finished_at", "9999-12-31T23:59:59-23:59"),
        ("run/commit/committed_at", "2026-12-01T02:00:00"),
        ("run/measurements", {}),
        ("run/controls/0", {}),
        ("run/controls/0/value", 0),
    ],
)
def test_a_value_out_of_its_range_is_refused_by_its_place(path: str, value: object) -> None:
    assert f" {path}: " in refusal(changed(path, value))


@pytest.mark.parametrize(
    "path",
    ["extra", "run/extra", "run/commit/extra", f"{FIRST}/extra", f"{FIRST}/timing/extra", "run/environment/ld_preload"],
)
def test_a_field_that_the_format_does_not_know_is_refused_by_its_name(path: str) -> None:
    message = refusal(changed(path, 1))
    where, _, name = path.rpartition("/")
    assert f" {where or 'the file'}: " in message
    assert repr(name) in message


@pytest.mark.parametrize("path", ["run/suite", "run/commit/position", f"{FIRST}/timing", f"{FIRST}/metric/unit"])
def test_a_field_that_is_missing_is_refused_by_its_name(path: str) -> None:
    body = json.loads(GOOD)
    *steps, last = (int(step) if step.isdigit() else step for step in path.split("/"))
    parent = body
    for step in steps:
        parent = parent[step]
    del parent[last]
    message = refusal(json.dumps(body).encode())
    assert f" {path.rpartition('/')[0]}: " in message
    assert repr(last) in message


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        (b'"index": 0', b'"index": 0, "index": 1', "index"),
        (b'"format"', b'"version": 1, "format"', "version"),
        (b'"registers": 64', b'"registers": 64, "registers": 64', "registers"),
    ],
)
def test_a_key_that_comes_twice_is_refused_by_its_name(old: bytes, new: bytes, key: str) -> None:
    assert old in GOOD
    assert f"{key!r} appears twice" in refusal(GOOD.replace(old, new, 1))


@pytest.mark.parametrize("half", ["\\ud800", "\\uDFFF", "a\\ud83d", "\\ude80\\ud83d"])
@pytest.mark.parametrize("path", ["run/suite", "run/log_tail", f"{FIRST}/reason", f"{FIRST}/extras/registers"])
def test_half_a_surrogate_pair_is_no_text(path: str, half: str) -> None:
    assert f" {path}: " in refusal(with_text(path, f'"{half}"'))


@pytest.mark.parametrize("key", ["\\ud800", "nul\\u0000", "line\\nbreak", "x" * 101])
def test_a_name_of_a_small_fact_is_text_of_one_line(key: str) -> None:
    assert f" {FIRST}/extras: " in refusal(GOOD.replace(b'"registers"', f'"{key}"'.encode()))


@pytest.mark.parametrize(
    "status", ["checked", "incorrect", "error", "timeout", "build_failed", "unsupported", "missing"]
)
def test_a_time_of_what_was_not_ok_is_refused(status: str) -> None:
    message = refusal(changed(f"{FIRST}/status", status))
    assert f" {FIRST}: decode/tiny / torch-eager: status {status} contradicts its timing" in message


def test_ok_without_a_time_is_refused() -> None:
    assert f" {FIRST}: decode/tiny / torch-eager: status ok contradicts" in refusal(changed(f"{FIRST}/timing", None))


def test_one_series_twice_in_a_run_is_refused() -> None:
    message = refusal(changed("run/measurements/1/implementation", "torch-eager"))
    assert " run/measurements/1: decode/tiny / torch-eager / latency is measured twice" in message


def test_a_range_that_is_upside_down_is_refused() -> None:
    assert "telemetry/power_w: " in refusal(changed("run/telemetry/power_w", [700, 100]))


def test_twenty_thousand_copies_of_one_series_are_refused_without_comparing_each_with_each() -> None:
    body = json.loads(GOOD)
    small = copy.deepcopy(body["run"]["measurements"][0]) | {"status": "missing", "timing": None, "verified": False}
    body["run"]["measurements"] = [small | {"implementation": str(number)} for number in range(3_000)]
    body["run"]["measurements"][-1]["implementation"] = "2998"
    assert " run/measurements/2999: decode/tiny / 2998 / latency is measured twice" in refusal(
        json.dumps(body).encode()
    )


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "'; DROP TABLE run; --",
        "{{7*7}}",
        "%s%n",
        "../../etc/passwd",
        "[b](javascript:x)",
        "🚀 é",
    ],
)
def test_text_of_one_line_is_taken_as_it_is(text: str) -> None:
    for path in (
        "run/suite",
        f"{FIRST}/workload/name",
        f"{FIRST}/implementation",
        "run/hardware/name",
        "run/commit/subject",
    ):
        run = artifact.decode(changed(path, text), name="x").run
        names = (run.suite, run.measurements[0].workload.name, run.measurements[0].implementation)
        assert text in (*names, run.hardware.name, run.commit.subject)


@pytest.mark.parametrize("path", [f"{FIRST}/reason", "run/reason", "run/log_tail"])
@pytest.mark.parametrize("text", ["\x1b[2J", "\r", "\b", "\x7f", "\x9b31m", "\u202e", "\u2028", "\0"])
def test_text_of_several_lines_moves_no_cursor(path: str, text: str) -> None:
    assert path in refusal(changed(path, f"before {text} after"))


@pytest.mark.parametrize("path", [f"{FIRST}/reason", "run/reason", "run/log_tail"])
def test_text_of_several_lines_has_lines_and_tabs(path: str) -> None:
    artifact.decode(changed(path, "one\n\ttwo <b>\N{PILE OF POO}\n"), name="x")
