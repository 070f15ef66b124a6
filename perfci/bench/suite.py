"""One suite at one commit: made ready, run in fresh processes, a result file for each of them.

The harness is the service's and the subject is the commit's: a measured process imports perfci from a folder
that holds nothing else, and everything else from the commit's checkout and environment.

Standard library alone, with the modules that it imports: a node has no database.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import perfci
from perfci import artifact
from perfci.bench import build as building
from perfci.bench import environment, outcome, ownership, probe, process, rules, sharing
from perfci.bench.build import Inputs, Ready, prepared
from perfci.bench.environment import Echo, Failure, Interpreter, every
from perfci.bench.outcome import Outcome
from perfci.bench.process_report import Pair, line, paragraph
from perfci.bench.source import mirror
from perfci.bench.subject import Subject
from perfci.config import HardwareRule, Settings, Suite
from perfci.errors import DeviceError, SuiteError
from perfci.model import Commit, Environment, Hardware, Origin, Run, RunStatus, Status, Telemetry
from perfci.readers import pytest_benchmark

# What a process leaves, and so many bytes of each are read.
_TAKEN = {"report.json": artifact.MAX_BYTES, "results.json": pytest_benchmark.MAX_BYTES}
# Compiled kernels of so many commits are kept a suite, tens of megabytes each.
KEPT_COMPILED = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """repository: what to fetch from (a bundle file, too). runs: fresh processes, numbered from `first_index`.

    expect: (workload, implementation) that were measured before, so that their absence is told.
    position: of the commit on the tracked branch, where the caller knows it. hardware: what this node has to be
    (a name of the settings); empty: whatever it is.
    """

    suite: Suite
    repository: str
    sha: str
    session: str
    runs: int
    first_index: int = 0
    expect: tuple[Pair, ...] = ()
    origin: Origin = Origin.MEASURED
    position: int | None = None
    hardware: str = ""


@dataclass(frozen=True, slots=True)
class BuildOutcome:
    """ok is False where the commit does not build: its measurements will say so."""

    ok: bool
    cached: bool
    seconds: float
    reason: str = ""
    log_tail: str = ""


@dataclass(frozen=True, slots=True)
class _Place:
    """What a job's runs share."""

    job: Job
    settings: Settings
    commit: Commit
    hardware: Hardware
    devices: frozenset[str]
    launch: str
    out: Path
    echo: Echo


def build(job: Job, settings: Settings, *, echo: Echo) -> BuildOutcome:
    """Make environment and build of a commit, or find them in the cache.

    Raises SourceError, DeviceError, and SuiteError where the disk is full or cannot be written.
    """
    start = time.monotonic()
    with (
        _writable(settings.state),
        prepared(_inputs(job, settings, _device(job, settings)[1]), settings, echo=echo) as ready,
    ):
        seconds = time.monotonic() - start
        if isinstance(ready, Failure):
            failure = _blame(ready, settings.state)
            return BuildOutcome(False, False, seconds, failure.reason, failure.log_tail)
        return BuildOutcome(True, ready.cached, seconds)


def run(job: Job, settings: Settings, *, out: Path, echo: Echo) -> tuple[Path, ...]:
    """Measure a commit in `job.runs` fresh processes; a result file in `out` for each, written as soon as it ends.

    A commit that cannot be built gives one result that says so for every expected name; a process that fails gives
    one too, and the next one still runs.
    Raises SourceError (repository, commit), DeviceError (absent, in use by another process, or lost while one of ours
    ran, which then has no result) and SuiteError (a full disk).
    """
    with _writable(settings.state):
        hardware, launch = _device(job, settings)
        _check_unused(hardware, launch)
        inputs = _inputs(job, settings, launch)
        known = inputs.mirror.resolve(job.sha, branch=job.suite.branch)
        commit = known if job.position is None else replace(known, position=job.position)
        place = _Place(job, settings, commit, hardware, probe.devices(), launch, out, echo)
        started_at = datetime.now(UTC)
        with prepared(inputs, settings, echo=echo) as ready:
            if isinstance(ready, Failure):
                failure = _blame(ready, settings.state)
                echo(f"{job.suite.name} {job.sha[:9]}: {failure.reason}")
                found = outcome.failed(RunStatus.BUILD_FAILED, failure.reason, job.expect)
                own = environment.own(settings.service.runner, settings.service.subject)
                tail = failure.log_tail
                return (_write(place, job.first_index, found, interpreter=own, started_at=started_at, log_tail=tail),)
            indexes = range(job.first_index, job.first_index + job.runs)
            return tuple(_one(place, ready, index, number=n) for n, index in enumerate(indexes, 1))


def _device(job: Job, settings: Settings) -> tuple[Hardware, str]:
    """What this node is and how it wraps commands.

    Behind a `launch` that starts commands elsewhere (srun), the node here need not have the device.
    """
    here = probe.hardware(settings.hardware)
    wanted = job.hardware or here.name
    rule = settings.rule(wanted) or HardwareRule(here.name)
    if wanted == f"{here.name}-x{job.suite.devices}" and not probe.gpu_present():
        here = replace(here, name=wanted)  # processors are one device, whatever a job claims
    if rule.launch != "{cmd}":
        program = shlex.split(rule.launch)[0]
        if "{cmd}" not in program and shutil.which(program) is None:
            raise DeviceError(
                f"hardware.{rule.name}.launch = {rule.launch!r}: there is no program {program!r} on this node",
                next_step="install it or mend `launch`",
            )
        name = job.hardware or rule.name
        return (here if here.name == name else Hardware(name, rule.match, job.suite.devices)), rule.launch
    if job.hardware and job.hardware != here.name:
        raise DeviceError(
            f"hardware {job.hardware!r} is asked for, and this node is {here.name} ({here.model})",
            next_step="run it on a node that has one",
        )
    return here, rule.launch


def _check_unused(hardware: Hardware, launch: str) -> None:
    """A build may share the device, a measurement may not."""
    if launch == "{cmd}" and (others := probe.other_processes()):
        raise DeviceError(
            f"{hardware.name} is in use by {', '.join(others)[:200]}", next_step="end that process or wait for it"
        )


def _check_kept(place: _Place, name: str, tail: str) -> None:
    """What a process says whose device was lost is about the node, whatever it took for the cause; and the next one
    would be measured on the CPU."""
    if lost := place.devices - probe.devices():
        said = f", and it said: {line(tail.splitlines()[-1])}" if tail else ""
        raise DeviceError(
            f"{name}: {', '.join(sorted(lost))} of {place.hardware.name} was lost while it ran{said}",
            next_step="nothing of it was kept; look for Xid in the node's kernel log and reset or replace the device",
        )


def _inputs(job: Job, settings: Settings, launch: str) -> Inputs:
    source = mirror(job.repository, settings.cache, needs=job.sha)
    commit = source.resolve(job.sha)
    return Inputs(suite=job.suite, mirror=source, sha=commit.sha, session=job.session, launch=launch)


def _one(place: _Place, ready: Ready, index: int, *, number: int) -> Path:
    """One fresh process and its result file."""
    job, echo = place.job, place.echo
    name = f"{job.suite.name} {place.commit.sha[:9]}: process {number} of {job.runs}"
    subject = ready.interpreter.subject
    left, mine = ready.folder / f"process-{index}", ready.folder / f"process-{index}-taken"
    mine.mkdir()
    sharing.share(left, subject)
    echo(f"{name}: {job.suite.run}")
    with _compiled(place, subject) as compiled:
        ended = process.run(
            process.wrapped(job.suite.run, place.launch),
            folder=ready.source,
            environment=_process_environment(place, ready, left, index=index) | compiled,
            timeout_s=job.suite.timeout_s,
            log=mine / "output.log",
            progress=every(15, lambda elapsed, last: echo(f"{name}: {elapsed:.0f} s, {last}")),
            subject=subject,
        )
    _check_kept(place, name, ended.tail)
    for file, limit in _TAKEN.items():
        sharing.take(left / file, mine / file, subject=subject, limit=limit)
    found = outcome.judge(ended, mine / "report.json", mine / "results.json", expect=job.expect)
    echo(f"{name}: {_summary(found, ended)}")
    if found.status is RunStatus.ERROR:
        _blame(Failure(f"{job.suite.run} {ended.how()}", ended.tail), place.settings.state)
    tail = "" if found.status is RunStatus.OK else ended.tail
    return _write(place, index, found, interpreter=ready.interpreter, started_at=ended.started_at, log_tail=tail)


def _process_environment(place: _Place, ready: Ready, folder: Path, *, index: int) -> dict[str, str]:
    job, settings = place.job, place.settings
    options = (
        *("-p", "perfci.bench.plugin", "-p", "no:cacheprovider", f"--rootdir={ready.source}"),
        f"--benchmark-json={folder / 'results.json'}",
    )
    # Fresh inputs for each process, and the same ones when it is run again.
    seed = int.from_bytes(hashlib.sha256(f"{job.session} {index}".encode()).digest()[:4], "big") >> 1
    before = () if job.suite.build else (str(ready.source),)  # a build's overlay has the checkout in its own order
    told = {key: os.environ[key] for key in ("PERFCI_NODE", "PERFCI_IMAGE") if key in os.environ}
    return (
        building.command_environment(ready.interpreter, home=ready.folder / "home")
        | told
        | {
            "PYTHONPATH": os.pathsep.join((str(_harness(settings.cache)), *before)),
            "PYTEST_ADDOPTS": shlex.join(options),
            "PERFCI_REPORT": str(folder / "report.json"),
            "PERFCI_SEED": str(seed),
            "PERFCI_INDEX": str(index),
        }
    )


@contextmanager
def _compiled(place: _Place, subject: Subject | None) -> Iterator[dict[str, str]]:
    """Where a commit's compiled kernels are kept. For a subject of its own it is open while that commit runs, and
    closed to the code of all others."""
    folder = place.settings.cache / "compiled" / place.job.suite.name
    _trim(folder, subject, keep=KEPT_COMPILED)
    mine = folder / place.commit.sha
    sharing.share(mine, subject, deep=False)
    mine.touch()
    try:
        yield {"TRITON_CACHE_DIR": str(mine / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(mine / "inductor")}
    finally:
        if subject:
            mine.chmod(0o700)


def _harness(cache: Path) -> Path:
    """A folder for PYTHONPATH that holds perfci and nothing that lies beside it in a checkout."""
    package = Path(perfci.__file__).resolve().parent
    folder = cache / "harness" / hashlib.sha256(str(package).encode()).hexdigest()[:16]
    if not (folder / "perfci").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        new = folder / f".new-{os.getpid()}"
        new.symlink_to(package, target_is_directory=True)
        new.replace(folder / "perfci")
    return folder


def _trim(folder: Path, subject: Subject | None, *, keep: int) -> None:
    if folder.is_dir():
        for old in sorted(folder.iterdir(), key=lambda p: p.stat().st_mtime, reverse=True)[keep:]:
            sharing.share(old, subject, deep=False)
            sharing.reopen(old, subject)
            ownership.remove_tree(old)


def _write(
    place: _Place, index: int, found: Outcome, *, interpreter: Interpreter, started_at: datetime, log_tail: str
) -> Path:
    job, report = place.job, found.report
    # Behind a `launch` the process says where it ran, the settings what that is called. Here it need not be believed:
    # it runs a commit's code, and what a hardware is holds for all suites.
    elsewhere = report is not None and place.launch != "{cmd}"
    hardware = probe.named(report.hardware, place.settings.hardware) if report and elsewhere else place.hardware
    made = Run(
        suite=job.suite.name,
        commit=place.commit,
        hardware=hardware,
        node=report.node if report and elsewhere else probe.node(),
        environment=report.environment if report else _asked(interpreter),
        session=line(job.session),
        index=index,
        origin=job.origin,
        status=found.status,
        harness=report.harness if report else rules.harness(),
        started_at=started_at,
        finished_at=datetime.now(UTC),
        measurements=found.measurements,
        controls=report.controls if report else (),
        telemetry=report.telemetry if report else Telemetry(),
        reason=paragraph(found.reason),
        log_tail=paragraph(log_tail),
    )
    with _writable(place.out):
        return artifact.write(made, place.out)


def _asked(interpreter: Interpreter) -> Environment:
    return probe.environment(str(interpreter.python), subject=interpreter.subject)


def _summary(found: Outcome, ended: process.Ended) -> str:
    counts = {status: sum(m.status is status for m in found.measurements) for status in Status}
    parts = [f"{count} {'measured' if status is Status.OK else status}" for status, count in counts.items() if count]
    seconds = (ended.finished_at - ended.started_at).total_seconds()
    return f"{', '.join(parts) or 'nothing'} in {seconds:.0f} s" + (f" ({found.reason})" if found.reason else "")


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """Turns a full or read-only disk into one line."""
    try:
        yield
    except OSError as error:
        place, problem = error.filename or folder, error.strerror or error
        raise SuiteError(f"{place}: {problem}", next_step=f"make room for {folder} or mend its rights") from error


def _blame(failure: Failure, state: Path) -> Failure:
    """A failure that is the commit's. Raises SuiteError for one that is the disk's."""
    full = os.strerror(errno.ENOSPC)
    if full in failure.log_tail:
        raise SuiteError(f"{failure.reason}: {full}", next_step=f"make room for {state}")
    return failure
