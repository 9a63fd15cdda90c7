"""Two tables for resets of groups' places: what is reset, and what each proxy says of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMTEXT, VARCHAR

revision = "0021"
down_revision = "0020"


def _name(length: int) -> sa.types.TypeEngine[str]:
    exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def _text() -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")


def _word(name: str, length: int) -> sa.Column[str]:
    return sa.Column(name, _name(length), nullable=False)


def _numbers(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False) for name in names]


def upgrade() -> None:
    """Two tables more, and nothing else."""
    op.create_table(
        "proxy_resets",
        _word("group_id", 255),
        _word("run", 64),
        _word("state", 32),
        _word("set_by", 255),
        *_numbers("since_ms", "until_ms"),
        sa.Column("goals", _text(), nullable=False),
        sa.Column("members", _text(), nullable=False),
        sa.PrimaryKeyConstraint("group_id", name="pk_proxy_resets"),
        if_not_exists=True,
    )
    op.create_table(
        "proxy_reset_words",
        _word("instance", 64),
        _word("run", 64),
        *_numbers("waits", "at_ms"),
        sa.PrimaryKeyConstraint("instance", "run", name="pk_proxy_reset_words"),
        if_not_exists=True,
    )
