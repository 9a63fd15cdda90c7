"""Proofs: through which offset both sides of each partition hold the same records."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMTEXT, VARCHAR
from sqlalchemy.types import TypeEngine

revision = "0006"
down_revision = "0005"


def _name(name: str, length: int) -> sa.Column[str]:
    exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    kind: TypeEngine[str] = sa.String(length).with_variant(exact, "mysql", "mariadb")
    return sa.Column(name, kind, nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False)


def _text(name: str) -> sa.Column[str]:
    kind = sa.Text().with_variant(MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
    return sa.Column(name, kind, nullable=False)


def upgrade() -> None:
    """One table more."""
    op.create_table(
        "proofs",
        _name("link", 130),
        _name("topic", 249),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        _name("way", 32),
        _name("state", 32),
        *(_number(name) for name in ("from_offset", "to_offset", "target_offset", "source_end", "records")),
        _name("digest", 32),
        _text("sentence"),
        _name("source_topic_id", 64),
        _name("target_topic_id", 64),
        _number("proven_ms"),
        sa.PrimaryKeyConstraint("link", "topic", "partition", name="pk_proofs"),
        if_not_exists=True,
    )
