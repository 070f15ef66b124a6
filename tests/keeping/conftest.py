from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from perfci.store import keeping
from tests.databases import *  # noqa: F403


@pytest.fixture
def engine(database_url: str) -> Iterator[sa.Engine]:
    """One that does not wait for the disk: these tests store many small results."""
    opened = keeping.hurried(database_url)
    yield opened
    opened.dispose()
