"""A built wheel in an empty environment is whole: migrations, DAGs and pages are inside it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MINIMAL = '[suite.some]\nrepo = "."\nrun = "pytest"\n[service]\nairflow_port = 0\ndashboard_port = 0\n'


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    pip(sys.executable, "wheel", "--no-deps", "--no-build-isolation", "-w", str(out), str(repository))
    (built,) = out.glob("perfci-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The python of a fresh environment that has the wheel and what its core needs, and nothing else."""
    folder = tmp_path_factory.mktemp("empty") / "env"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    pip(str(python), "install", "-c", str(repository / "constraints.txt"), str(wheel))
    return python


def pip(python: str, *arguments: str) -> None:
    command = [python, "-m", "pip", "-q", "--disable-pip-version-check", "--no-input", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]


def run(command: list[str | Path], cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=120)


def test_the_wheel_carries_what_the_hosts_need_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for inside in (
        "perfci/py.typed",
        "perfci/artifact.schema.json",
        "perfci/share/dags/nightly.py",
        "perfci/share/dashboard/app.py",
        "perfci/share/migrations/env.py",
    ):
        assert inside in names
    assert [name for name in names if "share/migrations/versions/" in name and name.endswith(".py")]
    assert [name for name in names if name.startswith(("tests/", "kernels/")) or "__pycache__" in name] == []


def test_the_folders_are_found_inside_the_installed_package(installed: Path, tmp_path: Path) -> None:
    code = "from perfci import share; [print(share.folder(name)) for name in ('dags', 'dashboard', 'migrations')]"
    result = run([installed, "-c", code], tmp_path)
    folders = [Path(line) for line in result.stdout.split()]
    assert len(folders) == 3, result.stderr
    assert all(folder.is_relative_to(installed.parents[1]) for folder in folders)


def test_the_command_line_helps_without_any_extra(installed: Path, tmp_path: Path) -> None:
    result = run([installed.with_name("perfci"), "--help"], tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "nightly" in result.stdout


def test_the_database_is_made_from_the_migrations_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "perfci.toml").write_text(MINIMAL)
    result = run([installed.with_name("perfci"), "db", "upgrade"], tmp_path)
    assert result.returncode == 0, result.stderr
    with sqlite3.connect(tmp_path / ".perfci" / "perfci.db") as database:
        tables = {name for (name,) in database.execute("select name from sqlite_master where type = 'table'")}
    assert {"run", "measurement", "series", "alert", "alembic_version"} <= tables


@pytest.mark.parametrize("command", ["up", "demo"])
def test_a_host_that_is_not_installed_is_named_with_its_extra(installed: Path, tmp_path: Path, command: str) -> None:
    """Nothing but the core is here: the commands that start a host say which extra brings it."""
    (tmp_path / "perfci.toml").write_text(MINIMAL)
    result = run([installed.with_name("perfci"), command], tmp_path)
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert "perfci[" in result.stderr
