from __future__ import annotations

from pathlib import Path

import pytest

from tests.nightly.place import BENCHMARK, Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """One commit with two benchmarks."""
    made = Place(tmp_path)
    made.repository.commit({"bench/test_toy.py": BENCHMARK}, "Sum numbers")
    return made
