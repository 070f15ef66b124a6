"""What the pages know: the only caller of `perfci.store.reads`, through a connection that cannot write.

Answers are kept for half a minute. A database that is missing, locked, down or of another schema raises
StoreError, which `app.py` shows as a sentence; errors are not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import sqlalchemy as sa
import streamlit as st

from dashboard import levels
from dashboard.levels import Line
from dashboard.tonight import Entry, Section, sections
from perfci import changes, config, results
from perfci.config import Settings
from perfci.model import Control, Environment
from perfci.store import reads, schema
from perfci.store.engine import connect
from perfci.store.rows import AbsenceRow, AlertRow, Point, RunRow, SeriesRow

_KEPT = "30s"
# A person waits; a writer that holds the lock for longer than this is worth a sentence.
_BUSY_TIMEOUT_S = 5.0


def settings() -> Settings:
    return config.load(config.find(Path.cwd()))


def tonight() -> tuple[Section, ...]:
    return _tonight(_url())


def newest_runs() -> tuple[RunRow, ...]:
    """Of the newest commit of each suite and hardware, measured or not."""
    return _newest_runs(_url())


def absences() -> tuple[AbsenceRow, ...]:
    """What the newest nights were to measure and did not, by hardware and suite."""
    return _absences(_url())


def alerts(*, open_only: bool) -> tuple[AlertRow, ...]:
    """Newest first; without those that more data took back."""
    return tuple(row for row in _alerts(_url(), open_only) if changes.stands(row, recovered_too=not open_only))


def all_series() -> tuple[SeriesRow, ...]:
    return _all_series(_url())


def line(series: SeriesRow) -> Line:
    return Line(series, levels.levels(_points(_url(), series.id)))


def points(series: SeriesRow, sha: str) -> tuple[Point, ...]:
    """What was found for a series at one commit."""
    return tuple(point for point in _points(_url(), series.id) if point.commit.sha == sha)


def environments() -> Mapping[str, Environment]:
    return _environments(_url())


def runs(suite: str, hardware: str, sha: str) -> tuple[RunRow, ...]:
    return _runs(_url(), suite, hardware, sha)


def broken_runs(suite: str, hardware: str) -> tuple[RunRow, ...]:
    """At all commits."""
    return _broken_runs(_url(), suite, hardware)


def controls(run_id: int) -> tuple[Control, ...]:
    return _controls(_url(), run_id)


def _url() -> str:
    """Also looks, now and then, whether the database is one that this perfci can read."""
    url = settings().database_url
    _check(url)
    return url


@st.cache_resource(show_spinner=False)
def _engine(url: str) -> sa.Engine:
    return connect(url, read_only=True, busy_timeout_s=_BUSY_TIMEOUT_S)


@st.cache_data(ttl=_KEPT, show_spinner=False)
def _check(url: str) -> None:
    schema.check(_engine(url))


@st.cache_data(ttl=_KEPT, show_spinner=False)
def _tonight(url: str) -> tuple[Section, ...]:
    policy = settings().policy
    newest = reads.latest(_engine(url))
    histories = reads.histories(_engine(url), [series.id for series, _ in newest])
    return sections(
        [_entry(series, points, past, policy) for (series, points), (_, past) in zip(newest, histories, strict=True)]
    )


def _entry(series: SeriesRow, points: tuple[Point, ...], past: tuple[Point, ...], policy: config.Policy) -> Entry:
    alike = results.comparable(points)
    result = results.result(series, points)
    reason = next((p.reason for p in reversed(alike) if p.status is result.status and p.reason), "")
    standing = changes.standing(past, alike[-1].commit, policy=policy)
    return Entry(series, levels.level(alike), result.status, reason, standing)


@st.cache_data(ttl=_KEPT, show_spinner=False)
def _absences(url: str) -> tuple[AbsenceRow, ...]:
    return reads.standing_absences(_engine(url))


@st.cache_data(ttl=_KEPT, show_spinner=False)
def _alerts(url: str, open_only: bool) -> tuple[AlertRow, ...]:
    return reads.alerts(_engine(url), open_only=open_only)


@st.cache_data(ttl=_KEPT, show_spinner=False)
def _all_series(url: str) -> tuple[SeriesRow, ...]:
    return reads.all_series(_engine(url))


@st.cache_data(ttl=_KEPT, show_spinner=False)
def _points(url: str, series_id: int) -> tuple[Point, ...]:
    return reads.history(_engine(url), series_id)


@st.cache_data(ttl=_KEPT, show_spinner=False)
def _environments(url: str) -> dict[str, Environment]:
    return dict(reads.environments(_engine(url)))


@st.cache_data(ttl=_KEPT, show_spinner=False)
def _runs(url: str, suite: str, hardware: str, sha: str) -> tuple[RunRow, ...]:
    return reads.runs(_engine(url), suite=suite, hardware=hardware, sha=sha)


@st.cache_data(ttl=_KEPT, show_spinner=False)
def _newest_runs(url: str) -> tuple[RunRow, ...]:
    return reads.newest_runs(_engine(url))


@st.cache_data(ttl=_KEPT, show_spinner=False)
def _broken_runs(url: str, suite: str, hardware: str) -> tuple[RunRow, ...]:
    return reads.runs(_engine(url), suite=suite, hardware=hardware, broken_only=True)


@st.cache_data(ttl=_KEPT, show_spinner=False)
def _controls(url: str, run_id: int) -> tuple[Control, ...]:
    return reads.controls(_engine(url), run_id)
