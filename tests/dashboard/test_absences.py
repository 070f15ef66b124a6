"""What a night lacks, on the page of tonight."""

from __future__ import annotations

from datetime import timedelta

import streamlit as st

from perfci.model import AbsenceReason
from perfci.store import writes
from perfci.store.engine import connect
from perfci.store.rows import Absence
from tests.build import EPOCH, H200, a_run
from tests.dashboard.conftest import Home
from tests.dashboard.test_pages import green, healthy, plain, said

HOSTILE = '"[click](javascript:x) :smile: <img src=x>" waits for it'


def tell(home: Home, *absences: Absence, hours: float) -> None:
    engine = connect(home.url)
    writes.record_absences(engine, "night-2", absences, planned=[], at=EPOCH + timedelta(hours=hours))
    engine.dispose()


def test_hardware_that_is_missing_is_said_until_it_is_measured_again(home: Home) -> None:
    home.store(a_run())
    assert green(healthy(home.open()))
    st.cache_data.clear()  # pages keep an answer for half a minute
    tell(home, Absence("kernels", "h200", AbsenceReason.NO_NODE, f"no live node; {HOSTILE}"), hours=24)
    app = healthy(home.open())
    assert not green(app)
    (warning,) = app.warning
    assert "Not measured" in warning.value
    assert "missing: kernels on h200: no live node" in plain(said(app))
    assert "2026-12-02" in plain(said(app))
    assert "[click]" not in warning.value.replace("\\[click\\]", "")
    assert "<img" not in warning.value.replace("\\<img", "")
    st.cache_data.clear()
    home.store(a_run(hardware=H200, started_at=EPOCH + timedelta(hours=25)))
    assert green(healthy(home.open()))


def test_a_night_that_lacks_everything_is_no_empty_page(home: Home) -> None:
    tell(home, Absence("kernels", "h200", AbsenceReason.BUDGET, "1a2b (about 9 min)"), hours=0)
    app = healthy(home.open())
    assert "cut by the budget: kernels on h200: 1a2b" in plain(said(app))


def test_nothing_new_is_no_warning(home: Home) -> None:
    home.store(a_run())
    tell(home, Absence("kernels", "cpu-test-2c", AbsenceReason.UNAFFECTED, "no new commit since 1a2b"), hours=24)
    app = healthy(home.open())
    assert green(app)
    assert not app.warning
    assert "nothing new: kernels on cpu-test-2c: no new commit since 1a2b" in plain(said(app))
