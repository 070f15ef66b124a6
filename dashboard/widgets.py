"""What several pages show the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

import pandas as pd
import streamlit as st

from dashboard import palette, text
from dashboard.sheets import Sheet
from perfci.errors import PerfciError
from perfci.model import Origin

NOTHING_YET = (
    "**No measurements yet.** `perfci nightly` measures this machine; `perfci demo --load` shows recorded results "
    "of another one and a synthetic year."
)
_CELL_PX, _CHARACTER_PX = 24, 7  # a cell's padding, and a generous character
_ORIGIN = {
    Origin.MEASURED: ("measured here", "violet", ":material/speed:"),
    Origin.RECORDED: ("recorded", "blue", ":material/history:"),
    Origin.SYNTHETIC: ("synthetic", "orange", ":material/science:"),
}


def origins(found: Iterable[tuple[Origin, datetime]], *, hardware: str) -> None:
    """Where the numbers below come from; beside each chart of them."""
    with st.container(horizontal=True, gap="small"):
        for origin, newest_at in found:
            word, colour, icon = _ORIGIN[origin]
            where = f" on {text.as_markdown(hardware)}, {text.day(newest_at)}"
            made = {Origin.SYNTHETIC: ": made by a generator, not measured"}.get(origin, where)
            # Not st.badge: it escapes brackets once more.
            st.markdown(f":{colour}-badge[{icon} {word}{made}]", width="content")


def table(rows: Sheet, *, key: str, dimmed: Callable[[str], bool] = lambda cell: False) -> None:
    """dimmed: cells that must not catch the eye."""
    styled = pd.DataFrame(rows).style.map(lambda cell: f"color: {palette.NEUTRAL}" if dimmed(cell) else "")
    # The grid gives a column the width of its usual cell, and the unusual status is the one to be read.
    longest = max(len(cell) for cell in ("status", *(row.get("status", "") for row in rows)))
    columns = {"status": st.column_config.Column(width=_CELL_PX + longest * _CHARACTER_PX)}
    st.dataframe(styled, hide_index=True, width="stretch", key=key, column_config=columns)


def error(problem: PerfciError) -> None:
    st.error(
        f"{text.as_markdown(problem.message)}\n\nNext: {text.as_markdown(problem.next_step)}", icon=":material/error:"
    )
