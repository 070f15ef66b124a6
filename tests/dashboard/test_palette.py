"""Colours can be told apart, also by people who see two primaries; and without colour at all."""

from __future__ import annotations

import itertools
import math

import pytest

from dashboard import palette

GLOSSARY = (
    "torch-eager",
    "torch-graph",
    "torch-compile",
    "torch-compile-autotune",
    "modular",
    "modular-graph",
    "modular-pdl",
    "megakernel",
    "megakernel-graph",
)
# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB.
SIGHT = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
}
# Ottosson 2020, "A perceptual color space for image processing".
TO_CONES = ((0.4122214708, 0.5363325363, 0.0514459929), (0.2119034982, 0.6806995451, 0.1073969566), (0.0883024619, 0.2817188376, 0.6299787005))  # fmt: skip  # noqa: E501
TO_LAB = ((0.2104542553, 0.793617785, -0.0040720468), (1.9779984951, -2.428592205, 0.4505937099), (0.0259040371, 0.7827717662, -0.808675766))  # fmt: skip  # noqa: E501

Vector = tuple[float, ...]


def product(matrix: tuple[Vector, ...], vector: Vector) -> Vector:
    return tuple(sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)


def linear(colour: str) -> Vector:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return tuple(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)


def oklab(light: Vector) -> Vector:
    return product(TO_LAB, tuple(math.cbrt(min(1.0, max(0.0, c))) for c in product(TO_CONES, light)))


def contrast(one: str, other: str) -> float:
    low, high = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (linear(one), linear(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("sight", SIGHT)
def test_no_two_implementations_have_colours_that_look_alike(sight: str) -> None:
    seen = {name: oklab(product(SIGHT[sight], linear(palette.look(name).colour))) for name in GLOSSARY}
    apart = {(a, b): math.dist(seen[a], seen[b]) for a, b in itertools.combinations(GLOSSARY, 2)}
    assert {pair: d for pair, d in apart.items() if d < 0.1} == {}


@pytest.mark.parametrize("background", ["#ffffff", "#171614"])  # of Streamlit's two themes
@pytest.mark.parametrize("name", GLOSSARY)
def test_a_colour_stands_on_both_backgrounds(name: str, background: str) -> None:
    assert contrast(palette.look(name).colour, background) >= 2


def test_without_colour_marker_and_dash_tell_implementations_apart() -> None:
    looks = [palette.look(name) for name in GLOSSARY]
    assert len({(look.marker, look.dash) for look in looks}) == len(looks)


def test_an_implementation_of_another_suite_looks_the_same_every_time_and_unlike_ours() -> None:
    assert palette.look("mine") == palette.look("mine")
    ours = {palette.look(name).marker for name in GLOSSARY}
    assert {palette.look(f"theirs-{number}").marker for number in range(100)} & ours == set()


def test_the_glossary_gives_the_order() -> None:
    assert sorted(["zebra", *reversed(GLOSSARY), "apple"], key=palette.order) == [*GLOSSARY, "apple", "zebra"]
