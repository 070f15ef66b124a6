"""Everything about one commit on one hardware, below a chart of it."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard import data, sheets, text, widgets
from dashboard.levels import Line
from perfci.model import Commit


def commit(chosen: Commit, lines: Sequence[Line]) -> None:
    """The processes of `lines` (which share suite and hardware) at this commit, environment, runs, controls, logs."""
    st.subheader(text.as_markdown(text.commit(chosen)))
    key = lines[0].series.key
    found = [(line.series, point) for line in lines for point in data.points(line.series, chosen.sha)]
    if found:
        widgets.table(sheets.processes(found), key="processes")
    else:
        st.info("Nothing of this was measured at this commit; its runs tell why.")
    known = data.environments()
    for fingerprint in dict.fromkeys(point.environment for _, point in found):
        st.caption(text.as_markdown(f"Environment: {sheets.environment(known.get(fingerprint), fingerprint)}"))
    runs = data.runs(key.suite, key.hardware, chosen.sha)
    # Another session may have measured other workloads since; its controls are not those of the ceiling above.
    shown = {point.run_id for _, point in found}
    measured = [run for run in runs if run.id in shown] or runs
    newest = "newest shown above" if shown else "newest"
    with st.expander(
        f"{len(runs)} run{'' if len(runs) == 1 else 's'} and the controls of the {newest}", expanded=not found
    ):
        widgets.table(sheets.runs(runs), key="runs")
        widgets.table(sheets.controls(data.controls(measured[-1].id) if measured else ()), key="controls")
        for run in runs:
            if run.log_tail:
                st.text(f"{run.session}, process {run.index}: end of the log")
                st.code(run.log_tail, language=None)
