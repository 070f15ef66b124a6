from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from perfci.store import keeping, schema
from perfci.store.engine import connect
from tests.databases import *  # noqa: F403
from tests.keeping.backups import taken
from tests.keeping.freeze import fill


@pytest.fixture
def engine(database_url: str) -> Iterator[sa.Engine]:
    """One that does not wait for the disk: these tests store many small results."""
    opened = keeping.hurried(database_url)
    yield opened
    opened.dispose()


@pytest.fixture(scope="session")
def small_once(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("small")
    schema.upgrade(f"sqlite:///{folder / 'small.db'}")
    engine = connect(f"sqlite:///{folder / 'small.db'}")
    fill(engine)
    taken(engine, folder / "small.tar")
    return (folder / "small.tar").read_bytes()


@pytest.fixture
def small(small_once: bytes, tmp_path: Path) -> Path:
    """A backup with a few rows of everything."""
    path = tmp_path / "small.tar"
    path.write_bytes(small_once)
    return path
