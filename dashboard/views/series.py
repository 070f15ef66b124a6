"""One workload on one hardware over the commits of its branch; a click on a point shows that commit's runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard import charts, data, details, levels, marks, palette, selection, text, tonight, widgets
from dashboard.levels import Line, Shown
from perfci.store.rows import SeriesRow

CHART = "history"


def main() -> None:
    st.title("Series")
    everything = data.all_series()
    if not everything:
        st.info(widgets.NOTHING_YET)
        return
    top, bottom = st.columns([2, 2, 3, 1.4]), st.columns([3, 2])
    found = place(everything, top[:3])
    with bottom[0]:
        names = [s.key.implementation for s in found]
        picked = selection.some("Implementations", names, key="implementation", default=names)
    lines = [data.line(series) for series in found if series.key.implementation in picked]
    measured = [level.commit for line in lines for level in line.levels]
    # A commit of which nothing could be measured has runs, and is nowhere on the chart.
    key = found[0].key
    broken = [run.commit for run in data.broken_runs(key.suite, key.hardware) if run.commit.position is not None]
    newest_first = sorted([*measured, *broken], key=lambda c: -(c.position or 0))
    commits = {commit.sha: commit for commit in newest_first}
    named = {Shown.TOKENS: "tokens/s", Shown.METRIC: found[0].key.metric, Shown.CHANGE: "change, %"}
    with top[3]:
        shown = selection.one("Show", levels.options(lines), key="show", name=named.__getitem__)
    with bottom[1]:
        sha = selection.one("Commit", ["", *commits], key="commit", name=lambda s: text.commit(commits.get(s)))
    show_chart(lines, shown, sha)
    if sha:
        details.commit(commits[sha], lines)
    else:
        st.caption("Click a point, or choose a commit above, to see its runs.")


def place(everything: Sequence[SeriesRow], columns: Sequence[DeltaGenerator]) -> list[SeriesRow]:
    """Hardware, suite and workload, each among what the choice before it left."""
    left, middle, right = columns
    found = sorted(everything, key=lambda s: s.synthetic)
    with left:
        hardware = selection.one("Hardware", unique(s.key.hardware for s in found), key="hardware")
    found = [s for s in found if s.key.hardware == hardware]
    with middle:
        suite = selection.one("Suite", unique(s.key.suite for s in found), key="suite")
    found = [s for s in found if s.key.suite == suite]
    with right:
        workloads = sorted(unique(s.key.workload for s in found), key=text.natural)
        workload = selection.one("Workload", workloads, key="workload")
    found = [s for s in found if s.key.workload == workload]
    metrics = unique(s.key.metric for s in found)  # of a suite that measures several, one at a time
    metric = selection.one("Metric", metrics, key="metric") if len(metrics) > 1 else metrics[0]
    return sorted((s for s in found if s.key.metric == metric), key=lambda s: palette.order(s.key.implementation))


def show_chart(lines: Sequence[Line], shown: Shown, sha: str) -> None:
    every = [level for line in lines for level in line.levels]
    hardware = lines[0].series.key.hardware
    widgets.origins(tonight.newest_by_origin(every), hardware=hardware)
    if not every:
        st.info("Nothing of this has been measured at a commit of the tracked branch.")
        return
    figure = charts.history(
        lines, shown=shown, selected=sha,
        marks=marks.marks(lines, data.environments()), alerts=data.alerts(open_only=False),
    )  # fmt: skip
    st.plotly_chart(figure, key=CHART, on_select=follow_click, selection_mode="points", alt="History over commits")
    if not any(level.middle is not None for level in every):
        st.info("Nothing was timed yet; the marks tell what was tried, and the table of a commit tells why.")


def follow_click() -> None:
    for point in st.session_state[CHART]["selection"]["points"]:
        if sha := point.get("customdata", [""])[0]:
            selection.give("commit", sha)


def unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


main()
