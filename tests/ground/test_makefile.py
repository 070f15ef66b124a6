"""The set-up says what it lacks, in one line, before it touches anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import psutil
import pytest

TARGETS = ("nightly", "up", "demo", "test", "check")


def make(folder: Path, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")} | ({"PATH": path} if path else {})
    return subprocess.run(
        ["make", *arguments], cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def bare(repository: Path, tmp_path: Path) -> Path:
    """A folder with the Makefile and no .venv."""
    folder = tmp_path / "a clone"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(repository / name, folder)
    return folder


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_help_lists_every_target(repository: Path) -> None:
    listed = make(repository, "help").stdout
    assert all(f"make {target} " in listed for target in TARGETS)


@pytest.fixture
def old_python(tmp_path: Path) -> str:
    """A PATH whose only Python is too old."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program(programs, "python3", "echo 3.9.2")
    for name in ("python3.11", "python3.12"):  # as a version switch leaves them: on the PATH, but not to be run
        program(programs, name, "echo 'not installed' >&2; exit 127")
    return f"{programs}:{os.environ['PATH']}"


def test_a_python_that_is_too_old_is_named_with_its_version(bare: Path, old_python: str) -> None:
    result = make(bare, "setup", path=old_python)
    assert result.returncode == 2
    assert [line for line in result.stdout.splitlines() if "3.9.2" in line and "3.11 or 3.12" in line]
    assert not (bare / ".venv").exists()


def test_ci_calls_make_test(repository: Path) -> None:
    lines = [
        line for line in (repository / ".ci" / "run").read_text().splitlines() if line and not line.startswith("#")
    ]
    assert lines[-1].startswith("exec make test")
    assert len(lines) == 4


@pytest.fixture
def current(bare: Path) -> Path:
    """A folder whose set-up is done, as far as the Makefile can see."""
    programs = bare / ".venv" / "bin"
    programs.mkdir(parents=True)
    program(programs, "python", "exit 0")
    script = "{ cat pyproject.toml constraints.txt; pwd -P; } | sha256sum | cut -d' ' -f1"
    stamp = subprocess.run(script, shell=True, cwd=bare, capture_output=True, text=True, check=True).stdout
    (bare / ".venv" / ".ready").write_text(stamp)
    (bare / ".venv" / ".folder").write_text(f"{bare.resolve()}\n")
    return bare


def test_a_set_up_that_is_current_is_left_alone(current: Path) -> None:
    """The stamp is checked by content: a `touch`, as git makes on a checkout, installs nothing again."""
    os.utime(current / "pyproject.toml")
    result = make(current, "setup")
    assert (result.returncode, result.stdout) == (0, "")


def test_a_copied_folder_is_set_up_anew(current: Path, old_python: str, tmp_path: Path) -> None:
    """Scripts of a .venv name their interpreter by its path: those of a copy would run the original's."""
    copy = shutil.copytree(current, tmp_path / "copy")
    result = make(copy, "setup", path=old_python)
    assert (result.returncode, "3.9.2" in result.stdout) == (2, True)
    assert not (copy / ".venv").exists()


@pytest.mark.parametrize("left", [".incomplete", ".ready"])
def test_a_set_up_that_was_interrupted_is_not_taken_for_done(current: Path, old_python: str, left: str) -> None:
    (current / ".venv" / ".incomplete").touch()
    if left == ".incomplete":
        (current / ".venv" / ".ready").unlink()
    result = make(current, "setup", path=old_python)
    assert (result.returncode, "3.9.2" in result.stdout) == (2, True)


def test_a_service_ends_with_its_make_even_when_that_is_killed_outright(current: Path) -> None:
    program(current / ".venv" / "bin", "perfci", "echo $$; exec sleep 60")
    with subprocess.Popen(["make", "up"], cwd=current, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        service = int(started.stdout.readline())
        started.kill()
    until = time.monotonic() + 20
    while psutil.pid_exists(service) and psutil.Process(service).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until, "the service goes on without its make"
        time.sleep(0.05)
