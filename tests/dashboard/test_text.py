from __future__ import annotations

import html
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard import text


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (697e-6, "s", "697.0 µs"),
        (9.9e-7, "s", "990.0 ns"),
        (1.1e-6, "s", "1.100 µs"),
        (0.01234, "s", "12.34 ms"),
        (3.0, "s", "3.000 s"),
        (1434.2, "tokens/s", "1\u2009434 tokens/s"),
        (0.5, "tokens/s", "0.5000 tokens/s"),
        (2.5e6, "tokens/s", "2.500 M tokens/s"),
        (4.51e12, "B/s", "4.510 TB/s"),
        (7.9e14, "flop/s", "790.0 Tflop/s"),
        (0.0, "s", "0 s"),
        (None, "s", "–"),
        (math.nan, "s", "–"),
        (math.inf, "s", "–"),
    ],
)
def test_a_quantity_has_four_digits_and_the_right_prefix(value: float | None, unit: str, shown: str) -> None:
    assert text.quantity(value, unit) == shown


@pytest.mark.parametrize(
    ("fraction", "shown"),
    [(0.712, "71.2 %"), (1.0, "100.0 %"), (None, "–"), (math.nan, "–"), (-0.03, "\u22123.0 %")],
)
def test_a_fraction_is_shown_in_per_cent(fraction: float | None, shown: str) -> None:
    assert text.percent(fraction) == shown


def test_a_signed_fraction_has_a_sign_of_its_own() -> None:
    assert text.percent(0.042, signed=True) == "+4.2 %"
    assert text.percent(-0.028, signed=True) == "\u22122.8 %"


def test_the_largest_value_gives_one_prefix_for_all() -> None:
    assert text.scale_for([697e-6, 5.89e-3], "s") == text.Scale(1e3, "ms")
    assert text.scale_for([], "s") == text.Scale(1.0, "s")


@given(st.floats(min_value=1e-9, max_value=1e14))
def test_a_scaled_value_lies_between_one_and_a_thousand(value: float) -> None:
    scale = text.scale_for([value], "s")
    assert 1 - 1e-9 <= value * scale.factor < 1000 or value >= 1e15


@given(st.floats(min_value=1e-12, max_value=1e12))
def test_a_figure_keeps_four_digits(value: float) -> None:
    assert math.isclose(float(text.figure(value).replace("\u2009", "")), value, rel_tol=6e-4)


@given(st.text())
def test_markdown_shows_every_letter_and_interprets_none(foreign: str) -> None:
    escaped = text.as_markdown(foreign)
    shown = re.sub(r"\\(.)", r"\1", escaped.replace(text._WORD_JOINER, ""))
    assert shown == " ".join(foreign.split()).replace(text._WORD_JOINER, "")
    assert "\n" not in escaped
    for place, letter in enumerate(escaped):
        if letter in "*_[]<>`#$|~:!":
            assert escaped[place - 1] == "\\"


@given(st.text())
def test_a_label_shows_text_and_no_markup(foreign: str) -> None:
    label = text.as_label(foreign, limit=10**9)
    assert "<" not in label
    assert ">" not in label
    assert html.unescape(label) == html.unescape(html.escape(" ".join(foreign.split()), quote=False))


def test_a_long_label_is_cut_and_says_so() -> None:
    assert text.as_label("x" * 100, limit=10) == "x" * 9 + "…"


def test_numbers_in_names_count() -> None:
    names = ["b64", "b8", "b1-ctx4096", "b1-gen32", "b1-ctx512", "", "7", "b"]
    assert sorted(names, key=text.natural) == ["", "7", "b", "b1-ctx512", "b1-ctx4096", "b1-gen32", "b8", "b64"]


@given(st.lists(st.text(alphabet="b1²-٣", max_size=40)), st.integers(min_value=1, max_value=9000))
def test_any_names_can_be_put_in_order(names: list[str], digits: int) -> None:
    sorted([*names, "b" + "9" * digits], key=text.natural)
