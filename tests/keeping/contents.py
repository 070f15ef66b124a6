"""What a database holds, in a form that two databases can be compared in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from perfci.store.engine import reading

Row = dict[str, Any]


def tables_of(engine: sa.Engine) -> dict[str, list[Row]]:
    """Every row of every table as it stands there, by the table's name, in the order of its key."""
    reflected = sa.MetaData()
    reflected.reflect(engine)
    with reading(engine) as connection:
        return {
            table.name: [
                {name: _plain(value) for name, value in row._mapping.items()}
                for row in connection.execute(sa.select(table).order_by(*table.primary_key.columns))
            ]
            for table in reflected.sorted_tables
            if table.name != "alembic_version"
        }


def _plain(value: Any) -> Any:
    """SQLite's times have no zone; they are UTC."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return value
