"""Books of proofs: in which parts each was read, and when each part was read last."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMTEXT, VARCHAR
from sqlalchemy.types import TypeEngine

revision = "0009"
down_revision = "0008"


def _name(name: str, length: int) -> sa.Column[str]:
    exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    kind: TypeEngine[str] = sa.String(length).with_variant(exact, "mysql", "mariadb")
    return sa.Column(name, kind, nullable=False)


def upgrade() -> None:
    """One table more."""
    text = sa.Text().with_variant(MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
    op.create_table(
        "proof_books",
        _name("link", 130),
        _name("topic", 249),
        sa.Column("partition", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("ledger_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("pieces", text, nullable=False),
        sa.PrimaryKeyConstraint("link", "topic", "partition", name="pk_proof_books"),
        if_not_exists=True,
    )
