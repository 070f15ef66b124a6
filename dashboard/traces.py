"""Rows in, plotly traces out. Every point carries its commit as `customdata[0]`: what a click hands back to a page."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from dashboard import palette, text
from dashboard.levels import Level
from dashboard.marks import Mark, MarkKind
from dashboard.scales import Drawn, Triple
from dashboard.tonight import Entry
from perfci.model import Direction
from perfci.report import gain
from perfci.store.rows import AlertRow

BAND_FROM = 40  # levels; with fewer, error bars are easier to read than a band
MARKS_AXIS, FAILURES_AXIS = "y2", "y3"


def dot(entry: Entry, triple: Triple, unit: str) -> go.Scatter:
    """One implementation tonight: middle and range over its processes."""
    look, level, name = palette.look(entry.name), entry.level, text.as_label(entry.name)
    middle, low, high = triple
    share = level.ceiling_fraction
    lines = (
        f"<b>{name}</b>",
        f"{text.figure(middle)} {unit}",
        f"{processes(level)}: {text.figure(low)} to {text.figure(high)}",
        "no ceiling known" if share is None else f"{text.percent(share)} of the ceiling",
        f"commit {text.short(level.commit.sha)}, {text.moment(level.newest_at)}",
    )
    # The second point is unseen and holds the words, so that they begin where the interval ends.
    return go.Scatter(
        x=[middle, high],
        y=[name, name],
        name=name,
        mode="markers+text",
        text=["", f"   {text.figure(middle)}{'' if level.verified else '  unverified'}"],
        textposition="middle right",
        cliponaxis=False,
        marker={
            "color": look.colour,
            "symbol": _symbol(look, level),
            "size": 12,
            "opacity": [1, 0],
            "line": {"width": 2, "color": look.colour},
        },
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [high - middle, None],
            "arrayminus": [middle - low, None],
            "color": look.colour,
            "thickness": 2,
            "width": 5,
        },
        customdata=[[level.commit.sha, entry.name]] * 2,
        hovertemplate="<br>".join(lines) + "<extra></extra>",
    )


def untimed(entry: Entry) -> go.Scatter:
    """An implementation without a time tonight, by name, with its status and reason in the place of a number."""
    name = text.as_label(entry.name)
    status = entry.status
    told = f"{status.value}: {entry.reason}" if entry.reason else status.value
    return go.Scatter(
        x=[0],
        y=[name],
        name=name,
        mode="markers+text",
        text=[f"   {text.as_label(told, limit=100)}"],
        textposition="middle right",
        textfont={"color": palette.NEUTRAL},
        cliponaxis=False,
        marker={
            "color": palette.NEUTRAL,
            "symbol": palette.STATUS_MARKER.get(status, "x"),
            "size": 9,
            "line": {"width": 2, "color": palette.NEUTRAL},
        },
        customdata=[[entry.level.commit.sha, entry.name]],
        hovertemplate=f"<b>{name}</b><br>{text.as_label(told, limit=300)}<extra></extra>",
    )


def line(drawn: Drawn, unit: str) -> go.Scatter:
    """A history as one trace; it breaks between its parts."""
    rows: list[tuple[Level, Triple] | None] = []
    for part in drawn.parts:
        rows += [*part, None]
    rows = rows[:-1]
    look, many = drawn.look, drawn.size > BAND_FROM
    return go.Scatter(
        x=[row and row[0].commit.position for row in rows],
        y=[row and row[1][0] for row in rows],
        name=drawn.name,
        legendgroup=drawn.name,
        mode="lines+markers",
        connectgaps=False,
        line={"color": look.colour, "width": 1.5, "dash": look.dash},
        marker={
            "color": look.colour,
            "size": 4 if many else 9,
            "symbol": [look.marker if row is None else _symbol(look, row[0]) for row in rows],
        },
        error_y={
            "type": "data",
            "symmetric": False,
            "visible": not many,
            "array": [row and row[1][2] - row[1][0] for row in rows],
            "arrayminus": [row and row[1][0] - row[1][1] for row in rows],
            "thickness": 1.5,
            "width": 4,
        },
        customdata=[[""] * 5 if row is None else [*facts(row[0]), text.figure(row[1][0])] for row in rows],
        hovertemplate=(
            f"<b>{drawn.name}</b> %{{customdata[4]}} {unit}<br>%{{customdata[3]}}<br>"
            "%{customdata[1]}<br>%{customdata[2]}<extra></extra>"
        ),
    )


def band(drawn: Drawn) -> go.Scatter:
    """The range over the processes, one closed shape a part."""
    xs: list[int | None] = []
    ys: list[float | None] = []
    for part in drawn.parts:
        there = [level.commit.position for level, _ in part]
        xs += [*there, *reversed(there), None]
        ys += [*(high for _, (_, _, high) in part), *(low for _, (_, low, _) in reversed(part)), None]
    red, green, blue = (int(drawn.look.colour[i : i + 2], 16) for i in (1, 3, 5))
    return go.Scatter(
        x=xs,
        y=ys,
        mode="none",
        fill="toself",
        fillcolor=f"rgba({red}, {green}, {blue}, 0.25)",
        name=f"{drawn.name}, range of processes",
        legendgroup=drawn.name,
        showlegend=False,
        hoverinfo="skip",
    )


def failures(drawn: Drawn) -> go.Scatter | None:
    """What was tried and gave no time, on the axis of statuses below the chart."""
    rows = [(level, status, reason) for level in drawn.line.levels for status, reason in level.failures]
    if not rows:
        return None
    colour = drawn.look.colour
    return go.Scatter(
        x=[level.commit.position for level, _, _ in rows],
        y=[status.value for _, status, _ in rows],
        yaxis=FAILURES_AXIS,
        mode="markers",
        name=drawn.name,
        legendgroup=drawn.name,
        showlegend=drawn.size == 0,
        marker={
            "color": colour,
            "size": 8,
            "line": {"width": 2, "color": colour},
            "symbol": [palette.STATUS_MARKER.get(status, "x") for _, status, _ in rows],
        },
        customdata=[[*facts(level), text.as_label(reason, limit=300)] for level, _, reason in rows],
        hovertemplate=(
            f"<b>{drawn.name}</b> %{{y}}<br>%{{customdata[4]}}<br>"
            "%{customdata[1]}<br>%{customdata[2]}<extra></extra>"
        ),
    )


def alert(row: AlertRow, drawn: Drawn) -> go.Scatter | None:
    """None for a commit at which the line has no value: none is made up."""
    found = drawn.at(row.commit.sha)
    if found is None:
        return None
    level, (middle, _, _) = found
    change, low, high = alert_gain(row, drawn.line.series.direction)
    told = (
        f"<b>{row.kind.value}</b> of {drawn.name}: {text.percent(change, signed=True)} "
        f"({text.percent(low, signed=True)} to {text.percent(high, signed=True)}), {row.state.value}"
    )
    return go.Scatter(
        x=[level.commit.position],
        y=[middle],
        mode="markers",
        showlegend=False,
        name=f"{row.kind.value} of {drawn.name}",
        marker={
            "symbol": palette.CHANGE_MARKER[row.kind],
            "size": 15,
            "color": palette.CHANGE[row.kind],
            "line": {"width": 1, "color": "white"},
        },
        customdata=[facts(level)],
        hovertemplate=f"{told}<br>%{{customdata[1]}}<br>%{{customdata[2]}}<extra></extra>",
    )


def alert_gain(row: AlertRow, direction: Direction) -> Triple:
    """Change, least, greatest as gains: negative is worse whatever the metric's direction."""
    low, high = sorted((gain(row.low, direction), gain(row.high, direction)))
    return gain(row.ratio, direction), low, high


def around(marks: Sequence[Mark]) -> go.Scatter:
    """What changed around the code: a symbol above each vertical mark, which tells on hover."""
    return go.Scatter(
        x=[mark.place for mark in marks],
        y=[0] * len(marks),
        yaxis=MARKS_AXIS,
        mode="markers+text" if len(marks) <= 6 else "markers",
        text=[f" {text.as_label(mark.label, limit=24)}" for mark in marks],
        textposition="middle right",
        textfont={"size": 11, "color": palette.NEUTRAL},
        cliponaxis=False,
        showlegend=False,
        name="changes around the code",
        marker={
            "color": palette.NEUTRAL,
            "size": 9,
            "symbol": ["square" if mark.kind is MarkKind.ENVIRONMENT else "diamond" for mark in marks],
        },
        customdata=[["", text.as_label(mark.text, limit=300)] for mark in marks],
        hovertemplate="%{customdata[1]}<extra></extra>",
    )


def facts(level: Level) -> list[str]:
    """sha; short sha and day; subject; processes, spread and what the reader must know."""
    commit = level.commit
    spread = "" if level.spread is None else f" ±{text.percent(level.spread, digits=2)}"
    unverified = "" if level.verified or level.middle is None else ", unverified"
    return [
        commit.sha,
        f"{text.short(commit.sha)}  {text.day(commit.committed_at)}",
        text.as_label(commit.subject),
        f"{processes(level)}{spread}{unverified}",
    ]


def processes(level: Level) -> str:
    return f"{level.processes} process{'' if level.processes == 1 else 'es'}"


def _symbol(look: palette.Look, level: Level) -> str:
    return look.marker if level.verified else f"{look.marker}-open"
