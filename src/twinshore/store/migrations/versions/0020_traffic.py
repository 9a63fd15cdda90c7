"""A table for what goes through proxies, as they count it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import VARCHAR

from twinshore.store.migrate import create_index

revision = "0020"
down_revision = "0019"

_COUNTS = (
    *("requests", "bytes", "records", "batches", "plain", "plain_bytes", "tried", "tried_lz4"),
    *("singles", "unnumbered"),
    *("acks_none", "acks_leader", "errors", "empty", "wait_ms", "min_bytes", "connections"),
    *("answered_us", "connected_max", "version_max"),
)


def _word(name: str, length: int) -> sa.Column[str]:
    exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.Column(name, sa.String(length).with_variant(exact, "mysql", "mariadb"), nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False)


def upgrade() -> None:
    """One table more, and its index."""
    op.create_table(
        "proxy_traffic",
        _word("instance", 64),
        _number("since_ms"),
        sa.Column("place", sa.Integer(), autoincrement=False, nullable=False),
        _word("proxy", 255),
        _number("until_ms"),
        _word("client", 255),
        _word("topic", 249),
        _word("cluster", 64),
        _word("kind", 32),
        *(_number(name) for name in _COUNTS),
        _word("software", 128),
        _word("latency", 255),
        _word("sizes", 255),
        sa.PrimaryKeyConstraint("instance", "since_ms", "place", name="pk_proxy_traffic"),
        if_not_exists=True,
    )
    create_index("ix_proxy_traffic_until_ms", "proxy_traffic", "until_ms")
