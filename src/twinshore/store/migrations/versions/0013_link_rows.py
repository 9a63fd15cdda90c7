"""Links as rows: what each is, and how often any of them was changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMTEXT, VARCHAR
from sqlalchemy.types import TypeEngine

revision = "0013"
down_revision = "0012"


def _name(name: str, length: int) -> sa.Column[str]:
    exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    kind: TypeEngine[str] = sa.String(length).with_variant(exact, "mysql", "mariadb")
    return sa.Column(name, kind, nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False)


def upgrade() -> None:
    """Two tables more."""
    text = sa.Text().with_variant(MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
    op.create_table(
        "link_rows",
        _name("link", 130),
        _name("state", 32),
        sa.Column("section", text, nullable=False),
        sa.Column("seed", text, nullable=False),
        _number("revision"),
        _number("changed_ms"),
        _name("changed_by", 255),
        sa.PrimaryKeyConstraint("link", name="pk_link_rows"),
        if_not_exists=True,
    )
    op.create_table(
        "revisions",
        _name("subject", 64),
        _number("revision"),
        sa.PrimaryKeyConstraint("subject", name="pk_revisions"),
        if_not_exists=True,
    )
