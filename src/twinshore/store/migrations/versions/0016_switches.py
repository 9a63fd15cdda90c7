"""Switches, the topics that are in one, below which offset a twin's log is the topic's own, and its epoch."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMTEXT, VARCHAR
from sqlalchemy.types import TypeEngine

from twinshore.store.migrate import add_column, create_index

revision = "0016"
down_revision = "0015"


def _name(name: str, length: int) -> sa.Column[str]:
    exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    kind: TypeEngine[str] = sa.String(length).with_variant(exact, "mysql", "mariadb")
    return sa.Column(name, kind, nullable=False)


def _text(name: str) -> sa.Column[str]:
    exact = MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin")
    kind: TypeEngine[str] = sa.Text().with_variant(exact, "mysql", "mariadb")
    return sa.Column(name, kind, nullable=False)


def _number(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=nullable)


def upgrade() -> None:
    """Two columns and two tables more."""
    add_column("twins", sa.Column("inherited", sa.BigInteger(), nullable=False, server_default="0"))
    add_column("twins", sa.Column("epoch", sa.Integer(), nullable=False, server_default="0"))
    op.create_table(
        "switching",
        _name("pair", 130),
        _name("topic", 249),
        _name("switch_id", 32),
        _name("link", 130),
        _name("asked", 32),
        _number("asked_ms"),
        _number("let_go_ms"),
        sa.PrimaryKeyConstraint("pair", "topic", name="pk_switching"),
        if_not_exists=True,
    )
    create_index("ix_switching_link", "switching", "link")
    op.create_table(
        "switches",
        _name("id", 32),
        _name("kind", 32),
        _name("source", 64),
        _name("target", 64),
        _name("state", 32),
        _text("record"),
        _name("set_by", 255),
        _number("begun_ms"),
        _number("changed_ms"),
        _number("ended_ms", nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_switches"),
        if_not_exists=True,
    )
