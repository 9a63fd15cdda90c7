"""What a link changed on its target besides records: the audit, and what it remembers of what follows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMTEXT, VARCHAR
from sqlalchemy.types import TypeEngine

from twinshore.store.migrate import create_index

revision = "0002"
down_revision = "0001"


def _name(length: int) -> TypeEngine[str]:
    exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def _text() -> TypeEngine[str]:
    exact = MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin")
    return sa.Text().with_variant(exact, "mysql", "mariadb")


def _names(**lengths: int) -> list[sa.Column[str]]:
    return [sa.Column(name, _name(length), nullable=False) for name, length in lengths.items()]


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, _text(), nullable=False) for name in names]


def upgrade() -> None:
    """Two tables more."""
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        *_names(link=130, kind=64),
        *_texts("subject", "before", "after", "outcome"),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
        if_not_exists=True,
    )
    create_index("ix_audit_link", "audit", "link")
    op.create_table(
        "followed",
        *_names(link=130, kind=64, item=64, state=32),
        *_texts("subject", "value"),
        sa.Column("since_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("link", "kind", "item", name="pk_followed"),
        if_not_exists=True,
    )
