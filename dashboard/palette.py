"""How an implementation looks, the same on every chart.

Hue is the family (torch: earth, modular: blue, megakernel: magenta); marker and dash tell members apart without
colour. The colours stand on white and on Streamlit's dark background, and every pair is apart by at least 0.1 in
OKLab also as seen with protanopia and deuteranopia (Machado, Oliveira and Fernandes 2009, doi 10.1109/TVCG.2009.113).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from perfci.model import ChangeKind, Status


@dataclass(frozen=True, slots=True)
class Look:
    colour: str
    marker: str
    dash: str


_KNOWN = {
    "torch-eager": Look("#B48B6D", "circle", "dot"),
    "torch-graph": Look("#D0A928", "square", "solid"),
    "torch-compile": Look("#996E00", "triangle-up", "dash"),
    "torch-compile-autotune": Look("#784E28", "triangle-down", "dashdot"),
    "modular": Look("#72B3C7", "circle", "dash"),
    "modular-graph": Look("#273CF7", "square", "dashdot"),
    "modular-pdl": Look("#1093FB", "diamond", "solid"),
    "megakernel": Look("#A40080", "star", "dash"),
    "megakernel-graph": Look("#C745A7", "hexagram", "solid"),
}
# For suites with names of their own: the same colours, told apart by other markers.
_OTHER_MARKERS = ("pentagon", "hexagon", "cross", "triangle-left", "triangle-right", "hourglass", "bowtie")
_DASHES = ("solid", "dash", "dot", "dashdot")

NEUTRAL = "#808080"
CHANGE = {ChangeKind.REGRESSION: "#D9480F", ChangeKind.IMPROVEMENT: "#1B9E77"}
CHANGE_MARKER = {ChangeKind.REGRESSION: "triangle-down", ChangeKind.IMPROVEMENT: "triangle-up"}
STATUS_MARKER = {
    Status.CHECKED: "circle-open",
    Status.UNSUPPORTED: "circle-x-open",
    Status.INCORRECT: "x",
    Status.ERROR: "x-thin",
    Status.TIMEOUT: "hourglass-open",
    Status.BUILD_FAILED: "square-x-open",
    Status.MISSING: "line-ew",
}


def look(implementation: str) -> Look:
    """A name outside the glossary gets a look that depends on the name alone, so it never changes."""
    if implementation in _KNOWN:
        return _KNOWN[implementation]
    number = zlib.crc32(implementation.encode())
    colours = tuple(known.colour for known in _KNOWN.values())
    return Look(
        colours[number % len(colours)],
        _OTHER_MARKERS[number // 16 % len(_OTHER_MARKERS)],
        _DASHES[number // 256 % len(_DASHES)],
    )


def order(implementation: str) -> tuple[int, str]:
    """Sort key: the glossary's order, then by name."""
    known = list(_KNOWN)
    return (known.index(implementation) if implementation in _KNOWN else len(known), implementation)
