"""Alembic's entry: `perfci.store.schema.upgrade` hands a connection over, the alembic command has perfci's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import sqlalchemy as sa
from alembic import context

from perfci.config import find, load
from perfci.store.schema import changing
from perfci.store.tables import UtcTime, metadata


def rendered(kind: str, value: object, _: object) -> str | Literal[False]:
    """A migration stands for itself: it does not import the types of today's perfci."""
    return "sa.DateTime(timezone=True)" if kind == "type" and isinstance(value, UtcTime) else False


def migrate(connection: sa.Connection) -> None:
    # SQLite rolls schema changes back too, once it is told where a transaction begins (engine.writing does).
    context.configure(
        connection=connection,
        target_metadata=metadata,
        transactional_ddl=True,
        render_as_batch=True,
        render_item=rendered,
    )
    with context.begin_transaction():
        context.run_migrations()


if (given := context.config.attributes.get("connection")) is not None:
    migrate(given)
else:
    with changing(load(find(Path.cwd())).database_url) as own:
        migrate(own)
