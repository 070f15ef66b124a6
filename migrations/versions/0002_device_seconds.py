"""Device seconds of each run; how much a night planned and what it lacks; who was told what.

Revision: 0002
Follows: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Names sort by code point on every server, as SQLite does it, whatever its locale.
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# From what a run has said of itself before the column was there.
SECONDS = {
    "sqlite": "ROUND((julianday(finished_at) - julianday(started_at)) * 86400, 6)",
    "postgresql": "EXTRACT(EPOCH FROM finished_at - started_at)",
}


def upgrade() -> None:
    op.add_column("run", sa.Column("device_seconds", sa.Double(), nullable=True))
    op.execute(
        f"UPDATE run SET device_seconds = {SECONDS[op.get_bind().dialect.name]}"
        " * (SELECT hardware.count FROM hardware WHERE hardware.id = run.hardware_id)"
    )
    with op.batch_alter_table("run") as batch:
        batch.alter_column("device_seconds", existing_type=sa.Double(), nullable=False)
        batch.create_check_constraint(op.f("ck_run_device_seconds"), "device_seconds >= 0")
    with op.batch_alter_table("session") as batch:
        batch.add_column(sa.Column("planned", sa.BigInteger(), nullable=True))
        batch.add_column(sa.Column("planned_at", sa.DateTime(timezone=True), nullable=True))
        batch.create_check_constraint(op.f("ck_session_planned"), "planned >= 0")
        batch.create_check_constraint(op.f("ck_session_planned_whole"), "(planned IS NULL) = (planned_at IS NULL)")
    op.create_table(
        "absence",
        sa.Column("id", ID, nullable=False),
        sa.Column("session_id", sa.BigInteger(), nullable=False),
        sa.Column("suite_id", sa.BigInteger(), nullable=False),
        sa.Column("hardware", TEXT, nullable=False),
        sa.Column(
            "reason",
            sa.Enum(
                *("no_node", "budget", "unaffected"),
                name="reason",
                native_enum=False,
                create_constraint=True,
                length=32,
            ),
            nullable=False,
        ),
        sa.Column("text", TEXT, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name=op.f("fk_absence_session_id_session")),
        sa.ForeignKeyConstraint(["suite_id"], ["suite.id"], name=op.f("fk_absence_suite_id_suite")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_absence")),
        sa.UniqueConstraint(
            *("session_id", "suite_id", "hardware", "reason"),
            name=op.f("uq_absence_session_id_suite_id_hardware_reason"),
        ),
    )
    op.create_table(
        "notification",
        sa.Column("id", ID, nullable=False),
        sa.Column("channel", TEXT, nullable=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("alert_id", sa.BigInteger(), nullable=True),
        sa.Column("session_id", sa.BigInteger(), nullable=True),
        sa.Column(
            "state",
            sa.Enum(*("sending", "sent"), name="state", native_enum=False, create_constraint=True, length=32),
            nullable=False,
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["alert_id"], ["alert.id"], name=op.f("fk_notification_alert_id_alert")),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name=op.f("fk_notification_session_id_session")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notification")),
        sa.UniqueConstraint("channel", "key", name=op.f("uq_notification_channel_key")),
    )


def downgrade() -> None:
    op.drop_table("notification")
    op.drop_table("absence")
    with op.batch_alter_table("session") as batch:
        batch.drop_constraint(op.f("ck_session_planned_whole"), type_="check")
        batch.drop_constraint(op.f("ck_session_planned"), type_="check")
        batch.drop_column("planned_at")
        batch.drop_column("planned")
    with op.batch_alter_table("run") as batch:
        batch.drop_constraint(op.f("ck_run_device_seconds"), type_="check")
        batch.drop_column("device_seconds")
