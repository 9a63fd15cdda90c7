"""Key looks: when the keys of compacted twins were compared, and how many deletions they owe."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import VARCHAR
from sqlalchemy.types import TypeEngine

revision = "0007"
down_revision = "0006"


def _name(name: str, length: int) -> sa.Column[str]:
    exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    kind: TypeEngine[str] = sa.String(length).with_variant(exact, "mysql", "mariadb")
    return sa.Column(name, kind, nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False)


def upgrade() -> None:
    """One table more."""
    op.create_table(
        "key_looks",
        _name("link", 130),
        _name("topic", 249),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        _name("source_topic_id", 64),
        _name("target_topic_id", 64),
        *(_number(name) for name in ("mark_end", "mark_ms", "since_ms", "retention_ms", "missed", "looked_ms")),
        *(_number(name) for name in ("looked_end", "owed", "from_offset", "to_offset")),
        sa.PrimaryKeyConstraint("link", "topic", "partition", name="pk_key_looks"),
        if_not_exists=True,
    )
