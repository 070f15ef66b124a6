from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.databases import *  # noqa: F403
from tests.notify import receivers
from tests.notify.receivers import Mail, Web


@pytest.fixture
def web() -> Iterator[Web]:
    with receivers.web() as running:
        yield running


@pytest.fixture
def mail() -> Iterator[Mail]:
    with receivers.mail() as running:
        yield running
