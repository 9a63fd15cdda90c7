"""Four tables for proxies: fuses, who serves, what fuses answered and what they dropped."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMTEXT, VARCHAR

revision = "0019"
down_revision = "0018"


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
    """Four tables more, and nothing else."""
    op.create_table(
        "proxy_fuses",
        _word("topic", 250),
        _word("client", 255),
        _word("kind", 32),
        _word("state", 32),
        _word("policy", 32),
        sa.Column("reason", _text(), nullable=False),
        _word("set_by", 255),
        *_numbers("since_ms", "until_ms", "records_s", "bytes_s", "latency_ms", "above_s", "quiet_s"),
        sa.PrimaryKeyConstraint("topic", "client", "kind", name="pk_proxy_fuses"),
        if_not_exists=True,
    )
    op.create_table(
        "proxy_instances",
        _word("id", 64),
        _word("name", 255),
        _word("host", 255),
        *_numbers("port", "started_ms", "revision", "seen_ms"),
        sa.PrimaryKeyConstraint("id", name="pk_proxy_instances"),
        if_not_exists=True,
    )
    op.create_table(
        "proxy_fuse_counts",
        _word("instance", 64),
        _word("topic", 250),
        _word("client", 255),
        _word("kind", 32),
        *_numbers("requests", "records", "bytes"),
        sa.Column("tripped", sa.Boolean(), nullable=False),
        *_numbers("changed_ms"),
        sa.PrimaryKeyConstraint("instance", "topic", "client", "kind", name="pk_proxy_fuse_counts"),
        if_not_exists=True,
    )
    op.create_table(
        "proxy_drops",
        _word("instance", 64),
        _word("topic", 249),
        _word("client", 255),
        *_numbers("since_ms"),
        _word("fuse", 250),
        sa.Column("partitions", _text(), nullable=False),
        *_numbers("records", "bytes", "until_ms"),
        sa.PrimaryKeyConstraint("instance", "topic", "client", "since_ms", name="pk_proxy_drops"),
        if_not_exists=True,
    )
