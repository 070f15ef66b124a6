"""The steps of a night that run on a node: build and measure one job. No database, no secret.

A job is what `nightly.plan` puts into its plan, a JSON object:

    {"suite": "kernels", "repository": "/src/kernels", "sha": "<40 digits>", "position": 41, "subject": "Fuse ...",
     "hardware": "h200", "queue": "", "executor": "", "session": "nightly-20270115T020000Z", "runs": 3,
     "first_index": 0, "expect": [["decode/llama-1b/b1", "modular"], ...], "origin": "measured",
     "definition": {"run": "pytest bench", "paths": ["bench"], ...}, "devices": 1, "priority": 50, "reason": "nightly"}

`definition` is what the suite's table said when it was planned, so that a node's perfci.toml need not have the suite.
`perfci.grants` adds "server", "token" and "bundle" where results are handed over through a server.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfci import artifact, config, toml
from perfci.bench import probe, source, suite
from perfci.config import Settings, Suite
from perfci.errors import DeviceError, ServiceError, SettingsError
from perfci.model import UNMEASURED, Commit, Origin, RunStatus, Status

Echo = Callable[[str], None]
# What a node must know of a suite.
DEFINITION = ("run", "paths", "environment", "build", "results", "runs", "timeout_s", "branch", "devices")
# By the reason for a job; higher goes first.
PRIORITIES = {"pull request": 100, "confirmation": 75, "nightly": 50, "audit": 50, "by hand": 50, "backfill": 25}
IGNORE = "*\n"


def build(config_path: str, job: Mapping[str, Any], *, echo: Echo = print) -> dict[str, Any]:
    """Prepare environment and build of a job's commit; both are cached. A build that fails is told, not raised: the
    job's measurements will say `build_failed`. Returns {"suite", "sha", "ok", "seconds", "log_tail"}."""
    settings = config.load(Path(config_path))
    asked = job_of(settings, job)
    prepare(settings)
    outcome = suite.build(asked, settings, echo=echo)
    return {"suite": job["suite"], "sha": job["sha"], **dataclasses.asdict(outcome)}


def measure(config_path: str, job: Mapping[str, Any], *, out: Path | None = None, echo: Echo = print) -> list[str]:
    """Run a job's processes; returns the paths of their results, which wait in `out`, by default `settings.incoming`.

    May be called again after it was killed: processes whose results wait there are not run twice.
    Raises DeviceError when this node has not the job's hardware or another process uses its GPU, SourceError,
    SuiteError.
    """
    settings = config.load(Path(config_path))
    asked = job_of(settings, job)
    prepare(settings)
    folder = out or settings.incoming
    folder.mkdir(parents=True, exist_ok=True)
    done = finished(folder, asked)
    if done:
        echo(f"{asked.suite.name} {asked.sha[:9]}: {len(done)} of {asked.runs} results are here already")
    left = dataclasses.replace(asked, runs=asked.runs - len(done), first_index=asked.first_index + len(done))
    made = suite.run(left, settings, out=folder, echo=echo) if left.runs else ()
    return [str(path) for path in (*done, *made)]


def finished(folder: Path, job: suite.Job) -> tuple[Path, ...]:
    """Results of the job's first processes that lie in `folder`, without a gap."""
    found: list[Path] = []
    for index in range(job.first_index, job.first_index + job.runs):
        paths = sorted(folder.glob(f"{artifact.name_start(job.session, index)}*{artifact.SUFFIX}"))
        if not paths:
            break
        found.append(paths[0])
    return tuple(found)


def job_of(settings: Settings, job: Mapping[str, Any]) -> suite.Job:
    """Raises SettingsError when the job lacks something or names a suite that neither it nor the settings describe."""
    try:
        return suite.Job(
            suite=_suite(settings, job),
            repository=str(job["repository"]),
            sha=str(job["sha"]),
            session=str(job["session"]),
            runs=int(job["runs"]),
            first_index=int(job["first_index"]),
            expect=tuple((str(workload), str(implementation)) for workload, implementation in job["expect"]),
            origin=Origin(job["origin"]),
            position=job["position"],
            hardware=str(job["hardware"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SettingsError(f"this is no job: {error!r}", next_step="take it from `perfci plan`") from error


def _suite(settings: Settings, job: Mapping[str, Any]) -> Suite:
    """As it was planned: the settings here may be older, newer, or know no suite."""
    name = str(job["suite"])
    if "definition" not in job:
        return settings.suite(name)
    where = "job.definition"
    return toml.built(Suite, where, toml.table(where, job["definition"]), name=name, repo=str(job["repository"]))


def check_gpu(settings: Settings) -> None:
    """Raises DeviceError where this node has none."""
    if not probe.gpu_present():
        here = probe.hardware(settings.hardware).name
        raise DeviceError(f"this node ({here}) has no GPU", next_step="run on a node that has one, or leave out --gpu")


def jobs_by_hand(
    settings: Settings,
    suite_name: str,
    *,
    hardware: str = "",
    repository: str = "",
    revs: Sequence[str] = (),
    last: int = 1,
    runs: int | None = None,
) -> list[dict[str, Any]]:
    """Jobs of one suite without a plan or a database: no benchmark is expected of them by name.

    suite_name: empty for the only one. hardware: what this node has to be, empty for anything. repository: a path,
    URL or bundle instead of the suite's. runs: None for the suite's own number. Raises SettingsError, SourceError.
    """
    if not suite_name and len(settings.suites) != 1:
        known = ", ".join(settings.suites) or "none"
        raise SettingsError("no suite is named", next_step=f"choose one with --suite; perfci.toml has {known}")
    chosen = settings.suite(suite_name or next(iter(settings.suites)))
    chosen = chosen if runs is None else dataclasses.replace(chosen, runs=runs)
    if not repository and not revs:
        source.check_clean(settings.repository(chosen), chosen.files)
    mirror = source.mirror(repository or settings.repository(chosen), settings.cache)
    session = new_session("run", datetime.now(UTC), secrets.token_hex(2))
    target = {"hardware": hardware, "queue": "", "executor": ""}
    jobs: list[dict[str, Any]] = []
    for commit in commits(mirror, chosen, revs=revs, last=last):
        first = sum(job["runs"] for job in jobs)
        reason = "by hand"
        jobs.append(new_job(chosen, mirror, commit, session=session, target=target, first_index=first, reason=reason))
    return jobs


def commits(mirror: source.Mirror, suite: Suite, *, revs: Sequence[str], last: int) -> tuple[Commit, ...]:
    """The named revisions, or the newest `last` commits of the tracked branch; each once, oldest first."""
    if last < 1:
        raise SettingsError(f"--last {last}", next_step="use 1 or more")
    if not revs:
        return mirror.branch(suite.branch, last=last)
    found = dict.fromkeys(mirror.resolve(rev, branch=suite.branch) for rev in revs)
    return tuple(sorted(found, key=lambda commit: commit.position or 0))


def new_job(
    suite: Suite,
    mirror: source.Mirror,
    commit: Commit,
    *,
    session: str,
    target: Mapping[str, str],
    first_index: int,
    expect: Sequence[tuple[str, str]] = (),
    reason: str = "nightly",
) -> dict[str, Any]:
    """target: {"hardware", "queue", "executor"}. expect: (workload, implementation) that its results must have.
    reason: why it is measured, one of PRIORITIES."""
    definition = {key: getattr(suite, key) for key in DEFINITION}
    return {
        "suite": suite.name,
        "repository": mirror.repository,
        "sha": commit.sha,
        "position": commit.position,
        "subject": commit.subject,
        **target,
        "session": session,
        "runs": suite.runs,
        "first_index": first_index,
        "expect": [list(pair) for pair in expect],
        "origin": Origin.MEASURED.value,
        "definition": {key: list(value) if isinstance(value, tuple) else value for key, value in definition.items()},
        "devices": suite.devices,
        "priority": PRIORITIES[reason],
        "reason": reason,
    }


def new_session(kind: str, at: datetime, mark: str) -> str:
    """`mark` tells two of one second apart."""
    return f"{kind}-{at.astimezone(UTC):%Y%m%dT%H%M%SZ}-{mark}"


def exit_code(paths: Iterable[Path]) -> int:
    """0 all well; 1 an incorrect output; 2 something that could not be measured, or nothing at all. Of files that
    this node wrote itself: they are read without being checked again."""
    runs = [json.loads(path.read_text("utf-8"))["run"] for path in paths]
    statuses = {found["status"] for run in runs for found in run["measurements"]}
    if Status.INCORRECT in statuses:
        return 1
    broken = statuses & UNMEASURED or any(run["status"] != RunStatus.OK for run in runs)
    return 2 if broken or not statuses else 0


def prepare(settings: Settings) -> None:
    """Make the state folder, invisible to git: it may lie inside a repository that is under perfci.

    Raises ServiceError when there is no room or no right to.
    """
    ignore = settings.state / ".gitignore"
    try:
        settings.incoming.mkdir(parents=True, exist_ok=True)
        if not ignore.is_file() or ignore.read_text("utf-8") != IGNORE:
            ignore.write_text(IGNORE, "utf-8")
    except OSError as error:
        raise ServiceError(
            f"{error.filename or settings.state}: {error.strerror}", next_step="free some space and make it writable"
        ) from error
