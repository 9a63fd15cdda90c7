"""Which store this is: what a target is told of who writes a link."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import VARCHAR
from sqlalchemy.types import TypeEngine

revision = "0008"
down_revision = "0007"


def _name(name: str, length: int) -> sa.Column[str]:
    exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    kind: TypeEngine[str] = sa.String(length).with_variant(exact, "mysql", "mariadb")
    return sa.Column(name, kind, nullable=False)


def upgrade() -> None:
    """One table more."""
    op.create_table(
        "store_identity",
        sa.Column("row", sa.Integer(), autoincrement=False, nullable=False),
        _name("store_id", 64),
        sa.PrimaryKeyConstraint("row", name="pk_store_identity"),
        if_not_exists=True,
    )
