"""What operators change on links while they run: named values, and how often each link's were changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMTEXT, VARCHAR
from sqlalchemy.types import TypeEngine

revision = "0003"
down_revision = "0002"


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
        "controls",
        _name("link", 130),
        _name("name", 64),
        sa.Column("value", text, nullable=False),
        _number("changed_ms"),
        _name("changed_by", 255),
        sa.PrimaryKeyConstraint("link", "name", name="pk_controls"),
        if_not_exists=True,
    )
    op.create_table(
        "control_versions",
        _name("link", 130),
        _number("version"),
        sa.PrimaryKeyConstraint("link", name="pk_control_versions"),
        if_not_exists=True,
    )
