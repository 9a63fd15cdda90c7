"""Delay: alarms with their history, how each place stood last, who is watching."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMTEXT, VARCHAR
from sqlalchemy.types import TypeEngine

from twinshore.store.migrate import create_index

revision = "0005"
down_revision = "0004"


def _name(name: str, length: int, *, nullable: bool = False) -> sa.Column[str]:
    exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    kind: TypeEngine[str] = sa.String(length).with_variant(exact, "mysql", "mariadb")
    return sa.Column(name, kind, nullable=nullable)


def _number(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=nullable)


def _text(name: str) -> sa.Column[str]:
    kind = sa.Text().with_variant(MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
    return sa.Column(name, kind, nullable=False)


def upgrade() -> None:
    """Three tables more."""
    op.create_table(
        "alarms",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        _name("open_key", 64, nullable=True),
        _name("link", 130),
        _name("kind", 64),
        _name("topic", 249),
        _name("group_id", 255),
        _text("sentence"),
        _number("raised_ms"),
        _number("told_ms", nullable=True),
        _number("times_told"),
        _number("cleared_ms", nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_alarms"),
        sa.UniqueConstraint("open_key", name="uq_alarms_open_key"),
        if_not_exists=True,
    )
    create_index("ix_alarms_link", "alarms", "link")
    op.create_table(
        "delay_places",
        _name("link", 130),
        _name("topic", 249),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        _name("group_id", 255),
        _number("at_ms"),
        _number("source_end"),
        _number("target_end"),
        _number("lag_records"),
        _number("recovery_point_ms"),
        _name("axis", 32),
        _name("state", 32),
        _text("waiting"),
        sa.PrimaryKeyConstraint("link", "topic", "partition", "group_id", name="pk_delay_places"),
        if_not_exists=True,
    )
    op.create_table(
        "delay_watches",
        _name("name", 255),
        _name("kind", 32),
        _name("owner", 255),
        _number("beat"),
        _number("every_ms"),
        _number("beaten_ms"),
        _number("sampled_ms"),
        _text("sentence"),
        sa.PrimaryKeyConstraint("name", name="pk_delay_watches"),
        if_not_exists=True,
    )
