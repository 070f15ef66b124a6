"""The nightly run as steps on JSON-able values: plan, (build, measure: see `measure`), ingest, detect, notify.

Each step may be repeated, by Airflow or by hand, and killed at any point:

* plan reads repositories and tells the database where their commits stand on the branch.
* measure leaves results in the incoming folder; ingest stores all that lie there, those of a killed night too.
* detect looks at every series that a session touched; what it finds again it does not report again.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from perfci import budget, changes, config, grants, matrix, measure, workers
from perfci.bench import probe, source
from perfci.budget import Allowance, Claim
from perfci.changes import Change
from perfci.config import Policy, Settings, Suite
from perfci.errors import PerfciError, SourceError
from perfci.ingest import store_files
from perfci.matrix import Cell, Due, Matrix, Reason
from perfci.model import AbsenceReason, Commit, Origin, RunStatus
from perfci.notify import send
from perfci.store import engine as database
from perfci.store import nights, reads, schema, writes
from perfci.store.rows import Absence, AlertRow, NewAlert, SeriesRow
from perfci.workers import Workers

# The newer end of a branch is told to the database; older commits keep the positions that they were told with.
BRANCH_COMMITS = 2000
# Device time that was taken so long before a plan belongs to the same night.
NIGHT = timedelta(hours=12)


def opened(settings: Settings, *, read_only: bool = False) -> Engine:
    """The database with the newest schema. An embedded SQLite file is made and upgraded; a server's schema is its
    administrator's to upgrade. read_only: an existing file is taken as it is. Raises StoreError."""
    url = settings.database_url
    embedded = url.startswith("sqlite:///")
    if embedded and not (read_only and Path(url.removeprefix("sqlite:///")).exists()):
        measure.prepare(settings)
        schema.upgrade(url)
    connection = database.connect(url, read_only=read_only)
    schema.check(connection)
    return connection


@dataclass(frozen=True, kw_only=True, slots=True)
class _Night:
    """What is asked for, and what all parts of a plan share."""

    engine: Engine
    settings: Settings
    session: str
    at: datetime
    workers: Workers
    revs: Sequence[str]
    last: int
    scheduled: bool


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A job that is due, before the budget is asked."""

    cell: Cell
    mirror: source.Mirror
    commit: Commit
    reason: Reason


@dataclass(frozen=True, slots=True)
class _Draft:
    """One suite's part of a plan."""

    cells: tuple[Cell, ...]
    wanted: tuple[_Wanted, ...]
    absences: tuple[Absence, ...]
    notes: tuple[str, ...]


def plan(
    config_path: str,
    *,
    revs: Sequence[str] = (),
    last: int = 1,
    session: str | None = None,
    suites: Sequence[str] = (),
    hardware: Sequence[str] = (),
    scheduled: bool = False,
    now: datetime | None = None,
) -> dict[str, Any]:
    """What this night measures: each suite's newest commit on its tracked branch, or `revs`, or the newest `last` less
    what is measured already; on each hardware, or on those named. `matrix.due` tells what a schedule leaves out.

    Returns {"session", "jobs", "absences", "notes", "problems"}; a job is described in `measure`. An absence is what is
    not measured, for want of a node, of device time or of news: {"suite", "hardware", "reason", "text"}. A suite that
    cannot be planned is a problem beside the others' jobs. Made again for the same session, a plan is the same,
    whatever of it was measured meanwhile. Raises PerfciError when no suite can be planned.
    """
    settings = config.load(Path(config_path))
    at = now or datetime.now(UTC)
    found = matrix.matrix(
        settings, suites=suites, hardware=hardware, here=lambda: probe.hardware(settings.hardware, most=1).name
    )
    engine = opened(settings)
    try:
        night = _Night(
            engine=engine,
            settings=settings,
            session=session or measure.new_session("nightly", at, secrets.token_hex(2)),
            at=at,
            workers=workers.here(settings, now=at),
            revs=revs,
            last=last,
            scheduled=scheduled,
        )
        return _planned(night, found)
    finally:
        engine.dispose()


def _planned(night: _Night, found: Matrix) -> dict[str, Any]:
    drafts: list[_Draft] = []
    failures: list[PerfciError] = []
    for _, cells in groupby(found.cells, key=lambda cell: cell.suite.name):
        try:
            drafts.append(_draft(night, tuple(cells)))
        except PerfciError as error:
            failures.append(error)
    kept, cut = _within_budget(night, [wanted for draft in drafts for wanted in draft.wanted])
    absences = [*(absence for draft in drafts for absence in draft.absences), *cut]
    jobs, unready = _jobs(night, kept)
    if (failures or unready) and not jobs and not absences:
        raise (*failures, *unready)[0]
    planned = [cell.place for draft in drafts for cell in draft.cells]
    writes.record_absences(night.engine, night.session, absences, planned=planned, at=night.at)
    writes.record_plan(night.engine, night.session, sum(int(job["runs"]) for job in jobs), at=night.at)
    notes = (*found.notes, night.workers.note, *(note for draft in drafts for note in draft.notes))
    return {
        "session": night.session,
        "jobs": jobs,
        "absences": [asdict(absence) | {"reason": absence.reason.value} for absence in absences],
        "notes": [note for note in notes if note],
        # A revision that one suite's repository has need not be in another's.
        "problems": [str(error) for error in failures if not (night.revs and isinstance(error, SourceError))]
        + list(dict.fromkeys(map(str, unready))),
    }


def session_of(dag_run: str, at: datetime) -> str:
    """The name of a scheduled night: the same one each time that the step of its plan is tried again."""
    return measure.new_session("nightly", at, hashlib.sha256(dag_run.encode()).hexdigest()[:4])


def _draft(night: _Night, cells: tuple[Cell, ...]) -> _Draft:
    """cells: of one suite."""
    suite, settings = cells[0].suite, night.settings
    repository = settings.repository(suite)
    if not night.revs:
        source.check_clean(repository, suite.files)
    key = source.deploy_key(settings, suite)
    mirror = source.mirror(repository, settings.cache, key=key, stale_ok=night.scheduled)
    branch = mirror.branch(suite.branch, last=max(night.last, BRANCH_COMMITS))
    writes.sync_branch(night.engine, suite.name, branch)
    commits = measure.commits(mirror, suite, revs=night.revs, last=night.last)
    wanted: list[_Wanted] = []
    absences: list[Absence] = []
    notes = [f"{suite.name}: {mirror.stale}"] if mirror.stale else []
    for cell in cells:
        due = _due(night, cell, mirror=mirror, branch=branch, commits=commits)
        notes += [f"{suite.name} on {cell.target.hardware}: {note}" for note in due.notes]
        if away := night.workers.absent(cell.target.queue):
            waiting = matrix.names(due.commits) or "nothing new"
            absences.append(Absence(*cell.place, AbsenceReason.NO_NODE, f"{away}; {waiting} waits for it"))
            continue
        if due.idle:
            text = "; ".join(filter(None, (due.idle, mirror.stale)))
            absences.append(Absence(*cell.place, AbsenceReason.UNAFFECTED, text))
        wanted += [_Wanted(cell, mirror, commit, due.reason) for commit in due.commits]
    return _Draft(cells, tuple(wanted), tuple(absences), tuple(notes))


def _due(
    night: _Night, cell: Cell, *, mirror: source.Mirror, branch: Sequence[Commit], commits: Sequence[Commit]
) -> Due:
    if night.revs:
        return Due(tuple(commits), Reason.BY_HAND)
    # What this session found itself was not known when it was planned first.
    return matrix.due(
        branch,
        commits,
        measured=reads.measured(night.engine, *cell.place, but=night.session),
        same_files=lambda one, other: _same_files(mirror, cell.suite, one, other),
        scheduled=night.scheduled,
        quiet=nights.quiet_nights(night.engine, *cell.place, but=night.session),
        audit_nights=night.settings.policy.audit_nights,
    )


def _same_files(mirror: source.Mirror, suite: Suite, one: Commit, other: Commit) -> bool:
    before, after = (mirror.tree(commit.sha, suite.files) for commit in (one, other))
    return before is not None and before == after


def _within_budget(night: _Night, wanted: Sequence[_Wanted]) -> tuple[list[_Wanted], list[Absence]]:
    """What fits into the device time that each hardware has a night, and what is cut."""
    since = night.at - NIGHT
    allowances: dict[str, Allowance] = {}
    for name in {each.cell.target.hardware for each in wanted}:
        rule = night.settings.rule(name)
        if rule is not None and rule.night_minutes is not None:
            spent = nights.spent(night.engine, name, since=since, but=night.session)
            allowances[name] = Allowance(rule.night_minutes * 60, spent)
    if not allowances:
        return list(wanted), []
    found = budget.split([_claim(night, key, each) for key, each in enumerate(wanted)], allowances)
    cut: list[Absence] = []
    for place, claims in groupby(sorted(found.cut, key=lambda c: c.key), key=lambda c: wanted[c.key].cell.place):
        told = budget.told(
            claims,
            allowances[place[1]],
            left=found.left[place[1]],
            name=lambda key: matrix.names([wanted[key].commit]),
        )
        cut.append(Absence(*place, AbsenceReason.BUDGET, told))
    return [wanted[key] for key in found.kept], cut


def _claim(night: _Night, key: int, each: _Wanted) -> Claim:
    engine, place = night.engine, each.cell.place
    process = nights.process_seconds(engine, *place, but=night.session)
    last = nights.last_started(engine, *place, but=night.session)
    return Claim(
        key=key,
        hardware=each.cell.target.hardware,
        seconds=None if process is None else process * each.cell.suite.runs,
        # Nothing new is the first that a night can do without.
        priority=measure.PRIORITIES[each.reason] - (each.reason is Reason.AUDIT),
        waited=math.inf if last is None else (night.at - last).total_seconds(),
    )


def _jobs(night: _Night, wanted: Sequence[_Wanted]) -> tuple[list[dict[str, Any]], list[SourceError]]:
    """Jobs, and why others have none: their sources cannot be made ready for a node."""
    jobs: list[dict[str, Any]] = []
    unready: list[SourceError] = []
    for each in wanted:
        cell, commit = each.cell, each.commit
        job = measure.new_job(
            *(cell.suite, each.mirror, commit),
            session=night.session,
            target=asdict(cell.target),
            first_index=sum(int(job["runs"]) for job in jobs),
            expect=reads.expected(night.engine, *cell.place, before=commit.position, but=night.session),
            reason=each.reason,
        )
        try:
            jobs.append(grants.granted(job, night.settings, now=night.at))
        except SourceError as error:
            unready.append(error)
    return jobs, unready


def ingest(config_path: str, paths: Sequence[str] | None = None, *, recorded: bool = False) -> dict[str, Any]:
    """Store the named result files, or all that wait in the incoming folder; see `perfci.ingest.store_files`.

    recorded: they were measured elsewhere and delivered.
    """
    settings = config.load(Path(config_path))
    origin = Origin.RECORDED if recorded else None
    named = None if paths is None else [Path(path) for path in paths]
    engine = opened(settings)
    try:
        return store_files(engine, settings, named, origin=origin)
    finally:
        engine.dispose()


def detect(
    config_path: str,
    session: str,
    jobs: Sequence[Mapping[str, Any]] = (),
    *,
    late: Sequence[Sequence[str]] = (),
    synthetic: bool = False,
) -> dict[str, Any]:
    """`detect_in` the database of these settings. jobs: of the night's plan; those that gave less than they were to are
    told as missing, by name. late: sessions of what was stored with this night's results, as each `ingest` told them:
    a node that was away hands in what an earlier night has waited for."""
    settings = config.load(Path(config_path))
    engine = opened(settings)
    try:
        short = _short(engine, session, jobs)
        places = {(str(job["suite"]), str(job["hardware"])) for job in jobs}
        writes.record_absences(
            engine, session, _lost(short), planned=places, at=datetime.now(UTC), reasons=[AbsenceReason.NO_NODE]
        )
        if jobs:
            writes.settle_plan(engine, session, missing=sum(int(job["runs"]) - found for job, found in short))
        others = _others(engine, session, {name for each in late for name in each or ()})
        told = [detect_in(engine, each, policy=settings.policy, synthetic=synthetic) for each in (*others, session)]
        return told[-1] | {"new_alerts": sum(each["new_alerts"] for each in told)}
    finally:
        engine.dispose()


def _others(engine: Engine, session: str, late: Collection[str]) -> list[str]:
    """Of the late sessions as few as together touch every series that one of them has and this night has not."""
    seen = {series.id for series, _ in reads.session_points(engine, session)}
    found: list[str] = []
    for other in sorted({*late} - {session}, reverse=True):
        touched = {series.id for series, _ in reads.session_points(engine, other)}
        if touched - seen:
            found.append(other)
            seen |= touched
    return found


def _short(engine: Engine, session: str, jobs: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], int]]:
    """Jobs that have fewer results than processes, with how many they have; a build that failed has one."""
    short: list[tuple[Mapping[str, Any], int]] = []
    for job in jobs:
        suite, hardware, sha = (str(job[name]) for name in ("suite", "hardware", "sha"))
        found = reads.runs(engine, suite=suite, hardware=hardware, sha=sha, session=session)
        if len(found) < int(job["runs"]) and not any(run.status is RunStatus.BUILD_FAILED for run in found):
            short.append((job, len(found)))
    return short


def _lost(short: Sequence[tuple[Mapping[str, Any], int]]) -> list[Absence]:
    """By suite and hardware, in words."""
    told: dict[tuple[str, str], list[str]] = defaultdict(list)
    for job, found in short:
        name = matrix.name(str(job["sha"]), str(job["subject"]))
        place = (str(job["suite"]), str(job["hardware"]))
        told[place].append(f"{found or 'none'} of {job['runs']} processes of {name}")
    when = "had come back when the night was judged"
    return [Absence(*place, AbsenceReason.NO_NODE, f"{', '.join(each)} {when}") for place, each in told.items()]


def notify(config_path: str, session: str, problems: Sequence[str] = ()) -> dict[str, Any]:
    """Tell the channels of the settings what is new, see `perfci.notify.send`. problems: of the night's plan."""
    settings = config.load(Path(config_path))
    engine = opened(settings)
    try:
        return send(engine, settings, session, now=datetime.now(UTC), problems=problems)
    finally:
        engine.dispose()


def detect_in(engine: Engine, session: str, *, policy: Policy, synthetic: bool = False) -> dict[str, Any]:
    """Look for changes in every series that the session touched, and raise alerts for the relevant ones.

    A change that later commits took back raises none; a known alert learns of it. Generated series are left out
    unless asked for. Returns {"session", "series", "changes", "new_alerts"}. Raises StoreError.
    """
    touched = {series.id: series for series, _ in reads.session_points(engine, session)}
    known = reads.alerts(engine, open_only=False)
    found: list[dict[str, Any]] = []
    alerts: list[NewAlert] = []
    judged = [series.id for series in touched.values() if synthetic or not series.synthetic]
    for series_id, points in reads.histories(engine, judged):
        series = touched[series_id]
        changed = changes.find(points, direction=series.direction, policy=policy)
        positions = sorted({p.commit.position for p in points if p.commit.position is not None})
        of_series = [alert for alert in known if alert.series_id == series.id]
        alerts += _alerts(series, changed, of_series, positions=positions, session=session)
        found += [_told(series, change) for change in changed]
    new = writes.raise_alerts(engine, alerts)
    return {"session": session, "series": len(touched), "changes": found, "new_alerts": new}


def _alerts(
    series: SeriesRow, changed: Sequence[Change], known: Sequence[AlertRow], *, positions: Sequence[int], session: str
) -> list[NewAlert]:
    """Every relevant change as an alert; one that is known keeps the commit that it was reported at."""
    raised: list[NewAlert] = []
    left = list(known)
    for change in changed:
        if not change.relevant:
            continue
        same = [a for a in left if a.kind is change.kind and changes.same_event(change, a.commit, positions=positions)]
        if not same and change.recovered:
            continue
        place = change.commit.position or 0
        at = min(same, key=lambda a: abs((a.commit.position or 0) - place), default=None)
        if at is not None:
            left.remove(at)
        sha = at.commit.sha if at is not None else change.commit.sha
        evidence = _evidence(change) | {"session": session, "found": True}
        raised.append(NewAlert(series.id, sha, change.kind, change.ratio, change.low, change.high, evidence))
    # More data may show that there was no change: people are not asked about it any longer, the record stays.
    raised += [
        NewAlert(series.id, a.commit.sha, a.kind, a.ratio, a.low, a.high, {**a.evidence, "found": False}) for a in left
    ]
    return raised


def _evidence(change: Change) -> dict[str, Any]:
    return {
        "method": "changepoint/1",
        "commit": change.commit.sha,
        "before": change.before.sha,
        "unmeasured_commits": (change.commit.position or 0) - (change.before.position or 0) - 1,
        "step": change.step,
        "recovered": change.recovered,
    }


def _told(series: SeriesRow, change: Change) -> dict[str, Any]:
    interval = {"ratio": change.ratio, "low": change.low, "high": change.high}
    return {
        **asdict(series.key),
        **_evidence(change),
        "kind": change.kind.value,
        "relevant": change.relevant,
        **interval,
    }
