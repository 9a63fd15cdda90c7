"""Leases, link identities, twins, positions and receipts, the ledger, the links' status.

Tables and indexes are made only where they do not exist: where DDL has no transactions, a second run ends what a killed
one began.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMTEXT, VARCHAR
from sqlalchemy.types import TypeEngine

from twinshore.store.migrate import create_index

revision = "0001"
down_revision = None


def _name(length: int) -> TypeEngine[str]:
    exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def _text() -> TypeEngine[str]:
    exact = MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin")
    return sa.Text().with_variant(exact, "mysql", "mariadb")


def _row_id() -> sa.Column[int]:
    return sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False)


def _names(**lengths: int) -> list[sa.Column[str]]:
    return [sa.Column(name, _name(length), nullable=False) for name, length in lengths.items()]


def _numbers(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False) for name in names]


def _small(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.Integer(), autoincrement=False, nullable=False) for name in names]


def _table(name: str, *parts: sa.schema.SchemaItem) -> None:
    op.create_table(name, *parts, if_not_exists=True)


def upgrade() -> None:
    """From nothing to the tables of the first release."""
    _links()
    _carried()
    _judged()


def _links() -> None:
    _table(
        "leases",
        *_names(name=512, owner=255),
        *_numbers("generation", "beat", "ttl_ms"),
        sa.Column("released", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )
    _table(
        "link_identities",
        *_names(link=130),
        *_numbers("producer_id", "producer_epoch"),
        *_names(source_cluster_id=255, target_cluster_id=255),
        sa.PrimaryKeyConstraint("link", name="pk_link_identities"),
    )
    _table(
        "twins",
        *_names(link=130, topic=249),
        *_small("partition"),
        *_names(source_topic_id=64, target_topic_id=64),
        *_numbers("anchor_offset", "anchor_sequence", "created_ms"),
        sa.PrimaryKeyConstraint("link", "topic", "partition", name="pk_twins"),
    )


def _carried() -> None:
    _table(
        "positions",
        _row_id(),
        *_names(link=130, topic=249),
        *_small("partition"),
        *_numbers("start_offset", "to_offset", "records", "bytes", "batches", "source_end", "lag_records"),
        *_names(state=32),
        *_numbers("first_ms", "last_ms", "open_from", "open_records", "open_bytes", "open_batches"),
        *_numbers("open_first_ms", "open_last_ms"),
        *_small("closed_rows", "producers"),
        sa.PrimaryKeyConstraint("id", name="pk_positions"),
        sa.UniqueConstraint("link", "topic", "partition", name="uq_positions_link"),
    )
    _table(
        "receipts",
        *_numbers("position_id", "from_offset", "to_offset", "records", "bytes", "batches"),
        *_numbers("source_end", "lag_records", "first_ms", "last_ms"),
        sa.PrimaryKeyConstraint("position_id", "from_offset", name="pk_receipts"),
        sa.ForeignKeyConstraint(["position_id"], ["positions.id"], ondelete="CASCADE", name="fk_receipts_position_id"),
    )
    _table(
        "source_producers",
        *_numbers("position_id", "producer_id"),
        *_small("epoch"),
        *_numbers("last_offset", "last_ms"),
        sa.Column("batches", _text(), nullable=False),
        sa.PrimaryKeyConstraint("position_id", "producer_id", name="pk_source_producers"),
        sa.ForeignKeyConstraint(
            ["position_id"], ["positions.id"], ondelete="CASCADE", name="fk_source_producers_position_id"
        ),
    )
    create_index("ix_source_producers_recent", "source_producers", "position_id", "last_offset")


def _judged() -> None:
    _table(
        "incidents",
        _row_id(),
        sa.Column("open_key", _name(64), nullable=True),
        *_names(link=130, topic=249),
        *_small("partition"),
        *_names(kind=64),
        *_numbers("from_offset", "to_offset"),
        sa.Column("policy", _text(), nullable=False),
        sa.Column("sentence", _text(), nullable=False),
        *_numbers("opened_ms"),
        sa.Column("closed_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_incidents"),
        sa.UniqueConstraint("open_key", name="uq_incidents_open_key"),
    )
    create_index("ix_incidents_link", "incidents", "link")
    _table(
        "link_status",
        *_names(link=130, owner=255, state=64),
        sa.Column("sentence", _text(), nullable=False),
        *_numbers("updated_ms"),
        *_small("lanes", "partitions"),
        sa.Column("records_per_s", sa.Double(), nullable=False),
        sa.Column("bytes_per_s", sa.Double(), nullable=False),
        *_numbers("lag_records"),
        sa.Column("p50_ms", sa.Double(), nullable=True),
        sa.Column("p99_ms", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("link", name="pk_link_status"),
    )
