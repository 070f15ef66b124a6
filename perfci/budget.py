"""What of a night's jobs fits into the device time that a hardware may take. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Allowance:
    """Device seconds that may be taken, and what was taken already. per: of what, in words."""

    seconds: float
    spent: float = 0.0
    per: str = "a night"

    @property
    def left(self) -> float:
        return max(0.0, self.seconds - self.spent)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a job asks for. key: whose it is. seconds: estimate; None where nothing is known, which is never cut.
    priority: more is more urgent. waited: greater for what had its last turn longer ago."""

    key: int
    hardware: str
    seconds: float | None
    priority: int
    waited: float


@dataclass(frozen=True, slots=True)
class Split:
    """kept: keys of what fits, in the order in which they were claimed. left: device seconds, by hardware."""

    kept: tuple[int, ...]
    cut: tuple[Claim, ...]
    left: Mapping[str, float]


def split(claims: Sequence[Claim], allowances: Mapping[str, Allowance]) -> Split:
    """Urgent ones first, of equal ones what has waited longest, then in the order given. A claim that does not fit does
    not stop a smaller one after it: it will have waited longest the next night, and is the first one then."""
    left = {hardware: allowance.left for hardware, allowance in allowances.items()}
    cut: list[Claim] = []
    for claim in sorted(claims, key=lambda claim: (-claim.priority, -claim.waited)):
        if claim.hardware not in left or claim.seconds is None:
            continue
        if claim.seconds > left[claim.hardware]:
            cut.append(claim)
        else:
            left[claim.hardware] -= claim.seconds
    dropped = {claim.key for claim in cut}
    return Split(tuple(claim.key for claim in claims if claim.key not in dropped), tuple(cut), left)


def told(claims: Iterable[Claim], allowance: Allowance, *, left: float, name: Callable[[int], str]) -> str:
    """What was cut on one hardware, in words. name: of a claim's key."""
    each = ", ".join(f"{name(claim.key)} (about {_minutes(claim.seconds or 0.0)} min)" for claim in claims)
    whole, spent = _minutes(allowance.seconds), _minutes(allowance.spent)
    before = f"of {whole} device minutes {allowance.per} {spent} were spent before it"
    return f"{each}: {before}, and {_minutes(left)} are left beside what comes first"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f}".removesuffix(".0")
