"""Values as people read them, and foreign text as text.

Names, subjects and reasons come from repositories that anybody may write to: what reaches Markdown or plotly's
labels goes through here, so that it is shown and never interpreted.
"""

from __future__ import annotations

import html
import math
import re
import string
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from perfci.model import Commit

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
_PUNCTUATION = re.compile(f"([{re.escape(string.punctuation)}])")
# CommonMark's `\:` protects from directives, not from Streamlit's emoji shortcodes, which are looked for in the
# text after parsing. A word joiner has no width and is no part of a shortcode.
_WORD_JOINER = "\u2060"


def as_markdown(text: str) -> str:
    """Streamlit's Markdown that shows `text` letter by letter, on one line."""
    line = " ".join(text.split())
    escaped = _PUNCTUATION.sub(r"\\\1", line)
    return escaped.replace("\\:", f"\\:{_WORD_JOINER}") if line.count(":") > 1 else escaped


def as_label(text: str, *, limit: int = 80) -> str:
    """Plotly's text (it interprets a few HTML tags) that shows `text`, cut to `limit` characters."""
    line = " ".join(text.split())
    return html.escape(line if len(line) <= limit else line[: limit - 1] + "…", quote=False)


def natural(name: str) -> tuple[str | int, ...]:
    """Sort key under which numbers in names count: `b8` before `b64`."""
    # Words and numbers take turns, so that like is compared with like; Python refuses to read numbers without end.
    return tuple(int(part) if number % 2 else part for number, part in enumerate(re.split("([0-9]{1,18})", name)))


@dataclass(frozen=True, slots=True)
class Scale:
    """Multiply a value in the base unit by `factor` to have it in `unit`."""

    factor: float
    unit: str


def scale_for(values: Iterable[float], unit: str) -> Scale:
    """The SI prefix under which the largest value has one to three digits; words (tokens/s) take none below 10^5."""
    largest = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    if largest == 0 or (len(unit.split("/")[0]) > 4 and 0.01 <= largest < 1e5):
        return Scale(1.0, unit)
    size, prefix = next(((s, p) for s, p in _PREFIXES if largest >= s), _PREFIXES[-1])
    joint = " " if prefix and len(unit.split("/")[0]) > 4 else ""
    return Scale(1 / size, f"{prefix}{joint}{unit}")


def quantity(value: float | None, unit: str) -> str:
    """E.g. `697 µs`; a dash where there is no value."""
    if value is None or not math.isfinite(value):
        return "–"
    scale = scale_for((value,), unit)
    return f"{figure(value * scale.factor)} {scale.unit}".rstrip()


def figure(value: float) -> str:
    """Four significant digits, no exponent, thin spaces between thousands."""
    if value == 0:
        return "0"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}".replace(",", "\u2009")


def percent(fraction: float | None, *, signed: bool = False, digits: int = 1) -> str:
    """A fraction as `71.2 %`; signed: `+0.4 %` and a real minus sign."""
    if fraction is None or not math.isfinite(fraction):
        return "–"
    text = f"{fraction * 100:{'+' if signed else ''}.{digits}f} %"
    return text.replace("-", "\u2212")


def moment(at: datetime | None) -> str:
    return "–" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def day(at: datetime | None) -> str:
    return "–" if at is None else f"{at.astimezone(UTC):%Y-%m-%d}"


def short(sha: str) -> str:
    return sha[:9]


def commit(known: Commit | None) -> str:
    return f"{short(known.sha)}  {day(known.committed_at)}  {known.subject}" if known else "none"
