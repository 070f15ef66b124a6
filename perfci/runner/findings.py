"""What a check found, in plain words: what, how bad, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    level: Level
    text: str
    next_step: str = ""

    def __str__(self) -> str:
        remedy = f"; {self.next_step}" if self.next_step else ""
        return f"{self.level:<4}  {self.what}: {self.text}{remedy}"


def ok(what: str, text: str) -> Finding:
    return Finding(what, Level.OK, text)


def warn(what: str, text: str, *, next_step: str) -> Finding:
    return Finding(what, Level.WARN, text, next_step)


def fail(what: str, text: str, *, next_step: str) -> Finding:
    return Finding(what, Level.FAIL, text, next_step)


def failed(found: Iterable[Finding]) -> bool:
    return any(finding.level is Level.FAIL for finding in found)
