"""Two tables for topics that were moved by force: how far each had crossed, and who had written what of that."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMTEXT, VARCHAR

revision = "0022"
down_revision = "0021"


def _partition() -> list[sa.Column[str] | sa.Column[int]]:
    names: list[sa.Column[str] | sa.Column[int]] = []
    for name, length in (("link", 130), ("topic", 249)):
        exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
        names.append(sa.Column(name, sa.String(length).with_variant(exact, "mysql", "mariadb"), nullable=False))
    return [*names, sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False)]


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False)


def upgrade() -> None:
    """Two tables more, and nothing else."""
    text = sa.Text().with_variant(MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
    op.create_table(
        "crossings",
        *_partition(),
        *(_number(name) for name in ("term", "to_offset", "producers", "since_ms")),
        sa.PrimaryKeyConstraint("link", "topic", "partition", name="pk_crossings"),
        if_not_exists=True,
    )
    op.create_table(
        "crossed_producers",
        *_partition(),
        _number("producer_id"),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("batches", text, nullable=False),
        sa.PrimaryKeyConstraint("link", "topic", "partition", "producer_id", name="pk_crossed_producers"),
        if_not_exists=True,
    )
