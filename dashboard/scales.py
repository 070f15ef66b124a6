"""Levels as numbers on an axis: tokens/s, the metric itself, or the gain over a line's own median. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from dashboard import palette, text
from dashboard.levels import Level, Line, Shown, segments
from perfci.report import gain

Triple = tuple[float, float, float]  # middle, least, greatest


@dataclass(frozen=True, slots=True)
class Drawn:
    """A line as a chart draws it, in the axis' unit. `parts` are what a pen may draw without lifting."""

    line: Line
    parts: tuple[tuple[tuple[Level, Triple], ...], ...]

    @property
    def name(self) -> str:
        return text.as_label(self.line.name)

    @property
    def look(self) -> palette.Look:
        return palette.look(self.line.name)

    @property
    def size(self) -> int:
        return sum(len(part) for part in self.parts)

    def at(self, sha: str) -> tuple[Level, Triple] | None:
        return next((pair for part in self.parts for pair in part if pair[0].commit.sha == sha), None)


def value(level: Level, shown: Shown) -> Triple | None:
    """In the base unit. None where nothing was timed, or where the workload counts no tokens."""
    if level.middle is None or level.low is None or level.high is None:
        return None
    if shown is not Shown.TOKENS:
        return level.middle, level.low, level.high
    if level.tokens <= 0:
        return None
    return level.tokens / level.middle, level.tokens / level.high, level.tokens / level.low


def draw(lines: Sequence[Line], shown: Shown) -> tuple[tuple[Drawn, ...], text.Scale]:
    """Lines in the glossary's order, and the scale that they are in."""
    ordered = sorted(lines, key=lambda line: palette.order(line.name))
    base = [_parts(line, shown) for line in ordered]
    if shown is Shown.CHANGE:
        scale = text.Scale(100.0, "%")
    else:
        unit = "tokens/s" if shown is Shown.TOKENS else ordered[0].series.unit if ordered else ""
        scale = text.scale_for([triple[0] for parts in base for part in parts for _, triple in part], unit)
    drawn = (
        Drawn(line, tuple(tuple((level, scaled(triple, scale)) for level, triple in part) for part in parts))
        for line, parts in zip(ordered, base, strict=True)
    )
    return tuple(drawn), scale


def _parts(line: Line, shown: Shown) -> list[list[tuple[Level, Triple]]]:
    centre = median([level.middle for level in line.levels if level.middle is not None] or [1.0])
    found = []
    for part in segments(line.levels):
        pairs = ((level, value(level, shown)) for level in part)
        found.append([(level, triple) for level, triple in pairs if triple is not None])
    if shown is Shown.CHANGE:
        found = [[(level, _gains(triple, centre, line)) for level, triple in part] for part in found]
    return [part for part in found if part]


def _gains(triple: Triple, centre: float, line: Line) -> Triple:
    middle, *ends = (gain(number / centre, line.series.direction) for number in triple)
    return middle, min(ends), max(ends)


def scaled(triple: Triple, scale: text.Scale) -> Triple:
    middle, low, high = (number * scale.factor for number in triple)
    return middle, low, high
