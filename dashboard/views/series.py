"""One workload on one hardware over the commits of its branch; a click on a point shows that commit's runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import streamlit as st

from dashboard import charts, data, levels, marks, palette, selection, sheets, text, tonight, widgets
from dashboard.levels import Line, Shown
from perfci.model import Commit
from perfci.store.rows import SeriesRow

CHART = "history"
_SHOWN = {Shown.TOKENS: "tokens/s", Shown.METRIC: "latency", Shown.CHANGE: "change in per cent"}


def main() -> None:
    st.title("Series")
    everything = data.all_series()
    if not everything:
        st.info(widgets.NOTHING_YET)
        return
    lines = [data.line(series) for series in choose(everything)]
    commits = {lv.commit.sha: lv.commit for line in lines for lv in line.levels}
    left, right = st.columns([1, 2])
    with left:
        shown = selection.one("Show", levels.options(lines), key="show", name=_SHOWN.__getitem__)
    with right:
        sha = selection.one("Commit", ["", *reversed(commits)], key="commit", name=lambda s: told(commits.get(s)))
    show_chart(lines, shown, sha)
    if sha:
        show_commit(lines, commits[sha])
    else:
        st.caption("Click a point, or choose a commit above, to see its runs.")


def choose(everything: Sequence[SeriesRow]) -> list[SeriesRow]:
    """Hardware, suite, workload, implementations, each among what the choice before it left."""
    left, middle, right = st.columns([2, 2, 3])
    found = sorted(everything, key=lambda s: s.synthetic)
    with left:
        hardware = selection.one("Hardware", unique(s.key.hardware for s in found), key="hardware")
    found = [s for s in found if s.key.hardware == hardware]
    with middle:
        suite = selection.one("Suite", unique(s.key.suite for s in found), key="suite")
    found = [s for s in found if s.key.suite == suite]
    with right:
        workload = selection.one("Workload", unique(s.key.workload for s in found), key="workload")
    found = [s for s in found if s.key.workload == workload]
    metric = found[0].key.metric  # a suite that measures several is read one at a time
    if len(metrics := unique(s.key.metric for s in found)) > 1:
        metric = selection.one("Metric", metrics, key="metric")
    found = sorted((s for s in found if s.key.metric == metric), key=lambda s: palette.order(s.key.implementation))
    names = [s.key.implementation for s in found]
    picked = selection.some("Implementations", names, key="implementation", default=names)
    return [s for s in found if s.key.implementation in picked]


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


def show_commit(lines: Sequence[Line], commit: Commit) -> None:
    st.subheader(text.as_markdown(told(commit)))
    key = lines[0].series.key
    found = [(line.series, point) for line in lines for point in data.points(line.series, commit.sha)]
    widgets.table(sheets.processes(found), key="processes")
    runs = data.runs(key.suite, key.hardware, commit.sha)
    known = data.environments()
    for fingerprint in dict.fromkeys(point.environment for _, point in found):
        st.caption(text.as_markdown(f"Environment: {sheets.environment(known.get(fingerprint), fingerprint)}"))
    with st.expander(f"{len(runs)} run{'' if len(runs) == 1 else 's'} and the controls of the newest"):
        widgets.table(sheets.runs(runs), key="runs")
        widgets.table(sheets.controls(data.controls(runs[-1].id) if runs else ()), key="controls")
        for run in runs:
            if run.log_tail:
                st.text(f"{run.session}, process {run.index}: end of the log")
                st.code(run.log_tail, language=None)


def told(commit: Commit | None) -> str:
    return f"{text.short(commit.sha)}  {text.day(commit.committed_at)}  {commit.subject}" if commit else "none"


def unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


main()
