"""The nightly run as steps on JSON-able values: plan, (build, measure: see `measure`), ingest, detect.

Each step may be repeated, by Airflow or by hand, and killed at any point:

* plan reads repositories and tells the database where their commits stand on the branch.
* measure leaves results in the incoming folder; ingest stores all that lie there, those of a killed night too.
* detect looks at every series that a session touched; what it finds again it does not report again.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from perfci import changes, config, measure
from perfci.bench import probe, source
from perfci.changes import Change
from perfci.config import Policy, Settings, Suite
from perfci.errors import PerfciError, SettingsError, SourceError
from perfci.ingest import store_files
from perfci.model import Origin
from perfci.store import engine as database
from perfci.store import reads, schema, writes
from perfci.store.rows import AlertRow, NewAlert, SeriesRow

# The newer end of a branch is told to the database; older commits keep the positions that they were told with.
BRANCH_COMMITS = 2000


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


def plan(
    config_path: str,
    *,
    revs: Sequence[str] = (),
    last: int = 1,
    session: str | None = None,
    suites: Sequence[str] = (),
) -> dict[str, Any]:
    """What this night measures: each suite's newest commit on its tracked branch, or `revs`, or the newest `last` less
    what is measured already. The newest one is always measured: its evidence grows.

    Returns {"session", "jobs", "notes", "problems"}; a job is described in `measure`. A suite that cannot be planned
    is a problem beside the others' jobs. Raises PerfciError when no suite can be planned.
    """
    settings = config.load(Path(config_path))
    chosen = [settings.suite(name) for name in suites] or list(settings.suites.values())
    if not chosen:
        raise SettingsError(f"{config_path} names no suite", next_step="add a [suite.NAME] with repo and run")
    engine = opened(settings)
    made: dict[str, Any] = {
        "session": session or measure.new_session("nightly", datetime.now(UTC), secrets.token_hex(2)),
        "jobs": [],
        "notes": [],
        "problems": [],
    }
    failures: list[PerfciError] = []
    for suite in chosen:
        try:
            _plan_suite(engine, settings, suite, made, revs=revs, last=last)
        except PerfciError as error:
            failures.append(error)
    if failures and not made["jobs"]:
        raise failures[0]
    made["problems"] = [str(error) for error in failures if not (revs and isinstance(error, SourceError))]
    return made


def _plan_suite(
    engine: Engine, settings: Settings, suite: Suite, made: dict[str, Any], *, revs: Sequence[str], last: int
) -> None:
    repository = settings.repository(suite)
    if not revs:
        source.check_clean(repository, suite.files)
    mirror = source.mirror(repository, settings.cache)
    branch = mirror.branch(suite.branch, last=max(last, BRANCH_COMMITS))
    writes.sync_branch(engine, suite.name, branch)
    wanted = measure.commits(mirror, suite, revs=revs, last=last)
    for target in targets(settings):
        known = frozenset() if revs else reads.measured(engine, suite.name, target["hardware"]) - {branch[-1].sha}
        left = [commit for commit in wanted if commit.sha not in known]
        if len(left) < len(wanted):
            made["notes"].append(
                f"{suite.name}: {len(wanted) - len(left)} of the {len(wanted)} newest commits are measured on "
                f"{target['hardware']} already"
            )
        for commit in left:
            expect = reads.expected(engine, suite.name, target["hardware"], before=commit.position)
            first_index = sum(int(job["runs"]) for job in made["jobs"])
            made["jobs"].append(
                measure.new_job(
                    *(suite, mirror, commit),
                    session=made["session"],
                    target=target,
                    first_index=first_index,
                    expect=expect,
                )
            )


def targets(settings: Settings) -> tuple[dict[str, str], ...]:
    """The hardware of a night. Without an executor of its own everything runs on this machine's device; with one, on
    each class of hardware that has a queue."""
    executor = settings.service.executor
    if executor and (queued := [rule for rule in settings.hardware.values() if rule.queue]):
        return tuple({"hardware": rule.name, "queue": rule.queue, "executor": executor} for rule in queued)
    name = probe.hardware(settings.hardware).name
    rule = settings.hardware.get(name)
    return ({"hardware": name, "queue": rule.queue if rule else "", "executor": executor},)


def ingest(config_path: str, paths: Sequence[str] | None = None, *, recorded: bool = False) -> dict[str, Any]:
    """Store the named result files, or all that wait in the incoming folder; see `perfci.ingest.store_files`.

    recorded: they were measured elsewhere and delivered.
    """
    settings = config.load(Path(config_path))
    origin = Origin.RECORDED if recorded else None
    named = None if paths is None else [Path(path) for path in paths]
    return store_files(opened(settings), settings, named, origin=origin)


def detect(config_path: str, session: str, *, synthetic: bool = False) -> dict[str, Any]:
    """`detect_in` the database of these settings."""
    settings = config.load(Path(config_path))
    engine = opened(settings)
    try:
        return detect_in(engine, session, policy=settings.policy, synthetic=synthetic)
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
    for series in touched.values():
        if series.synthetic and not synthetic:
            continue
        points = reads.history(engine, series.id)
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
