"""Where the records of a mapped twin lie, one row for each run at one difference."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import VARCHAR
from sqlalchemy.types import TypeEngine

from twinshore.store.migrate import create_index

revision = "0004"
down_revision = "0003"


def _name(name: str, length: int) -> sa.Column[str]:
    exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    kind: TypeEngine[str] = sa.String(length).with_variant(exact, "mysql", "mariadb")
    return sa.Column(name, kind, nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False)


def upgrade() -> None:
    """One table more, with its second index."""
    op.create_table(
        "extents",
        _name("link", 130),
        _name("topic", 249),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        _number("source"),
        _number("target"),
        _number("length"),
        _number("sequence"),
        sa.PrimaryKeyConstraint("link", "topic", "partition", "source", name="pk_extents"),
        if_not_exists=True,
    )
    create_index("ix_extents_target", "extents", "link", "topic", "partition", "target")
