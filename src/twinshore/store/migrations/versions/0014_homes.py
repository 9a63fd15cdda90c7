"""Homes: where each topic of a pair of clusters is written."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import VARCHAR
from sqlalchemy.types import TypeEngine

revision = "0014"
down_revision = "0013"


def _name(name: str, length: int) -> sa.Column[str]:
    exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    kind: TypeEngine[str] = sa.String(length).with_variant(exact, "mysql", "mariadb")
    return sa.Column(name, kind, nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False)


def upgrade() -> None:
    """One table more."""
    op.create_table(
        "homes",
        _name("pair", 130),
        _name("topic", 249),
        _name("home", 64),
        _number("term"),
        _number("since_ms"),
        _name("set_by", 255),
        sa.PrimaryKeyConstraint("pair", "topic", name="pk_homes"),
        if_not_exists=True,
    )
