"""What a session found, put together from the database for `report`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Engine

from perfci import changes, report
from perfci.config import Policy, Settings
from perfci.errors import StoreError
from perfci.model import Status
from perfci.nightly import opened
from perfci.report import Night, Row, Section, gain
from perfci.results import broken, comparable, result, spread
from perfci.store import nights, progress, reads
from perfci.store.rows import Absence, AlertRow, Point, RunRow, SeriesRow

_CLASS = re.compile(r"^[\w.]*Error: ")


def night(
    engine: Engine, session: str, *, policy: Policy, notes: Sequence[str] = (), problems: Sequence[str] = ()
) -> Night:
    """Sections by suite, hardware and commit; a row rests on all evidence of its commit up to this session, so that
    the report of an earlier night stays what it was. Raises StoreError."""
    touched = reads.session_points(engine, session)
    ids = {series.id for series, _ in touched}
    alerts = tuple(a for a in reads.alerts(engine) if a.series_id in ids and changes.stands(a))
    runs = _runs(engine, session, touched)
    histories = dict(reads.histories(engine, sorted(ids), off_branch=True))
    sections = []
    for suite, hardware, sha in dict.fromkeys((r.suite, r.hardware, r.commit.sha) for r in runs):
        of_commit = [r for r in runs if (r.suite, r.hardware, r.commit.sha) == (suite, hardware, sha)]
        series = dict.fromkeys(
            s for s, p in touched if (s.key.suite, s.key.hardware, p.commit.sha) == (suite, hardware, sha)
        )
        sections.append(
            Section(
                suite=suite,
                commit=sha,
                subject=of_commit[0].commit.subject,
                hardware=hardware,
                processes=len(of_commit),
                rows=tuple(
                    _row(s, histories[s.id], sha, session=session, policy=policy, alerts=alerts) for s in series
                ),
                failed=broken(of_commit),
            )
        )
    return Night(
        session,
        tuple(sections),
        alerts,
        tuple(notes),
        tuple(problems),
        absences=reads.absences(engine, session),
        device_seconds=nights.device_seconds(engine, session),
        progress=progress.of(engine, session),
    )


def announced(planned: Mapping[str, Any]) -> tuple[str, ...]:
    """What a plan is about to do, a line a job."""
    jobs = [
        f'{job["suite"]} {job["sha"][:9]} "{job["subject"]}" on {job["hardware"]}, {_processes(job["runs"])}'
        for job in planned["jobs"]
    ]
    absences = [report.absence_text(Absence(**told)) for told in planned.get("absences", ())]
    return (*(f"to measure: {job}" for job in jobs), *absences, *planned["notes"], *planned["problems"])


def after(settings: Settings, planned: Mapping[str, Any], *, failed: Sequence[tuple[str, str]] = ()) -> Night:
    """The night of a plan. failed: steps that perfci itself could not do, each with the end of its log."""
    problems = [*planned.get("problems", ()), *(f"{step}: {_error(log)}" for step, log in failed)]
    engine = opened(settings, read_only=True)
    return night(engine, planned["session"], policy=settings.policy, notes=planned.get("notes", ()), problems=problems)


def newest(settings: Settings) -> str:
    """Name of the night that began last. Raises StoreError where there is none."""
    session = reads.newest_session(opened(settings, read_only=True))
    if session is None:
        raise StoreError("no night is in the database yet", next_step="perfci nightly makes one")
    return session


def _processes(count: int) -> str:
    return f"{count} process{'es' if count != 1 else ''}"


def _error(log: str) -> str:
    """An error of perfci is one line; Python puts the name of its class before it."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    telling = [line for line in lines if _CLASS.match(line)] or lines or ["it left no log"]
    return _CLASS.sub("", telling[-1])


def _runs(engine: Engine, session: str, touched: Sequence[tuple[SeriesRow, Point]]) -> tuple[RunRow, ...]:
    suites = [row.name for row in reads.suites(engine)]
    found = [run for suite in suites for run in reads.runs(engine, suite=suite, session=session)]
    return tuple(sorted(found, key=lambda r: (r.suite, r.hardware, r.commit.position or 0, r.commit.sha, r.index)))


def _row(
    series: SeriesRow,
    history: Sequence[Point],
    sha: str,
    *,
    session: str,
    policy: Policy,
    alerts: Sequence[AlertRow],
) -> Row:
    of_commit = [p for p in history if p.commit.sha == sha]
    tonight = [p for p in of_commit if p.session == session]
    own = [p for p in of_commit if p.started_at <= max(p.started_at for p in tonight)]
    alike = comparable(own)
    past = changes.standing(history, own[0].commit, policy=policy)
    telling = [p for p in own if p.session == session or p.status is Status.INCORRECT]
    reasons = dict.fromkeys(p.reason for p in telling if p.status is not Status.OK and p.reason)
    return Row(
        result=result(series, own),
        spread=spread(alike),
        gain=None if past.ratio is None else gain(past.ratio, series.direction),
        past=past.commits,
        verdict=past.verdict,
        reasons=tuple(reasons),
        alerts=tuple(a.id for a in alerts if a.series_id == series.id),
    )
