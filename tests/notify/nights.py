"""A database with a night that has something to tell."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from perfci import notify
from perfci.config import Channel, Settings
from perfci.model import ChangeKind, Origin
from perfci.store import reads, writes
from perfci.store.rows import NewAlert
from tests.build import EPOCH, a_commit, a_measurement, a_run, an_artifact

SESSION = "night-1"
MORNING = EPOCH + timedelta(hours=6)
NAMES = ("modular", "modular-pdl", "torch-graph")


def store(
    engine: sa.Engine,
    *,
    names: Sequence[str] = NAMES,
    positions: Sequence[int] = (1, 2),
    subject: str | None = None,
    suite: str = "kernels",
    origin: Origin = Origin.MEASURED,
) -> None:
    for position in positions:
        run = a_run(
            [a_measurement(name) for name in names],
            commit=a_commit(position, subject=subject),
            suite=suite,
            origin=origin,
            session=SESSION,
            index=position,
        )
        writes.ingest(engine, an_artifact(run), path=str(position))


def alarm(
    engine: sa.Engine,
    *,
    position: int = 2,
    names: Sequence[str] = NAMES,
    kind: ChangeKind = ChangeKind.REGRESSION,
    at: datetime = MORNING,
    **evidence: Any,
) -> None:
    ratio = 1.1 if kind is ChangeKind.REGRESSION else 0.9
    sha = a_commit(position).sha
    new = [
        NewAlert(series.id, sha, kind, ratio, ratio - 0.02, ratio + 0.02, {"session": SESSION, **evidence})
        for series in reads.all_series(engine)
        if series.key.implementation in names
    ]
    writes.raise_alerts(engine, new, at=at)


def settings(*channels: Channel) -> Settings:
    return Settings(root=Path("/nowhere"), channels={channel.name: channel for channel in channels})


def tell(engine: sa.Engine, *channels: Channel, now: datetime = MORNING, **how: Any) -> list[dict[str, Any]]:
    told = notify.send(engine, settings(*channels), SESSION, now=now, **{"waits_s": (), **how})
    outcomes: list[dict[str, Any]] = told["channels"]
    return outcomes
