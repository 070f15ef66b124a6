"""The examples of docs/nodes.md for `launch` measure, with programs that stand in for Slurm, a container and a pod."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest

from perfci.config import HardwareRule
from perfci.model import RunStatus, Status
from tests.bench.jobs import BENCHMARK, a_subject, rows

# srun and apptainer hand folder and environment on; kubectl neither.
STANDS_IN = {
    "srun": 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"',
    "apptainer": 'while [ "${1%.sif}" = "$1" ]; do shift; done; shift; exec "$@"',
    "kubectl": 'while [ "$1" != -- ]; do shift; done; shift; cd /; exec env -i PATH=/usr/bin:/bin "$@"',
}


def examples(repository: Path) -> dict[str, str]:
    """Launch by the program that it begins with."""
    blocks = re.findall(r"```toml\n(.*?)```", (repository / "docs" / "nodes.md").read_text(), re.S)
    launches = [rule["launch"] for block in blocks for rule in tomllib.loads(block)["hardware"].values()]
    return {Path(launch.split()[0]).name: launch for launch in launches}


@pytest.mark.parametrize("program", ["srun", "apptainer", "in-pod"])
def test_an_example_measures(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    script = re.search(r"```sh\n(#!/bin/sh\n# in-pod.*?)```", (repository / "docs" / "nodes.md").read_text(), re.S)
    assert script
    for name, text in {**{n: f"#!/bin/sh\n{t}\n" for n, t in STANDS_IN.items()}, "in-pod": script[1]}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    subject = a_subject(tmp_path / "subject")
    launch = examples(repository)[program].replace("/opt/perfci/in-pod", str(programs / "in-pod"))
    subject.hardware["h200"] = HardwareRule("h200", launch=launch)
    sha = subject.repository.commit({"benchmarks/bench_sort.py": BENCHMARK})
    (run,) = subject.run(sha, hardware="h200", build="echo built >built", run="cat built && pytest benchmarks/*.py")
    assert run.status is RunStatus.OK, run.log_tail
    assert {measurement.status for measurement in rows(run).values()} == {Status.OK}
