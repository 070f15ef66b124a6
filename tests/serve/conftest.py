from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import *  # noqa: F403
from tests.serve.place import Served


@pytest.fixture
def served(tmp_path: Path, sqlite_template: Path) -> Iterator[Served]:
    """A control plane of the test's own, with an empty database, not yet started."""
    made = Served(tmp_path)
    shutil.copyfile(sqlite_template, made.settings.state / "perfci.db")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Served]:
    """One that takes results all the while; a test uses a session of its own."""
    made = Served(tmp_path_factory.mktemp("running"))
    shutil.copyfile(sqlite_template, made.settings.state / "perfci.db")
    made.start()
    yield made
    made.stop()
