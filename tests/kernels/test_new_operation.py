"""The README's four steps to a new operation are enough: they are carried out here, on a copy, and measured."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"<!-- (append to|write) (kernels/[\w/]+\.py) -->\n```python\n(.*?)```", re.DOTALL)


def carried_out(readme: str, checkout: Path) -> list[str]:
    """Does what the README's blocks say to a checkout; the files that they are for."""
    files = []
    for how, name, code in BLOCK.findall(readme):
        path = checkout / name
        files.append(name)
        path.parent.mkdir(exist_ok=True)
        before = path.read_text() + "\n\n" if how == "append to" else ""
        path.write_text(before + code)
    return files


def test_the_four_steps_of_the_readme_give_a_measured_operation(repository: Path, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(repository / "kernels", checkout / "kernels", ignore=ignored)
    readme = (repository / "kernels" / "README.md").read_text()
    section = readme[readme.index("## Add an operation") :]
    assert re.findall(r"^\*\*(\d)\.", section, re.MULTILINE) == ["1", "2", "3", "4"]
    assert carried_out(section, checkout) == [
        *("kernels/workloads.py", "kernels/norm/truth.py", "kernels/norm/torch_eager.py"),
        *("kernels/registry.py", "kernels/benchmarks/bench_norm.py"),
    ]
    report = tmp_path / "report.json"
    path = os.pathsep.join([str(checkout), str(repository)])
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "kernels/benchmarks/bench_norm.py", "-p", "perfci.bench.plugin"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "PERFCI_REPORT": str(report)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (measured,) = json.loads(report.read_text())["measurements"]
    assert (measured["workload"]["name"], measured["status"]) == ("norm/2048x1024-fp32", "ok")
    assert measured["verified"] is True and 0 < measured["error"] < 1e-6
