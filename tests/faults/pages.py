"""Asks what the dashboard's pages ask, in a loop, and writes down how long each answer took.

    python -m tests.faults.pages answers.jsonl      with PERFCI_CONFIG set

Each line: {"page", "seconds", "at"}, and "error" where there was no answer; nothing is kept from one answer to the
next, as for the first visitor in half a minute. Ends on SIGTERM.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path

PAUSE_S = 1.0


def main(out: Path) -> None:
    logging.disable(logging.WARNING)  # Streamlit misses its server
    import streamlit as st

    from dashboard import data
    from perfci.errors import StoreError

    def line() -> object:
        known = data.all_series()
        return data.line(known[len(known) // 2]) if known else None

    pages: dict[str, Callable[[], object]] = {
        "tonight": data.tonight,
        "newest_runs": data.newest_runs,
        "alerts": lambda: data.alerts(open_only=True),
        "all_series": data.all_series,
        "line": line,
    }
    with out.open("a", buffering=1) as stream:
        while True:
            for page, ask in pages.items():
                st.cache_data.clear()
                told: dict[str, object] = {"page": page, "at": time.time()}
                began = time.monotonic()
                try:
                    ask()
                except StoreError as error:
                    told["error"] = str(error)
                stream.write(json.dumps({**told, "seconds": time.monotonic() - began}) + "\n")
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
