"""The dashboard: `streamlit run` this file. Navigation, and the one place where an error becomes a sentence.

The pages are in `views`, not in `pages`: a folder of that name beside this file makes Streamlit run a page by itself,
past this file, when the first request of a new server is a deep link.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard import widgets
from perfci.errors import PerfciError

# A file of our own: Streamlit would have the browser fetch an icon by name from the internet.
st.set_page_config(page_title="perfci", page_icon=str(Path(__file__).with_name("icon.svg")), layout="wide")
# Streamlit leaves a hand's breadth free under its top bar, and cuts long links.
STYLE = """
.stMainBlockContainer { padding-top: 3.5rem; padding-bottom: 2rem; }
[data-testid="stPageLink"] p { white-space: normal; }
"""
st.html(f"<style>{STYLE}</style>")
page = st.navigation(
    [
        st.Page("views/overview.py", title="Tonight", icon=":material/bedtime:", default=True),
        st.Page("views/series.py", title="Series", icon=":material/show_chart:", url_path="series"),
    ],
    position="top",
)
try:
    page.run()
except PerfciError as problem:
    widgets.error(problem)
