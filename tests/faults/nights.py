"""Nights of one team, one after another, each of a commit of its own that nobody else measures."""

from __future__ import annotations

import itertools
from pathlib import Path

from tests.embedded.nights import BENCHMARK
from tests.team.place import HARDWARE, SUITE, Node, Team, until

RUNS = 2
MEASURE = f"{HARDWARE}.measure[0]"
ALL = [(0, "ok"), (1, "ok")]
# A killed worker's task is given up after two minutes, and tried again.
LIMIT_S = 600.0
_numbers = itertools.count(1)

__all__ = ["ALL", "HARDWARE", "MEASURE", "SUITE", "Night", "Nights"]


class Nights:
    """Of a team that is at work."""

    def __init__(self, team: Team) -> None:
        self.team = team
        self._repository = team.repository()

    def commit(self, *, sleep_s: float) -> str:
        """A new one, whose processes take `sleep_s` and a little; its sha."""
        number = next(_numbers)
        text = BENCHMARK.format(sleep_s=sleep_s) + f"# {number}\n"
        return self._repository.commit({"bench/test_sleep.py": text}, f"Commit {number}")

    def begin(self, *, sleep_s: float = 1.0) -> Night:
        """The night of a new commit."""
        return Night(self.team, self.commit(sleep_s=sleep_s))

    def stored(self, sha: str) -> list[tuple[int, str]]:
        """Index and status of what is stored of a commit."""
        return sorted((run.index, run.status.value) for run in self.team.control.runs() if run.commit.sha == sha)


class Night:
    def __init__(self, team: Team, sha: str) -> None:
        self.team, self.sha, self.session = team, sha, f"night-{sha[:9]}"
        self.run = team.control.trigger(session=self.session)

    def measuring(self, node: Node) -> None:
        """Returns when a first process is measured and the second is at work."""
        until(lambda: waiting(node), "a first process is measured", lambda: self.team.control.tasks(self.run))

    def measured(self, node: Node) -> list[bytes]:
        """Returns when the node has measured everything, and what: nobody may have taken it yet."""
        until(lambda: len(waiting(node)) == RUNS, "all is measured", lambda: self.team.control.tasks(self.run))
        return [path.read_bytes() for path in waiting(node)]

    def ended(self, *, limit_s: float = LIMIT_S) -> list[tuple[int, str]]:
        """It succeeded; index and status of what is stored of its commit."""
        state = self.team.control.wait_for_end(self.run, limit_s=limit_s)
        assert state == "success", {name: t.state for name, t in self.team.control.tasks(self.run).items()}
        return self.stored()

    def stored(self) -> list[tuple[int, str]]:
        return sorted((run.index, run.status.value) for run in self.team.control.runs() if run.commit.sha == self.sha)

    def nodes(self) -> set[str]:
        """Where it was measured."""
        return {run.node for run in self.team.control.runs() if run.commit.sha == self.sha}


def waiting(node: Node) -> list[Path]:
    """Results on a node that are not handed over."""
    return sorted(node.settings.outgoing.glob("*/*.perfci.json"))
