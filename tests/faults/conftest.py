from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.databases import *  # noqa: F403
from tests.faults.deployment import Deployment
from tests.faults.postgresql import Postgresql, started

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def _shared_server() -> Iterator[Postgresql]:
    with started() as server:
        yield server


@pytest.fixture
def server(_shared_server: Postgresql) -> Iterator[Postgresql]:
    """A PostgreSQL that the test may stop and kill."""
    yield _shared_server
    if not _shared_server.running():
        _shared_server.start()


@pytest.fixture
def place(server: Postgresql, tmp_path: Path) -> Iterator[Deployment]:
    """A control plane on a database of its own."""
    with Deployment(tmp_path, server.database(f"faults_{next(_numbers)}")) as made:
        yield made


@pytest.fixture
def new_place(tmp_path: Path) -> Iterator[Callable[[str], Deployment]]:
    """Makes a control plane on the database at a URL."""
    with ExitStack() as stack:
        yield lambda url: stack.enter_context(Deployment(tmp_path, url))
