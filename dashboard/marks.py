"""What changed around the code between two commits of a history: environment or harness. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from dashboard.levels import Level, Line
from perfci.model import Environment


class MarkKind(StrEnum):
    ENVIRONMENT = "environment"
    HARNESS = "harness"


@dataclass(frozen=True, slots=True)
class Mark:
    """`position`: the first commit that was measured after the change. label is short, text says all of it."""

    position: int
    kind: MarkKind
    label: str
    text: str

    @property
    def place(self) -> float:
        """Where to draw it: before the commit, not on it, since the commit is not what changed."""
        return self.position - 0.5


def marks(lines: Sequence[Line], environments: Mapping[str, Environment]) -> tuple[Mark, ...]:
    """Each change once, however many lines show it. An environment that is not in `environments` is named by its
    fingerprint."""
    found = [mark for line in lines for a, b in pairwise(line.levels) for mark in _between(a, b, environments)]
    return tuple(sorted(dict.fromkeys(found), key=lambda m: (m.position, m.kind)))


def _between(a: Level, b: Level, environments: Mapping[str, Environment]) -> Iterable[Mark]:
    position = b.commit.position
    if position is None:
        return
    if a.environment != b.environment:
        changes = differences(environments.get(a.environment), environments.get(b.environment))
        told = ", ".join(f"{name} {old or 'none'} → {new or 'none'}" for name, old, new in changes)
        label = ", ".join(name for name, _, _ in changes) or "environment"
        text = told or f"{a.environment[:12]} → {b.environment[:12]}"
        yield Mark(position, MarkKind.ENVIRONMENT, label, f"environment: {text}")
    if a.harness != b.harness:
        yield Mark(position, MarkKind.HARNESS, "harness", f"harness: {a.harness} → {b.harness}")


def differences(old: Environment | None, new: Environment | None) -> tuple[tuple[str, str, str], ...]:
    """(name, old, new) of the versions that differ; empty where either side is unknown."""
    if old is None or new is None:
        return ()
    names = [f.name for f in dataclasses.fields(Environment)]
    return tuple(
        (n.replace("_", " "), getattr(old, n), getattr(new, n)) for n in names if getattr(old, n) != getattr(new, n)
    )
