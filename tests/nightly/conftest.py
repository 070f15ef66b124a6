from __future__ import annotations

from pathlib import Path

import pytest

from tests.nightly.place import BENCHMARK, SETTINGS, Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """One commit with two benchmarks."""
    made = Place(tmp_path)
    made.repository.commit({"bench/test_toy.py": BENCHMARK}, "Sum numbers")
    return made


@pytest.fixture
def pair(place: Place) -> Place:
    """The same, measured in two processes."""
    place.config.write_text(SETTINGS.replace("runs = 1", "runs = 2"), "utf-8")
    return place
