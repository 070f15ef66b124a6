"""The tables: one set for SQLite and PostgreSQL.

    suite ──< commit ──< run >── hardware, node, environment, session
      └─────< series ──< measurement >── run ──< control
                 └────< alert >── commit
    session ──< absence >── suite         alert, session ──< notification

Facts and decisions are stored. What follows from them (floors, speeds, change points) is computed when read, with
one exception: a measurement's summary columns stay when its raw samples are thinned.
Ids have 64 bits, times are UTC, enums are checked by the database.
"""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from enum import StrEnum

import sqlalchemy as sa

from perfci.model import (
    AbsenceReason,
    AlertState,
    ChangeKind,
    Clock,
    Direction,
    Environment,
    NoticeState,
    Origin,
    RunStatus,
    Status,
)

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    }
)


class UtcTime(sa.TypeDecorator[datetime]):
    """A moment. SQLite keeps it without a zone, in UTC; what comes out always says UTC."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


# Names sort by code point on every server, as SQLite does it, whatever its locale.
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

# SQLite numbers rows by itself only where the type is spelt INTEGER (64 bits there).
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _id() -> sa.Column[int]:
    return sa.Column("id", _ID, primary_key=True)


def _one_of(enum: type[StrEnum], name: str) -> sa.Enum:
    """Text that the database holds to the values of `enum`; wide enough for longer ones to come."""
    return sa.Enum(
        enum,
        name=name,
        native_enum=False,
        create_constraint=True,
        length=32,
        values_callable=lambda members: [member.value for member in members],
    )


def _reference(name: str, target: str, *, key: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), sa.ForeignKey(f"{target}.id"), nullable=False, primary_key=key)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, _TEXT, nullable=False)


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False)


suite = sa.Table(
    "suite",
    metadata,
    _id(),
    sa.Column("name", _TEXT, nullable=False, unique=True),
    # A suite holds generated numbers only, or none: so does each of its series.
    sa.Column("synthetic", sa.Boolean(), nullable=False),
)

# `on_branch`: the position was told by the control plane, which read the repository; otherwise it is what a result
# file claimed, and gives way.
commit = sa.Table(
    "commit",
    metadata,
    _id(),
    _reference("suite_id", "suite"),
    _text("sha"),
    sa.Column("parents", sa.JSON(), nullable=False),
    sa.Column("position", sa.BigInteger()),
    sa.Column("on_branch", sa.Boolean(), nullable=False),
    sa.Column("committed_at", UtcTime()),
    _text("subject"),
    sa.UniqueConstraint("suite_id", "sha"),
    sa.CheckConstraint("position > 0", name="position"),
    sa.CheckConstraint("NOT on_branch OR position IS NOT NULL", name="on_branch"),
    # newest first, for `latest` and `expected`
    sa.Index(None, "suite_id", "position"),
)

hardware = sa.Table(
    "hardware",
    metadata,
    _id(),
    sa.Column("name", _TEXT, nullable=False, unique=True),
    _text("model"),
    sa.Column("count", sa.Integer(), nullable=False),
    sa.Column("memory_bytes", sa.BigInteger()),
    sa.Column("power_cap_w", sa.Double()),
    _text("partition"),
    sa.CheckConstraint("count > 0", name="count"),
)

node = sa.Table(
    "node",
    metadata,
    _id(),
    _text("name"),
    _text("device_uuid"),
    sa.UniqueConstraint("name", "device_uuid"),
)

# `fingerprint`: see writes.fingerprint.
environment = sa.Table(
    "environment",
    metadata,
    _id(),
    sa.Column("fingerprint", sa.Text(), nullable=False, unique=True),
    *(_text(field.name) for field in dataclasses.fields(Environment)),
)

series = sa.Table(
    "series",
    metadata,
    _id(),
    _reference("suite_id", "suite"),
    _reference("hardware_id", "hardware"),
    _text("workload"),
    _text("implementation"),
    _text("metric"),
    _text("unit"),
    sa.Column("direction", _one_of(Direction, "direction"), nullable=False),
    sa.UniqueConstraint("suite_id", "hardware_id", "workload", "implementation", "metric"),
)

# `planned`: how many processes its newest plan, of `planned_at`, expects to be stored; NULL where nobody planned it.
session = sa.Table(
    "session",
    metadata,
    _id(),
    sa.Column("name", _TEXT, nullable=False, unique=True),
    sa.Column("planned", sa.BigInteger()),
    sa.Column("planned_at", UtcTime()),
    sa.CheckConstraint("planned >= 0", name="planned"),
    sa.CheckConstraint("(planned IS NULL) = (planned_at IS NULL)", name="planned_whole"),
)

# `artifact_sha256` makes ingesting a file twice a no-op; `path` is where the file is kept, from the state
# folder. `telemetry` is model.Telemetry as a JSON object.
run = sa.Table(
    "run",
    metadata,
    _id(),
    sa.Column("artifact_sha256", sa.Text(), nullable=False, unique=True),
    _text("path"),
    _reference("suite_id", "suite"),
    _reference("commit_id", "commit"),
    _reference("hardware_id", "hardware"),
    _reference("node_id", "node"),
    _reference("environment_id", "environment"),
    _reference("session_id", "session"),
    sa.Column("index", sa.Integer(), nullable=False),
    sa.Column("origin", _one_of(Origin, "origin"), nullable=False),
    sa.Column("status", _one_of(RunStatus, "status"), nullable=False),
    _text("harness"),
    sa.Column("started_at", UtcTime(), nullable=False),
    sa.Column("finished_at", UtcTime(), nullable=False),
    _text("reason"),
    _text("log_tail"),
    sa.Column("telemetry", sa.JSON(), nullable=False),
    # wall seconds that its devices were held, imports and set-up included, times their number
    sa.Column("device_seconds", sa.Double(), nullable=False),
    sa.CheckConstraint("device_seconds >= 0", name="device_seconds"),
    sa.CheckConstraint("length(artifact_sha256) = 64", name="artifact_sha256"),
    sa.CheckConstraint('"index" >= 0', name="index"),
    sa.CheckConstraint("finished_at >= started_at", name="finished_at"),
    sa.Index(None, "commit_id", "hardware_id"),
    sa.Index(None, "suite_id", "hardware_id"),
    sa.Index(None, "session_id"),
)

# `number` counts a run's controls from 0: a name may appear once a working set.
control = sa.Table(
    "control",
    metadata,
    _reference("run_id", "run", key=True),
    sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
    _text("name"),
    _text("unit"),
    sa.Column("value", sa.Double(), nullable=False),
    sa.Column("working_set_bytes", sa.BigInteger()),
)

# What the workload moves and computes stands here, not in the series: a commit may change it.
# `samples`: float64, little endian, in the order in which they were taken, in the series' unit
# (numpy.frombuffer(samples, "<f8")); NULL where there are none or where they were thinned. It comes last, so that
# SQLite reads no page of it when only the summary is asked for.
measurement = sa.Table(
    "measurement",
    metadata,
    _reference("series_id", "series", key=True),
    _reference("run_id", "run", key=True),
    sa.Column("status", _one_of(Status, "status"), nullable=False),
    sa.Column("verified", sa.Boolean(), nullable=False),
    sa.Column("n", sa.Integer(), nullable=False),
    sa.Column("median", sa.Double()),
    sa.Column("mad", sa.Double()),
    sa.Column("p10", sa.Double()),
    sa.Column("p90", sa.Double()),
    sa.Column("clock", _one_of(Clock, "clock")),
    sa.Column("iterations", sa.BigInteger()),
    sa.Column("resolution", sa.Double(), nullable=False),
    _count("tokens"),
    _count("bytes_moved"),
    _count("flops"),
    _count("working_set_bytes"),
    sa.Column("error", sa.Double()),
    sa.Column("tolerance", sa.Double()),
    _text("reason"),
    sa.Column("extras", sa.JSON(), nullable=False),
    sa.Column("samples", sa.LargeBinary()),
    sa.CheckConstraint("(status = 'ok') = (median IS NOT NULL)", name="ok_if_timed"),
    sa.CheckConstraint(
        "(median IS NULL) = (mad IS NULL) AND (median IS NULL) = (p10 IS NULL) AND (median IS NULL) = (p90 IS NULL)"
        " AND (median IS NULL) = (n = 0) AND (median IS NULL) = (clock IS NULL)"
        " AND (median IS NULL) = (iterations IS NULL) AND (median IS NOT NULL OR samples IS NULL)",
        name="timing_whole",
    ),
    sa.CheckConstraint("median > 0", name="median"),
    sa.CheckConstraint(
        "tokens >= 0 AND bytes_moved >= 0 AND flops >= 0 AND working_set_bytes >= 0", name="workload_sizes"
    ),
    sa.Index(None, "run_id"),
)

# `state`, `assignee` and `note` belong to people; detecting again updates the evidence alone.
alert = sa.Table(
    "alert",
    metadata,
    _id(),
    _reference("series_id", "series"),
    _reference("commit_id", "commit"),
    sa.Column("kind", _one_of(ChangeKind, "kind"), nullable=False),
    sa.Column("ratio", sa.Double(), nullable=False),
    sa.Column("low", sa.Double(), nullable=False),
    sa.Column("high", sa.Double(), nullable=False),
    sa.Column("evidence", sa.JSON(), nullable=False),
    sa.Column("state", _one_of(AlertState, "state"), nullable=False),
    _text("assignee"),
    _text("note"),
    sa.Column("created_at", UtcTime(), nullable=False),
    sa.Column("updated_at", UtcTime(), nullable=False),
    sa.UniqueConstraint("series_id", "commit_id"),
    sa.CheckConstraint("ratio > 0 AND low <= high", name="ratio"),
)

# What a night was to measure and did not, told by name; `hardware` need not have a row yet.
absence = sa.Table(
    "absence",
    metadata,
    _id(),
    _reference("session_id", "session"),
    _reference("suite_id", "suite"),
    _text("hardware"),
    sa.Column("reason", _one_of(AbsenceReason, "reason"), nullable=False),
    _text("text"),
    sa.Column("created_at", UtcTime(), nullable=False),
    sa.UniqueConstraint("session_id", "suite_id", "hardware", "reason"),
)

# One row a channel and thing told (`key`), written before it is sent: nothing is told twice.
notification = sa.Table(
    "notification",
    metadata,
    _id(),
    _text("channel"),
    _text("key"),
    sa.Column("alert_id", sa.BigInteger(), sa.ForeignKey("alert.id")),
    sa.Column("session_id", sa.BigInteger(), sa.ForeignKey("session.id")),
    sa.Column("state", _one_of(NoticeState, "state"), nullable=False),
    sa.Column("created_at", UtcTime(), nullable=False),
    sa.Column("updated_at", UtcTime(), nullable=False),
    sa.UniqueConstraint("channel", "key"),
)
