"""What is tracked: names, sizes, and nothing of the machine that it was written on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "manager", "handler", "service"}
# Assembled, so that this file does not find itself.
MACHINE = re.compile("|".join((r"(?<![\w.-])/(work|root)/\w", "/tmp" + r"/w/", r"\.[p]yenv")))
REGISTRIES = re.compile(
    "|".join(re.escape(host) for host in ("pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org"))
)
LONGEST_FILE = 500


@pytest.fixture(scope="module")
def tracked(repository: Path) -> tuple[Path, ...]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=repository, capture_output=True, text=True, check=True)
    paths = tuple(repository / name for name in listing.stdout.split("\0") if name)
    return tuple(path for path in paths if path.is_file())


def text_of(path: Path) -> str:
    data = path.read_bytes()
    return "" if b"\0" in data[:4096] else data.decode("utf-8", "replace")


def test_no_file_names_a_machine_or_a_registry(tracked: tuple[Path, ...]) -> None:
    found = [
        f"{path.name}: {match.group()}"
        for path in tracked
        for pattern in (MACHINE, REGISTRIES)
        for match in [pattern.search(text_of(path))]
        if match
    ]
    assert found == []


def test_no_module_has_a_name_that_says_nothing(tracked: tuple[Path, ...]) -> None:
    assert [path for path in tracked if path.suffix == ".py" and path.stem in BANNED_NAMES] == []


def test_no_source_file_is_longer_than_a_reader_can_hold(tracked: tuple[Path, ...]) -> None:
    rooms = ("perfci", "kernels", "dags", "dashboard", "migrations", "tests")
    sources = [path for path in tracked if path.suffix == ".py" and path.parts[-2:] and set(path.parts) & set(rooms)]
    lengths = {path: len(text_of(path).splitlines()) for path in sources}
    assert {path: n for path, n in lengths.items() if n > LONGEST_FILE} == {}
