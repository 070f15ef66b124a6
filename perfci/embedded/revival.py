"""Components of the service that have ended by themselves are started again, a few times, with growing waits.

A database that was away for minutes, or a process that was killed, is no reason to take everything else down; a
component that cannot live is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from perfci.supervisor import Ended, Tree

# One that lived this long had come up.
_STEADY_S = 120.0
# Together ten minutes: a database that is away for longer needs a person.
_WAITS_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 30.0, *(60.0 for _ in range(8)))


@dataclass(slots=True)
class Revival:
    """Of the programs in `tree`. Times are seconds of the caller's clock; began: when they were started."""

    tree: Tree
    echo: Callable[[str], None]
    began: float
    _since: dict[str, float] = field(default_factory=dict)
    _failures: dict[str, int] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)

    def tend(self, *, at: float) -> None:
        """Raises ServiceError when a component has ended again and again, or cannot be started."""
        for ended in self.tree.ended():
            self._fallen(ended, at)
        for name in [name for name, due in self._due.items() if due <= at]:
            del self._due[name]
            self._since[name] = at
            self.tree.start_again(name)
            self.echo(f"{name}: started again")

    def _fallen(self, ended: Ended, at: float) -> None:
        problem = self.tree.problem(ended)
        steady = at - self._since.get(ended.name, self.began) > _STEADY_S
        before = 0 if steady else self._failures.get(ended.name, 0)
        if before == len(_WAITS_S):
            raise problem
        self._failures[ended.name] = before + 1
        self._due[ended.name] = at + _WAITS_S[before]
        self.echo(f"{problem.message}; starting it again in {_WAITS_S[before]:g} s")
