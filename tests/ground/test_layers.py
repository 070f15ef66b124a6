"""The contracts of pyproject.toml hold, and each of them can fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT_IMPORTS, "--no-logo", "--no-cache"], cwd=root, capture_output=True, text=True, check=False, timeout=120
    )


def test_the_imports_of_this_repository_go_down_only(repository: Path) -> None:
    result = lint(repository)
    assert result.returncode == 0, result.stdout


@pytest.fixture
def copied(repository: Path, tmp_path: Path) -> Path:
    for package in ("perfci", "kernels", "dags", "dashboard"):
        shutil.copytree(repository / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(repository / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "text", "contract"),
    [
        ("perfci/utils.py", "", "Imports go down only"),
        ("perfci/model.py", "import perfci.config", "Imports go down only"),
        ("perfci/store/rows.py", "import perfci.bench.case", "Imports go down only"),
        ("perfci/config.py", "import streamlit", "The library does not know its hosts"),
        ("perfci/supervisor.py", "import dags", "The library does not know its hosts"),
        ("perfci/model.py", "import sqlalchemy", "The words need the standard library alone"),
        ("perfci/stats/summary.py", "import numpy", "The words need the standard library alone"),
        (
            "perfci/bench/suite.py",
            "import torch",
            "What surrounds the measured process imports no torch and no database",
        ),
        ("perfci/bench/case.py", "import sqlalchemy", "SQL is spoken in the store"),
        ("kernels/registry.py", "import perfci.store", "Kernels know nothing of perfci"),
        ("dags/nightly.py", "import perfci.store.reads", "DAG files are wiring"),
        ("dashboard/charts.py", "import perfci.store.reads", "Pages and charts go through dashboard.data"),
        ("dashboard/data.py", "import perfci.store.writes", "The dashboard reads"),
    ],
)
def test_a_planted_import_breaks_its_contract(copied: Path, file: str, text: str, contract: str) -> None:
    with (copied / file).open("a") as stream:
        stream.write(f"\n{text}\n")
    result = lint(copied)
    assert result.returncode == 1
    assert f"{contract} BROKEN" in result.stdout
