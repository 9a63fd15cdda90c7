"""Two tables for what applications' clients are told, and for who may ask."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMTEXT, VARCHAR

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Two tables more, and nothing else."""

    def name(length: int) -> sa.types.TypeEngine[str]:
        exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
        return sa.String(length).with_variant(exact, "mysql", "mariadb")

    text = sa.Text().with_variant(MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
    op.create_table(
        "pushes",
        sa.Column("app", name(64), nullable=False),
        sa.Column("revision", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("digest", name(64), nullable=False),
        sa.Column("text", text, nullable=False),
        sa.Column("set_by", name(255), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("app", name="pk_pushes"),
        if_not_exists=True,
    )
    op.create_table(
        "push_tokens",
        sa.Column("digest", name(64), nullable=False),
        sa.Column("app", name(64), nullable=False),
        sa.Column("may_push", sa.Boolean(), nullable=False),
        sa.Column("made_by", name(255), nullable=False),
        sa.Column("made_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_push_tokens"),
        if_not_exists=True,
    )
