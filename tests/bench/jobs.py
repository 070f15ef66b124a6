"""A repository under perfci in a folder of its own, for tests that build and measure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfci import artifact
from perfci.bench import suite
from perfci.bench.suite import BuildOutcome, Job
from perfci.config import HardwareRule, Settings, Suite
from perfci.model import Measurement, Run
from tests.bench.repositories import Repository

# Rounds are given, so that a test's time does not depend on how pytest-benchmark calibrates.
BENCHMARK = """
import pytest

@pytest.mark.parametrize("size", [10, 1000])
def test_sort(benchmark, size):
    benchmark.pedantic(sorted, args=(list(range(size)),), rounds=20, iterations=10, warmup_rounds=1)
"""


@dataclass
class Subject:
    """What a user has: perfci.toml's folder, and the repository that it names. told: what perfci said."""

    root: Path
    repository: Repository
    told: list[str] = field(default_factory=list)
    hardware: dict[str, HardwareRule] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        return Settings(root=self.root, hardware=self.hardware)

    @property
    def out(self) -> Path:
        return self.root / "out"

    def job(self, sha: str, *, runs: int = 1, expect: tuple[tuple[str, str], ...] = (), **fields: Any) -> Job:
        """Fields of the Job by name, and of its Suite."""
        of_job = {key: fields.pop(key) for key in ("session", "first_index", "position", "hardware") if key in fields}
        of_suite = {
            "name": "subject",
            "repo": str(self.repository.folder),
            "run": "pytest benchmarks/*.py",
            "timeout_s": 120.0,
        }
        measured = Suite(**(of_suite | fields))
        repository = str(self.repository.folder)
        return Job(
            suite=measured, repository=repository, sha=sha, runs=runs, expect=expect, **({"session": "s1"} | of_job)
        )

    def build(self, sha: str, **fields: Any) -> BuildOutcome:
        return suite.build(self.job(sha, **fields), self.settings, echo=self.told.append)

    def run(self, sha: str, **fields: Any) -> list[Run]:
        """The runs as the control plane reads them back."""
        paths = suite.run(self.job(sha, **fields), self.settings, out=self.out, echo=self.told.append)
        return [artifact.read(path).run for path in paths]

    def left(self) -> list[str]:
        """What is in the folder of worktrees, beside its lock."""
        worktrees = self.settings.worktrees
        return sorted(p.name for p in worktrees.iterdir() if p.name != ".lock") if worktrees.exists() else []


def a_subject(folder: Path) -> Subject:
    return Subject(folder, Repository(folder / "subject"))


def rows(run: Run) -> dict[str, Measurement]:
    return {measurement.workload.name: measurement for measurement in run.measurements}
