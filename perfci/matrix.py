"""Which suites are measured on which hardware, and which commits of them are due. Pure.

A filter names exactly what it names: what it cannot name is an error, and nothing else is planned beside it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from perfci.config import Settings, Suite
from perfci.errors import SettingsError
from perfci.model import Commit

# Characters of a commit's subject in a sentence.
_SUBJECT = 60


class Reason(StrEnum):
    """Why a job is measured; the values stand in the job."""

    BY_HAND = "by hand"
    NIGHTLY = "nightly"
    AUDIT = "audit"
    BACKFILL = "backfill"


@dataclass(frozen=True, slots=True)
class Target:
    """A class of hardware as a job reaches it."""

    hardware: str
    queue: str = ""
    executor: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """One suite on one class of hardware."""

    suite: Suite
    target: Target

    @property
    def place(self) -> tuple[str, str]:
        return self.suite.name, self.target.hardware


@dataclass(frozen=True, slots=True)
class Matrix:
    """notes: what perfci.toml leaves out here."""

    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Due:
    """commits: to be measured, oldest first. idle: why there is none, though the schedule asked."""

    commits: tuple[Commit, ...]
    reason: Reason
    notes: tuple[str, ...] = ()
    idle: str = ""


def matrix(
    settings: Settings, *, suites: Sequence[str] = (), hardware: Sequence[str] = (), here: Callable[[], str]
) -> Matrix:
    """Suites in the order of perfci.toml (or of the filter) by hardware; empty filters: all that the settings name.

    here: name of this machine's hardware; asked where there is no executor, since everything runs on it then.
    Raises SettingsError for a name that is unknown or cannot be measured, and where nothing is left.
    """
    chosen = [settings.suite(name) for name in dict.fromkeys(suites)] or list(settings.suites.values())
    if not chosen:
        raise SettingsError("perfci.toml names no suite", next_step="add a [suite.NAME] with repo and run")
    targets = _targets(settings, here)
    for name in hardware:
        if name not in {target.hardware for target in targets}:
            raise _unreachable(settings, name, targets)
    wanted = [target for target in targets if not hardware or target.hardware in hardware]
    cells = [Cell(suite, _together(target, suite)) for suite in chosen for target in wanted if _belongs(suite, target)]
    without = [suite for suite in chosen if not any(cell.suite is suite for cell in cells)]
    told = [_elsewhere(suite, wanted) for suite in without]
    # What was asked for by name must not be left out with a mere note.
    if told and (suites or not cells):
        raise SettingsError(told[0], next_step="mend that list, or name another suite or hardware")
    return Matrix(tuple(cells), () if hardware else tuple(told))


def due(
    branch: Sequence[Commit],
    wanted: Sequence[Commit],
    *,
    measured: Collection[str],
    same_files: Callable[[Commit, Commit], bool],
    scheduled: bool,
    quiet: int,
    audit_nights: int,
) -> Due:
    """Which of the `wanted` newest commits of a branch (oldest first, both) are to be measured.

    A person who asks gets the newest one always: its evidence grows. The schedule measures what is new and touches the
    suite's files; after audit_nights nights without, the last measured one again. measured: shas of which something is
    known. quiet: such nights before this one.
    """
    if not scheduled:
        left = [commit for commit in wanted if commit.sha not in measured or commit.sha == branch[-1].sha]
        there = len(wanted) - len(left)
        told = f"{there} of the {len(wanted)} newest commits are measured already"
        return Due(tuple(left), Reason.BY_HAND, (told,) if there else ())
    known = [commit for commit in branch if commit.sha in measured]
    new: list[Commit] = []
    notes: list[str] = []
    for commit in wanted:
        before = _last_before(commit, [*known, *new])
        if commit.sha in measured:
            continue
        if before is not None and same_files(before, commit):
            notes.append(f"{names([commit])} leaves the suite's files as they were at {before.sha[:9]}")
        else:
            new.append(commit)
    if new or not known:
        return Due(tuple(new), Reason.NIGHTLY, tuple(notes))
    if quiet + 1 >= audit_nights:
        told = f"{names(known[-1:])} is measured again, the audit after {quiet} nights without news"
        return Due((known[-1],), Reason.AUDIT, (*notes, told))
    idle = "; ".join(notes) or f"no new commit since {names(known[-1:])}"
    more = audit_nights - 1 - quiet
    return Due((), Reason.NIGHTLY, idle=f"{idle}; {more} more such night{'s' * (more > 1)} until it is measured again")


def names(commits: Iterable[Commit]) -> str:
    """For people."""
    return ", ".join(name(commit.sha, commit.subject) for commit in commits)


def name(sha: str, subject: str) -> str:
    """Of a commit, for people."""
    shown = subject if len(subject) <= _SUBJECT else f"{subject[: _SUBJECT - 1]}…"
    return f'{sha[:9]} "{shown}"'


def _targets(settings: Settings, here: Callable[[], str]) -> tuple[Target, ...]:
    """Without an executor of its own everything runs on this machine's device; with one, on each class of hardware that
    has a queue."""
    executor = settings.service.executor
    if executor and (queued := [rule for rule in settings.hardware.values() if rule.queue]):
        return tuple(Target(rule.name, rule.queue, executor) for rule in queued)
    name = here()
    rule = settings.hardware.get(name)
    return (Target(name, rule.queue if rule else "", executor),)


def _together(target: Target, suite: Suite) -> Target:
    """Several devices are a class of hardware of their own, by the name that a job's process gives them."""
    suffix = f"-x{suite.devices}" if suite.devices > 1 else ""
    return target if target.hardware.endswith(suffix) else replace(target, hardware=target.hardware + suffix)


def _belongs(suite: Suite, target: Target) -> bool:
    return not suite.hardware or target.hardware in suite.hardware


def _elsewhere(suite: Suite, targets: Iterable[Target]) -> str:
    places = ", ".join(target.hardware for target in targets)
    return f"suite {suite.name!r} is for {', '.join(suite.hardware)} (its `hardware`), and this is about {places}"


def _unreachable(settings: Settings, name: str, targets: Sequence[Target]) -> SettingsError:
    known = [target.hardware for target in targets]
    if name in settings.hardware and any(target.queue for target in targets):
        return SettingsError(f"hardware.{name} has no queue", next_step="give it one that its nodes serve")
    if name in settings.hardware:
        return SettingsError(
            f"hardware {name!r} is asked for, and this machine is {known[0]}",
            next_step="run it on a machine that has one, or set service.executor and give each hardware a queue",
        )
    near = difflib.get_close_matches(name, [*settings.hardware, *known], n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(dict.fromkeys([*settings.hardware, *known]))}"
    return SettingsError(f"there is no hardware {name!r}", next_step=hint)


def _last_before(commit: Commit, known: Iterable[Commit]) -> Commit | None:
    place = commit.position or 0
    before = [other for other in known if (other.position or 0) < place]
    return max(before, key=lambda other: other.position or 0, default=None)
