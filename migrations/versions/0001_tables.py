"""The first tables.

Revision: 0001
Follows: nothing
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Names sort by code point on every server, as SQLite does it, whatever its locale.
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "environment",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("fingerprint", TEXT, nullable=False),
        sa.Column("driver", TEXT, nullable=False),
        sa.Column("cuda", TEXT, nullable=False),
        sa.Column("torch", TEXT, nullable=False),
        sa.Column("triton", TEXT, nullable=False),
        sa.Column("python", TEXT, nullable=False),
        sa.Column("os_kernel", TEXT, nullable=False),
        sa.Column("image", TEXT, nullable=False),
        sa.Column("device", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_environment")),
        sa.UniqueConstraint("fingerprint", name=op.f("uq_environment_fingerprint")),
    )
    op.create_table(
        "hardware",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("model", TEXT, nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("power_cap_w", sa.Double(), nullable=True),
        sa.Column("partition", TEXT, nullable=False),
        sa.CheckConstraint("count > 0", name=op.f("ck_hardware_count")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hardware")),
        sa.UniqueConstraint("name", name=op.f("uq_hardware_name")),
    )
    op.create_table(
        "node",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("device_uuid", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_node")),
        sa.UniqueConstraint("name", "device_uuid", name=op.f("uq_node_name_device_uuid")),
    )
    op.create_table(
        "session",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_session")),
        sa.UniqueConstraint("name", name=op.f("uq_session_name")),
    )
    op.create_table(
        "suite",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("synthetic", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_suite")),
        sa.UniqueConstraint("name", name=op.f("uq_suite_name")),
    )
    op.create_table(
        "commit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("suite_id", sa.BigInteger(), nullable=False),
        sa.Column("sha", TEXT, nullable=False),
        sa.Column("parents", sa.JSON(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=True),
        sa.Column("on_branch", sa.Boolean(), nullable=False),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("subject", TEXT, nullable=False),
        sa.CheckConstraint("NOT on_branch OR position IS NOT NULL", name=op.f("ck_commit_on_branch")),
        sa.CheckConstraint("position > 0", name=op.f("ck_commit_position")),
        sa.ForeignKeyConstraint(["suite_id"], ["suite.id"], name=op.f("fk_commit_suite_id_suite")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_commit")),
        sa.UniqueConstraint("suite_id", "sha", name=op.f("uq_commit_suite_id_sha")),
    )
    op.create_index(op.f("ix_commit_suite_id_position"), "commit", ["suite_id", "position"], unique=False)

    op.create_table(
        "series",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("suite_id", sa.BigInteger(), nullable=False),
        sa.Column("hardware_id", sa.BigInteger(), nullable=False),
        sa.Column("workload", TEXT, nullable=False),
        sa.Column("implementation", TEXT, nullable=False),
        sa.Column("metric", TEXT, nullable=False),
        sa.Column("unit", TEXT, nullable=False),
        sa.Column(
            "direction",
            sa.Enum(
                "lower_is_better",
                "higher_is_better",
                name="direction",
                native_enum=False,
                create_constraint=True,
                length=32,
            ),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(["hardware_id"], ["hardware.id"], name=op.f("fk_series_hardware_id_hardware")),
        sa.ForeignKeyConstraint(["suite_id"], ["suite.id"], name=op.f("fk_series_suite_id_suite")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_series")),
        sa.UniqueConstraint(
            "suite_id",
            "hardware_id",
            "workload",
            "implementation",
            "metric",
            name=op.f("uq_series_suite_id_hardware_id_workload_implementation_metric"),
        ),
    )
    op.create_table(
        "alert",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("series_id", sa.BigInteger(), nullable=False),
        sa.Column("commit_id", sa.BigInteger(), nullable=False),
        sa.Column(
            "kind",
            sa.Enum("regression", "improvement", name="kind", native_enum=False, create_constraint=True, length=32),
            nullable=False,
        ),
        sa.Column("ratio", sa.Double(), nullable=False),
        sa.Column("low", sa.Double(), nullable=False),
        sa.Column("high", sa.Double(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column(
            "state",
            sa.Enum(
                "new",
                "confirmed",
                "investigating",
                "accepted",
                "fixed",
                "backed_out",
                "invalid",
                "infrastructure",
                name="state",
                native_enum=False,
                create_constraint=True,
                length=32,
            ),
            nullable=False,
        ),
        sa.Column("assignee", TEXT, nullable=False),
        sa.Column("note", TEXT, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("ratio > 0 AND low <= high", name=op.f("ck_alert_ratio")),
        sa.ForeignKeyConstraint(["commit_id"], ["commit.id"], name=op.f("fk_alert_commit_id_commit")),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name=op.f("fk_alert_series_id_series")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert")),
        sa.UniqueConstraint("series_id", "commit_id", name=op.f("uq_alert_series_id_commit_id")),
    )
    op.create_table(
        "run",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("artifact_sha256", TEXT, nullable=False),
        sa.Column("path", TEXT, nullable=False),
        sa.Column("suite_id", sa.BigInteger(), nullable=False),
        sa.Column("commit_id", sa.BigInteger(), nullable=False),
        sa.Column("hardware_id", sa.BigInteger(), nullable=False),
        sa.Column("node_id", sa.BigInteger(), nullable=False),
        sa.Column("environment_id", sa.BigInteger(), nullable=False),
        sa.Column("session_id", sa.BigInteger(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column(
            "origin",
            sa.Enum(
                "measured", "recorded", "synthetic", name="origin", native_enum=False, create_constraint=True, length=32
            ),
            nullable=False,
        ),
        sa.Column(
            "status",
            sa.Enum(
                "ok",
                "error",
                "timeout",
                "build_failed",
                name="status",
                native_enum=False,
                create_constraint=True,
                length=32,
            ),
            nullable=False,
        ),
        sa.Column("harness", TEXT, nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("log_tail", TEXT, nullable=False),
        sa.Column("telemetry", sa.JSON(), nullable=False),
        sa.CheckConstraint('"index" >= 0', name=op.f("ck_run_index")),
        sa.CheckConstraint("finished_at >= started_at", name=op.f("ck_run_finished_at")),
        sa.CheckConstraint("length(artifact_sha256) = 64", name=op.f("ck_run_artifact_sha256")),
        sa.ForeignKeyConstraint(["commit_id"], ["commit.id"], name=op.f("fk_run_commit_id_commit")),
        sa.ForeignKeyConstraint(["environment_id"], ["environment.id"], name=op.f("fk_run_environment_id_environment")),
        sa.ForeignKeyConstraint(["hardware_id"], ["hardware.id"], name=op.f("fk_run_hardware_id_hardware")),
        sa.ForeignKeyConstraint(["node_id"], ["node.id"], name=op.f("fk_run_node_id_node")),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name=op.f("fk_run_session_id_session")),
        sa.ForeignKeyConstraint(["suite_id"], ["suite.id"], name=op.f("fk_run_suite_id_suite")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
        sa.UniqueConstraint("artifact_sha256", name=op.f("uq_run_artifact_sha256")),
    )
    op.create_index(op.f("ix_run_commit_id_hardware_id"), "run", ["commit_id", "hardware_id"], unique=False)
    op.create_index(op.f("ix_run_session_id"), "run", ["session_id"], unique=False)
    op.create_index(op.f("ix_run_suite_id_hardware_id"), "run", ["suite_id", "hardware_id"], unique=False)

    op.create_table(
        "control",
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("unit", TEXT, nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("working_set_bytes", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_control_run_id_run")),
        sa.PrimaryKeyConstraint("run_id", "number", name=op.f("pk_control")),
    )
    op.create_table(
        "measurement",
        sa.Column("series_id", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column(
            "status",
            sa.Enum(
                "ok",
                "checked",
                "incorrect",
                "error",
                "timeout",
                "build_failed",
                "unsupported",
                "missing",
                name="status",
                native_enum=False,
                create_constraint=True,
                length=32,
            ),
            nullable=False,
        ),
        sa.Column("verified", sa.Boolean(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("median", sa.Double(), nullable=True),
        sa.Column("mad", sa.Double(), nullable=True),
        sa.Column("p10", sa.Double(), nullable=True),
        sa.Column("p90", sa.Double(), nullable=True),
        sa.Column(
            "clock",
            sa.Enum(
                "cuda_event",
                "perf_counter",
                "foreign",
                name="clock",
                native_enum=False,
                create_constraint=True,
                length=32,
            ),
            nullable=True,
        ),
        sa.Column("iterations", sa.BigInteger(), nullable=True),
        sa.Column("resolution", sa.Double(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("bytes_moved", sa.BigInteger(), nullable=False),
        sa.Column("flops", sa.BigInteger(), nullable=False),
        sa.Column("working_set_bytes", sa.BigInteger(), nullable=False),
        sa.Column("error", sa.Double(), nullable=True),
        sa.Column("tolerance", sa.Double(), nullable=True),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("extras", sa.JSON(), nullable=False),
        sa.Column("samples", sa.LargeBinary(), nullable=True),
        sa.CheckConstraint("(status = 'ok') = (median IS NOT NULL)", name=op.f("ck_measurement_ok_if_timed")),
        sa.CheckConstraint(
            "(median IS NULL) = (mad IS NULL) AND (median IS NULL) = (p10 IS NULL) AND (median IS NULL) = (p90 IS NULL) AND (median IS NULL) = (n = 0) AND (median IS NULL) = (clock IS NULL) AND (median IS NULL) = (iterations IS NULL) AND (median IS NOT NULL OR samples IS NULL)",
            name=op.f("ck_measurement_timing_whole"),
        ),
        sa.CheckConstraint("median > 0", name=op.f("ck_measurement_median")),
        sa.CheckConstraint(
            "tokens >= 0 AND bytes_moved >= 0 AND flops >= 0 AND working_set_bytes >= 0",
            name=op.f("ck_measurement_workload_sizes"),
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_measurement_run_id_run")),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name=op.f("fk_measurement_series_id_series")),
        sa.PrimaryKeyConstraint("series_id", "run_id", name=op.f("pk_measurement")),
    )
    op.create_index(op.f("ix_measurement_run_id"), "measurement", ["run_id"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_measurement_run_id"), "measurement")

    op.drop_table("measurement")
    op.drop_table("control")
    op.drop_index(op.f("ix_run_suite_id_hardware_id"), "run")
    op.drop_index(op.f("ix_run_session_id"), "run")
    op.drop_index(op.f("ix_run_commit_id_hardware_id"), "run")

    op.drop_table("run")
    op.drop_table("alert")
    op.drop_table("series")
    op.drop_index(op.f("ix_commit_suite_id_position"), "commit")

    op.drop_table("commit")
    op.drop_table("suite")
    op.drop_table("session")
    op.drop_table("node")
    op.drop_table("hardware")
    op.drop_table("environment")
