"""Tonight: by hardware and workload, implementations side by side, and what asks for a person's attention."""

from __future__ import annotations

import streamlit as st

from dashboard import charts, data, selection, sheets, text, tonight, traces, widgets, wording
from dashboard.tonight import Section, Wrong
from perfci.model import AbsenceReason
from perfci.store.rows import AlertRow, SeriesRow

SERIES = "views/series.py"
_MOST_LINKS = 10


def main() -> None:
    st.title("Tonight")
    sections = data.tonight()
    wrong = tonight.wrong(sections, data.newest_runs())
    if wrong:
        show_wrong(wrong, {(section.suite, section.hardware) for section in sections})
    lacking = tuple(row for row in data.absences() if row.reason is not AbsenceReason.UNAFFECTED)
    if lacking:
        st.warning(f"**Not measured**\n\n{wording.absences(lacking)}", icon=":material/cloud_off:")
    if not sections:
        st.info(widgets.NOTHING_YET)
        return
    alerts = data.alerts(open_only=True)
    if alerts:
        show_alerts(alerts, {row.id: row for row in data.all_series()})
    elif wrong or lacking:
        st.caption("No open alerts.")
    else:
        newest = max(entry.level.newest_at for section in sections for entry in section.entries)
        told = f"No open alerts, and nothing went wrong. Newest result: {text.moment(newest)}."
        st.success(told, icon=":material/check:")
    with st.columns([1, 2])[0]:
        hardware = selection.one("Hardware", ["all", *dict.fromkeys(s.hardware for s in sections)], key="hardware")
    for number, section in enumerate(sections):
        if hardware in ("all", section.hardware):
            show_section(section, number)
    if idle := tuple(row for row in data.absences() if row.reason is AbsenceReason.UNAFFECTED):
        st.caption(wording.absences(idle))


def show_wrong(wrong: Wrong, with_series: set[tuple[str, str]]) -> None:
    """with_series: suites and hardware that the page of series can show."""
    box = st.error if wrong.incorrect else st.warning
    box(wording.wrong(wrong), icon=":material/error:")
    for run in wrong.runs:
        name = text.as_markdown(f"{run.suite} {text.short(run.commit.sha)} on {run.hardware}")
        if run.log_tail:
            with st.expander(f"{name}: end of the log"):
                st.code(run.log_tail, language=None)
        if (run.suite, run.hardware) in with_series:
            query = {"suite": run.suite, "hardware": run.hardware, "commit": run.commit.sha}
            st.page_link(SERIES, label=f"{name}: its runs", icon=":material/show_chart:", query_params=query)


def show_alerts(rows: tuple[AlertRow, ...], series: dict[int, SeriesRow]) -> None:
    st.subheader(f"{len(rows)} open alert{'' if len(rows) == 1 else 's'}")
    for row in rows[:_MOST_LINKS]:
        change, _, _ = traces.alert_gain(row, series[row.series_id].direction)
        key, commit = row.series, row.commit
        origin = ":orange-badge[synthetic] " if series[row.series_id].synthetic else ""
        told = f"{text.percent(change, signed=True)} {key.implementation}, {key.workload} on {key.hardware}"
        label = origin + text.as_markdown(f"{told}: {text.short(commit.sha)} {commit.subject}")
        query = {"suite": key.suite, "hardware": key.hardware, "workload": key.workload}
        query |= {"implementation": key.implementation, "commit": commit.sha}
        icon = ":material/trending_down:" if change < 0 else ":material/trending_up:"
        st.page_link(SERIES, label=label, icon=icon, query_params=query)
    with st.expander("All of them, with interval and state"):
        widgets.table(sheets.alerts(rows, series), key="alerts")


def show_section(section: Section, number: int) -> None:
    st.subheader(f"{text.as_markdown(section.workload)} on {text.as_markdown(section.hardware)}")
    widgets.origins(section.origins, hardware=section.hardware)
    query = {"suite": section.suite, "hardware": section.hardware, "workload": section.workload}
    picked = st.plotly_chart(
        charts.side_by_side(section), key=f"chart-{number}", on_select="rerun", selection_mode="points",
        config={"displayModeBar": False}, alt=f"Implementations of {section.workload} on {section.hardware}",
    )  # fmt: skip
    for point in picked["selection"]["points"]:
        sha, implementation = point["customdata"][:2]
        st.switch_page(SERIES, query_params=query | {"implementation": implementation, "commit": sha})
    widgets.table(sheets.tonight(section), key=f"table-{number}", dimmed=sheets.says_nothing)
    st.page_link(SERIES, label="History of these", icon=":material/show_chart:", query_params=query)


main()
