"""One step of a backfill: what it asks for, read from the repository and the database, and told in words."""

from __future__ import annotations

import math
import secrets
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from perfci import budget, config, grants, matrix, measure, workers
from perfci.backfill.halving import Stop, summary, wanted
from perfci.bench import probe, source
from perfci.budget import Allowance, Claim
from perfci.config import Settings, Suite
from perfci.errors import SettingsError, SourceError
from perfci.matrix import Cell, Reason
from perfci.model import AbsenceReason, Commit
from perfci.nightly import NIGHT, opened
from perfci.store import nights, reads, writes
from perfci.store.rows import Absence

# A range of a million commits with forty changes in it is settled before.
STEPS = 60


@dataclass(frozen=True, slots=True)
class _Step:
    """places: of the commits that are measured. settled: nothing is left to be asked for. seconds: of one commit."""

    places: tuple[int, ...]
    absences: tuple[Absence, ...]
    settled: bool
    seconds: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One step of a backfill.

    span: "A..B", two revisions on the tracked branch, the older one first; both are measured. suite: empty for the only
    one. session: empty for a new one. minutes: device time that the whole backfill may take, in place of what the
    hardware has left of its night. asked: commits that earlier steps asked for; what they gave no result of is not
    asked for again. steps: how many there may be, this one included.
    """

    span: str
    hardware: str
    suite: str = ""
    session: str = ""
    minutes: float | None = None
    asked: Sequence[str] = ()
    steps: int = STEPS

    def __post_init__(self) -> None:
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise SettingsError(f"--minutes {self.minutes}", next_step="use more than 0 minutes")


@dataclass(frozen=True, slots=True)
class _Range:
    """stops: the commits that touch the suite's files, oldest first. silent: of those that earlier steps asked for, the
    ones that gave no result."""

    cell: Cell
    mirror: source.Mirror
    stops: tuple[Stop, ...]
    silent: tuple[Commit, ...]


def plan(
    config_path: str, request: Request | Mapping[str, Any], *, dry_run: bool = False, now: datetime | None = None
) -> dict[str, Any]:
    """The next step of a backfill. request: a Request, or the "next" of the step before. dry_run: nothing is told to
    the database, and no job is made ready for a node.

    Returns what `nightly.plan` does and {"next": the Request of the step after this one, None when it is the last,
    "estimate": {"commits", "tried", "seconds"}}, seconds: of one commit, None where not known.
    Raises SettingsError, SourceError, StoreError.
    """
    settings = config.load(Path(config_path))
    at = now or datetime.now(UTC)
    asked_for = request if isinstance(request, Request) else Request(**request)
    cell = _cell(settings, asked_for.suite, asked_for.hardware)
    session = asked_for.session or measure.new_session("backfill", at, secrets.token_hex(2))
    asked_for = replace(asked_for, session=session, suite=cell.suite.name)
    engine = opened(settings)
    try:
        found = _range(engine, settings, cell, asked_for, told=not dry_run)
        step = _step(engine, settings, found, asked_for, at=at)
        jobs = [_job(engine, found, place, session=session) for place in step.places]
        if not dry_run:
            jobs = [grants.granted(job, settings, now=at) for job in jobs]
            writes.record_absences(engine, session, step.absences, planned=[cell.place], at=at)
            there = len(reads.runs(engine, suite=cell.suite.name, session=session))
            writes.record_plan(engine, session, there + sum(int(job["runs"]) for job in jobs), at=at)
    finally:
        engine.dispose()
    asked = (*asked_for.asked, *(job["sha"] for job in jobs))
    more = replace(asked_for, asked=asked, steps=asked_for.steps - 1)
    cut_off = bool(jobs) and more.steps < 1
    return {
        "session": session,
        "jobs": jobs,
        "absences": [asdict(absence) | {"reason": absence.reason.value} for absence in step.absences],
        "notes": summary(found.stops, relevance=settings.policy.relevance) if step.settled else [],
        "problems": ["this is the last step that it may take; start it again to go on"] if cut_off else [],
        "next": asdict(more) | {"asked": list(asked)} if jobs and not cut_off else None,
        "estimate": {
            "commits": len(found.stops),
            "tried": sum(stop.tried for stop in found.stops),
            "seconds": step.seconds,
        },
    }


def unfinished(following: Mapping[str, Any] | None) -> bool:
    return following is not None


def estimated(planned: Mapping[str, Any]) -> str:
    """What a backfill costs, in words."""
    told = planned["estimate"]
    first, commits, tried = len(planned["jobs"]), told["commits"], told["tried"]
    each = told["seconds"]
    rest = commits - tried - first
    steps = math.ceil(math.log2(commits)) if commits > 1 else 0

    def cost(count: int) -> str:
        plural = f"{count} commit{'' if count == 1 else 's'}"
        return plural if each is None else f"{plural}, about {count * each / 60:.1f} device minutes"

    if rest <= 0:
        return f"this step: {cost(first)}; it is the last one"
    unknown = "" if each is not None else "; how long one takes is not known yet"
    return (
        f"this step: {cost(first)}; then up to {cost(min(steps, rest))} for each change in between, "
        f"at most {cost(rest)}{unknown}"
    )


def _cell(settings: Settings, suite: str, hardware: str) -> Cell:
    if not suite and len(settings.suites) != 1:
        known = ", ".join(settings.suites) or "none"
        raise SettingsError("no suite is named", next_step=f"choose one with --suite; perfci.toml has {known}")
    names = [suite or next(iter(settings.suites))]
    here = probe.hardware(settings.hardware, most=1).name
    (cell,) = matrix.matrix(settings, suites=names, hardware=[hardware], here=lambda: here).cells
    return cell


def _range(engine: Engine, settings: Settings, cell: Cell, request: Request, *, told: bool) -> _Range:
    suite = cell.suite
    key = source.deploy_key(settings, suite)
    mirror = source.mirror(settings.repository(suite), settings.cache, key=key)
    first, last = _ends(mirror, suite, request.span)
    branch = mirror.branch(suite.branch, last=_length(mirror, suite) - first + 1)
    if told:
        writes.sync_branch(engine, suite.name, branch)
    commits = [commit for commit in branch if first <= (commit.position or 0) <= last]
    runs = reads.runs(engine, suite=suite.name, hardware=cell.target.hardware, session=request.session)
    ran = {run.commit.sha for run in runs}
    here = ran | {*request.asked}
    tried = reads.measured(engine, *cell.place) | here
    levels = _levels(engine, cell, {commit.sha for commit in commits})
    stops = [
        Stop(commit, tried=commit.sha in tried, here=commit.sha in here, levels=levels.get(commit.sha, {}))
        for commit in _touching(mirror, suite, commits)
    ]
    silent = tuple(commit for commit in commits if commit.sha in {*request.asked} - ran)
    return _Range(cell, mirror, tuple(stops), silent)


def _ends(mirror: source.Mirror, suite: Suite, span: str) -> tuple[int, int]:
    """Positions on the branch."""
    older, dots, newer = span.partition("..")
    if not dots or not older or not newer or newer.startswith("."):
        raise SettingsError(f"{span!r} is no range", next_step="write OLDER..NEWER, two commits of the tracked branch")
    places: list[int] = []
    for rev in (older, newer):
        commit = mirror.resolve(rev, branch=suite.branch)
        if commit.position is None:
            raise SourceError(
                f"{rev} ({commit.sha[:9]}) is not on the branch {suite.branch!r} of {mirror.name}",
                next_step="name a commit of its first-parent history (git log --first-parent)",
            )
        places.append(commit.position)
    if places[0] > places[1]:
        raise SettingsError(f"{older} is newer than {newer}", next_step=f"write {newer}..{older}")
    return places[0], places[1]


def _length(mirror: source.Mirror, suite: Suite) -> int:
    (tip,) = mirror.branch(suite.branch, last=1)
    return tip.position or 0


def _touching(mirror: source.Mirror, suite: Suite, commits: Sequence[Commit]) -> tuple[Commit, ...]:
    """Those whose files are not those of the one before."""
    kept: list[Commit] = []
    before: str | None = None
    for commit in commits:
        tree = mirror.tree(commit.sha, suite.files)
        if not kept or tree is None or tree != before:
            kept.append(commit)
        before = tree
    return tuple(kept)


def _levels(
    engine: Engine, cell: Cell, shas: Collection[str]
) -> Mapping[str, Mapping[str, Mapping[str, tuple[float, ...]]]]:
    """By commit, series and environment."""
    found: dict[str, dict[str, dict[str, tuple[float, ...]]]] = defaultdict(lambda: defaultdict(dict))
    for series in reads.all_series(engine, suite=cell.suite.name, hardware=cell.target.hardware):
        name = f"{series.key.workload} / {series.key.implementation}, {series.key.metric}"
        for point in reads.history(engine, series.id):
            if point.commit.sha in shas and point.median is not None:
                by_era = found[point.commit.sha][name]
                era = f"{point.environment} {point.harness}"
                by_era[era] = (*by_era.pop(era, ()), point.median)  # the newest one last
    return found


def _step(engine: Engine, settings: Settings, found: _Range, request: Request, *, at: datetime) -> _Step:
    cell = found.cell
    places = wanted(found.stops, relevance=settings.policy.relevance)
    process = nights.process_seconds(engine, *cell.place)
    seconds = None if process is None else process * cell.suite.runs
    absent = [f"{matrix.names(found.silent)}: asked for, and nothing came back"] if found.silent else []
    away = workers.here(settings, now=at).absent(cell.target.queue) if places else ""
    if away:
        absent.append(f"{away}; {matrix.names(found.stops[place].commit for place in places)} waits for it")
    allowance = _allowance(engine, settings, cell, session=request.session, minutes=request.minutes, at=at)
    kept, cut = _within(found, () if away else places, allowance, seconds=seconds)
    absences = [Absence(*cell.place, AbsenceReason.NO_NODE, "; ".join(absent))] if absent else []
    return _Step(kept, (*absences, *cut), not places, seconds)


def _allowance(
    engine: Engine, settings: Settings, cell: Cell, *, session: str, minutes: float | None, at: datetime
) -> Allowance | None:
    """Device time that is left for this backfill; None without a limit."""
    hardware = cell.target.hardware
    if minutes is not None:
        return Allowance(minutes * 60, nights.device_seconds(engine, session).get(hardware, 0.0), "for this backfill")
    rule = settings.rule(hardware)
    if rule is None or rule.night_minutes is None:
        return None
    return Allowance(rule.night_minutes * 60, nights.spent(engine, hardware, since=at - NIGHT))


def _within(
    found: _Range, places: Sequence[int], allowance: Allowance | None, *, seconds: float | None
) -> tuple[tuple[int, ...], list[Absence]]:
    """What of a step fits into the allowance, and what is cut."""
    if allowance is None or not places:
        return tuple(places), []
    hardware = found.cell.target.hardware
    priority = measure.PRIORITIES[Reason.BACKFILL]
    claims = [Claim(place, hardware, seconds, priority, 0.0) for place in places]
    split = budget.split(claims, {hardware: allowance})
    if not split.cut:
        return split.kept, []
    told = budget.told(
        split.cut, allowance, left=split.left[hardware], name=lambda key: matrix.names([found.stops[key].commit])
    )
    return split.kept, [Absence(*found.cell.place, AbsenceReason.BUDGET, told)]


def _job(engine: Engine, found: _Range, place: int, *, session: str) -> dict[str, Any]:
    commit, cell = found.stops[place].commit, found.cell
    # Its place in the range, so that no two steps give one number twice.
    number = (commit.position or 0) - (found.stops[0].commit.position or 0)
    return measure.new_job(
        *(cell.suite, found.mirror, commit),
        session=session,
        target=asdict(cell.target),
        first_index=number * cell.suite.runs,
        expect=reads.expected(engine, *cell.place, before=commit.position, but=session),
        reason=Reason.BACKFILL,
    )
