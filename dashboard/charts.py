"""Rows in, plotly figures out. No streamlit; base SI units come in and are converted on the way to the axes."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from dashboard import palette, text, traces
from dashboard.levels import Line, Shown
from dashboard.marks import Mark, MarkKind
from dashboard.scales import Drawn, draw, scaled, value
from dashboard.tonight import Section
from perfci.model import Status
from perfci.store.rows import AlertRow

MOST_POINTS = 5000  # of one line; more make the browser slow, and a screen has no room for them
_TICKS = 7
_FAR = 4  # times the best result; a ceiling beyond is told in the table, drawn it would squeeze the rest


def side_by_side(section: Section) -> go.Figure:
    """Implementations of one workload on one hardware: a dot, the range of its processes, the ceiling."""
    entries = sorted(section.entries, key=lambda e: palette.order(e.name), reverse=True)
    triples = [value(entry.level, section.shown) if entry.status is Status.OK else None for entry in entries]
    unit = "tokens/s" if section.shown is Shown.TOKENS else entries[0].series.unit if entries else ""
    scale = text.scale_for([triple[0] for triple in triples if triple], unit)
    figure = go.Figure()
    for entry, triple in zip(entries, triples, strict=True):
        dot = traces.dot(entry, scaled(triple, scale), scale.unit) if triple else traces.untimed(entry)
        figure.add_trace(dot)
    best = max((triple[0] for triple in triples if triple), default=0.0)
    if section.ceiling is not None and section.ceiling <= _FAR * best:
        place = section.ceiling * scale.factor
        figure.add_vline(x=place, line={"color": palette.NEUTRAL, "width": 1, "dash": "dot"})
        words = {"text": "ceiling", "showarrow": False, "font": {"size": 11, "color": palette.NEUTRAL}}
        figure.add_annotation(x=place, y=1, yref="paper", yanchor="bottom", **words)
    figure.update_layout(
        height=76 + 38 * max(1, len(entries)),
        margin={"l": 8, "r": 90, "t": 22, "b": 8},
        showlegend=False,
        clickmode="event+select",
        dragmode=False,
        xaxis={
            "title": scale.unit, "rangemode": "tozero", "zeroline": False, "fixedrange": True, "automargin": True,
            "visible": any(triples),
        },
        yaxis={
            "type": "category", "showgrid": False, "automargin": True, "fixedrange": True,
            "range": [-0.6, len(entries) - 0.4],
        },
    )  # fmt: skip
    return figure


def history(
    lines: Sequence[Line],
    *,
    shown: Shown,
    marks: Sequence[Mark] = (),
    alerts: Sequence[AlertRow] = (),
    selected: str = "",
) -> go.Figure:
    """Lines over commits by position on the tracked branch; nothing is drawn where nothing was measured.

    selected: sha of a commit to mark. Above the lines: what changed around the code. Below: what was tried in vain.
    """
    drawn, scale = draw([Line(line.series, line.levels[-MOST_POINTS:]) for line in lines], shown)
    figure = go.Figure()
    for one in drawn:
        if one.size > traces.BAND_FROM:
            figure.add_trace(traces.band(one))
        if one.size:
            figure.add_trace(traces.line(one, scale.unit))
        if (failed := traces.failures(one)) is not None:
            figure.add_trace(failed)
    _add_alerts(figure, drawn, alerts)
    _add_vertical(figure, drawn, marks, selected)
    _lay_out(figure, drawn, "gain over the line's median, %" if shown is Shown.CHANGE else scale.unit, marks)
    return figure


def _add_alerts(figure: go.Figure, drawn: Sequence[Drawn], alerts: Sequence[AlertRow]) -> None:
    by_id = {one.line.series.id: one for one in drawn}
    for row in alerts:
        one = by_id.get(row.series_id)
        if one is not None and (trace := traces.alert(row, one)) is not None:
            figure.add_trace(trace)
            change, _, _ = traces.alert_gain(row, one.line.series.direction)
            # Above the lower of the two levels, where the line is not.
            side = ("left", 9) if change < 0 else ("right", -9)
            figure.add_annotation(
                x=trace.x[0], y=trace.y[0], text=text.percent(change, signed=True), showarrow=False,
                xanchor=side[0], xshift=side[1], yshift=26, font={"color": palette.CHANGE[row.kind]},
            )  # fmt: skip


def _add_vertical(figure: go.Figure, drawn: Sequence[Drawn], marks: Sequence[Mark], selected: str) -> None:
    for mark in marks:
        dash = "dash" if mark.kind is MarkKind.ENVIRONMENT else "dot"
        figure.add_vline(x=mark.place, line={"color": palette.NEUTRAL, "width": 1, "dash": dash}, layer="below")
    if marks:
        figure.add_trace(traces.around(marks))
    commits = (level.commit for one in drawn for level in one.line.levels)
    position = next((commit.position for commit in commits if commit.sha == selected), None)
    if position is not None:
        figure.add_vline(x=position, line={"color": palette.NEUTRAL, "width": 2}, opacity=0.6, layer="below")


def _lay_out(figure: go.Figure, drawn: Sequence[Drawn], title: str, marks: Sequence[Mark]) -> None:
    levels = [level for one in drawn for level in one.line.levels]
    statuses = sorted({status.value for level in levels for status, _ in level.failures})
    bottom = min(0.4, 0.07 * len(statuses))
    places = _ticks({level.commit.position: traces.facts(level)[1] for level in levels})
    figure.update_layout(
        height=420 + 26 * len(statuses),
        margin={"l": 8, "r": 16, "t": 8, "b": 8},
        hovermode="closest",
        dragmode="zoom",
        clickmode="event+select",
        showlegend=True,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        xaxis={
            "title": "commits by position on the tracked branch", "anchor": "y3" if statuses else "y",
            "zeroline": False, "automargin": True, "tickangle": 0,
            "tickmode": "array", "tickvals": list(places), "ticktext": list(places.values()),
        },
        yaxis={
            "title": title, "domain": [bottom + (0.03 if statuses else 0), 0.93 if marks else 1],
            "zeroline": False, "automargin": True,
        },
        yaxis2={"domain": [0.94, 1], "visible": False, "fixedrange": True, "range": [-1, 1]},
        yaxis3={
            "domain": [0, max(bottom, 0.01)], "type": "category", "categoryorder": "array", "categoryarray": statuses,
            "range": [-0.6, len(statuses) - 0.4], "visible": bool(statuses), "showgrid": False, "fixedrange": True,
            "automargin": True,
        },
    )  # fmt: skip


def _ticks(labels: dict[int | None, str]) -> dict[int, str]:
    """About _TICKS of the commits, evenly by position, each with its own label; always the first and the last."""
    places = sorted(place for place in labels if place is not None)
    if not places:
        return {}
    step = max(1.0, (places[-1] - places[0]) / (_TICKS - 1))
    chosen: list[int] = []
    for place in places:
        if not chosen or place - chosen[-1] >= step * 0.999:
            chosen.append(place)
    if places[-1] not in chosen:
        chosen[-1:] = (
            [places[-1]] if places[-1] - chosen[-1] < step / 2 and len(chosen) > 1 else [chosen[-1], places[-1]]
        )
    return {place: labels[place].replace("  ", "<br>") for place in chosen}
