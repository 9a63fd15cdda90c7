"""The tables, for three databases. Names compare byte by byte everywhere: `Orders` and `orders` are two topics."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects.mysql import MEDIUMTEXT, VARCHAR
from sqlalchemy.types import TypeEngine

LINK_LENGTH = 130
TOPIC_LENGTH = 249
ACTOR_LENGTH = GROUP_LENGTH = 255

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _name(length: int) -> TypeEngine[str]:
    exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return String(length).with_variant(exact, "mysql", "mariadb")


def _text() -> TypeEngine[str]:
    exact = MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin")
    return Text().with_variant(exact, "mysql", "mariadb")


def _row_id() -> TypeEngine[int]:
    return BigInteger().with_variant(Integer(), "sqlite")


def _number(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


leases = Table(
    "leases",
    metadata,
    Column("name", _name(512), primary_key=True),
    Column("owner", _name(255), nullable=False),
    _number("generation"),
    _number("beat"),
    _number("ttl_ms"),
    Column("released", Boolean, nullable=False),
)

# One row: which store this is, wherever it is moved or restored to.
store_identity = Table(
    "store_identity",
    metadata,
    Column("row", Integer, primary_key=True, autoincrement=False),
    Column("store_id", _name(64), nullable=False),
)

link_identities = Table(
    "link_identities",
    metadata,
    Column("link", _name(LINK_LENGTH), primary_key=True),
    _number("producer_id"),
    _number("producer_epoch"),
    Column("source_cluster_id", _name(255), nullable=False),
    Column("target_cluster_id", _name(255), nullable=False),
)

twins = Table(
    "twins",
    metadata,
    Column("link", _name(LINK_LENGTH), primary_key=True),
    Column("topic", _name(TOPIC_LENGTH), primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("source_topic_id", _name(64), nullable=False),
    Column("target_topic_id", _name(64), nullable=False),
    _number("anchor_offset"),
    _number("anchor_sequence"),
    _number("created_ms"),
)

# Where each topic of a pair of clusters is written. `term` grows whenever another home is set.
homes = Table(
    "homes",
    metadata,
    Column("pair", _name(LINK_LENGTH), primary_key=True),
    Column("topic", _name(TOPIC_LENGTH), primary_key=True),
    Column("home", _name(64), nullable=False),
    _number("term"),
    _number("since_ms"),
    Column("set_by", _name(255), nullable=False),
)

# One row per partition holds its youngest receipt too (the open_* columns), so recording writes one row a partition.
positions = Table(
    "positions",
    metadata,
    Column("id", _row_id(), primary_key=True, autoincrement=True),
    Column("link", _name(LINK_LENGTH), nullable=False),
    Column("topic", _name(TOPIC_LENGTH), nullable=False),
    Column("partition", Integer, nullable=False),
    _number("start_offset"),
    _number("to_offset"),
    _number("records"),
    _number("bytes"),
    _number("batches"),
    _number("source_end"),
    _number("lag_records"),
    Column("state", _name(32), nullable=False),
    _number("first_ms"),
    _number("last_ms"),
    _number("open_from"),
    _number("open_records"),
    _number("open_bytes"),
    _number("open_batches"),
    _number("open_first_ms"),
    _number("open_last_ms"),
    Column("closed_rows", Integer, nullable=False),
    Column("producers", Integer, nullable=False),
    Column("source_epoch", Integer, nullable=False, server_default="-1"),
    UniqueConstraint("link", "topic", "partition"),
)

# Where a mapped twin's records lie; looked up from either side by an index.
extents = Table(
    "extents",
    metadata,
    Column("link", _name(LINK_LENGTH), primary_key=True),
    Column("topic", _name(TOPIC_LENGTH), primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("source", BigInteger, primary_key=True, autoincrement=False),
    _number("target"),
    _number("length"),
    _number("sequence"),
)
Index("ix_extents_target", extents.c.link, extents.c.topic, extents.c.partition, extents.c.target)

receipts = Table(
    "receipts",
    metadata,
    Column("position_id", BigInteger, ForeignKey("positions.id", ondelete="CASCADE"), primary_key=True),
    Column("from_offset", BigInteger, primary_key=True, autoincrement=False),
    _number("to_offset"),
    _number("records"),
    _number("bytes"),
    _number("batches"),
    _number("source_end"),
    _number("lag_records"),
    _number("first_ms"),
    _number("last_ms"),
)

source_producers = Table(
    "source_producers",
    metadata,
    Column("position_id", BigInteger, ForeignKey("positions.id", ondelete="CASCADE"), primary_key=True),
    Column("producer_id", BigInteger, primary_key=True, autoincrement=False),
    Column("epoch", Integer, nullable=False),
    _number("last_offset"),
    _number("last_ms"),
    Column("batches", _text(), nullable=False),
)
Index("ix_source_producers_recent", source_producers.c.position_id, source_producers.c.last_offset)

# `open_key` is unique while an incident is open and NULL afterwards: one open row for one thing, on every database.
incidents = Table(
    "incidents",
    metadata,
    Column("id", _row_id(), primary_key=True, autoincrement=True),
    Column("open_key", _name(64), nullable=True, unique=True),
    Column("link", _name(LINK_LENGTH), nullable=False, index=True),
    Column("topic", _name(TOPIC_LENGTH), nullable=False),
    Column("partition", Integer, nullable=False),
    Column("kind", _name(64), nullable=False),
    _number("from_offset"),
    _number("to_offset"),
    Column("policy", _text(), nullable=False),
    Column("effect", _name(32), nullable=False),
    Column("side", _name(32), nullable=False),
    Column("sentence", _text(), nullable=False),
    _number("opened_ms"),
    Column("closed_ms", BigInteger, nullable=True),
)

link_status = Table(
    "link_status",
    metadata,
    Column("link", _name(LINK_LENGTH), primary_key=True),
    Column("owner", _name(255), nullable=False),
    Column("state", _name(64), nullable=False),
    Column("sentence", _text(), nullable=False),
    _number("updated_ms"),
    Column("lanes", Integer, nullable=False),
    Column("partitions", Integer, nullable=False),
    Column("records_per_s", Double, nullable=False),
    Column("bytes_per_s", Double, nullable=False),
    _number("lag_records"),
    Column("p50_ms", Double, nullable=True),
    Column("p99_ms", Double, nullable=True),
)

# Every change a link made on its target besides records; of each link the newest rows only.
audit = Table(
    "audit",
    metadata,
    Column("id", _row_id(), primary_key=True, autoincrement=True),
    _number("at_ms"),
    Column("link", _name(LINK_LENGTH), nullable=False, index=True),
    Column("kind", _name(64), nullable=False),
    Column("subject", _text(), nullable=False),
    Column("before", _text(), nullable=False),
    Column("after", _text(), nullable=False),
    Column("outcome", _text(), nullable=False),
    Column("actor", _name(ACTOR_LENGTH), nullable=False),
    Column("topic", _name(TOPIC_LENGTH), nullable=False),
    Column("group_id", _name(GROUP_LENGTH), nullable=False),
)

# `item` is the subject's digest: subjects are longer than keys may be.
memories = Table(
    "followed",
    metadata,
    Column("link", _name(LINK_LENGTH), primary_key=True),
    Column("kind", _name(64), primary_key=True),
    Column("item", _name(64), primary_key=True),
    Column("state", _name(32), nullable=False),
    Column("subject", _text(), nullable=False),
    Column("value", _text(), nullable=False),
    _number("since_ms"),
)

# One value for each name, as JSON; the version grows with each change, so that whoever follows reads only that.
controls = Table(
    "controls",
    metadata,
    Column("link", _name(LINK_LENGTH), primary_key=True),
    Column("name", _name(64), primary_key=True),
    Column("value", _text(), nullable=False),
    _number("changed_ms"),
    Column("changed_by", _name(255), nullable=False),
)

control_versions = Table(
    "control_versions",
    metadata,
    Column("link", _name(LINK_LENGTH), primary_key=True),
    _number("version"),
)

# What each link is: its section of the settings as JSON. `seed`: what the settings said when they were last taken.
link_rows = Table(
    "link_rows",
    metadata,
    Column("link", _name(LINK_LENGTH), primary_key=True),
    Column("state", _name(32), nullable=False),
    Column("section", _text(), nullable=False),
    Column("seed", _text(), nullable=False),
    _number("revision"),
    _number("changed_ms"),
    Column("changed_by", _name(255), nullable=False),
)

# A number for each subject that grows with each change of it, so that whoever follows reads only that.
revisions = Table(
    "revisions",
    metadata,
    Column("subject", _name(64), primary_key=True),
    _number("revision"),
)

# As with incidents: `open_key` is unique while an alarm stands, and NULL in the history.
alarms = Table(
    "alarms",
    metadata,
    Column("id", _row_id(), primary_key=True, autoincrement=True),
    Column("open_key", _name(64), nullable=True, unique=True),
    Column("link", _name(LINK_LENGTH), nullable=False, index=True),
    Column("kind", _name(64), nullable=False),
    Column("topic", _name(TOPIC_LENGTH), nullable=False),
    Column("group_id", _name(255), nullable=False),
    Column("sentence", _text(), nullable=False),
    _number("raised_ms"),
    Column("told_ms", BigInteger, nullable=True),
    _number("times_told"),
    Column("cleared_ms", BigInteger, nullable=True),
)

delay_places = Table(
    "delay_places",
    metadata,
    Column("link", _name(LINK_LENGTH), primary_key=True),
    Column("topic", _name(TOPIC_LENGTH), primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("group_id", _name(255), primary_key=True),
    _number("at_ms"),
    _number("source_end"),
    _number("target_end"),
    _number("lag_records"),
    _number("recovery_point_ms"),
    Column("axis", _name(32), nullable=False),
    Column("state", _name(32), nullable=False),
    Column("waiting", _text(), nullable=False),
)

# Who watches delays, and who watches those; each says so itself, and whoever stops saying so is missed.
delay_watches = Table(
    "delay_watches",
    metadata,
    Column("name", _name(255), primary_key=True),
    Column("kind", _name(32), nullable=False),
    Column("owner", _name(255), nullable=False),
    _number("beat"),
    _number("every_ms"),
    _number("beaten_ms"),
    _number("sampled_ms"),
    Column("sentence", _text(), nullable=False),
)

# One row for each partition: through which offset both sides were found to be the same, or how they part.
proofs = Table(
    "proofs",
    metadata,
    Column("link", _name(LINK_LENGTH), primary_key=True),
    Column("topic", _name(TOPIC_LENGTH), primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("way", _name(32), nullable=False),
    Column("state", _name(32), nullable=False),
    _number("from_offset"),
    _number("to_offset"),
    _number("target_offset"),
    _number("source_end"),
    _number("records"),
    Column("digest", _name(32), nullable=False),
    Column("sentence", _text(), nullable=False),
    Column("source_topic_id", _name(64), nullable=False),
    Column("target_topic_id", _name(64), nullable=False),
    _number("proven_ms"),
)

# One row for each partition of a compacted twin: when its keys were last compared, and how many deletions it owes.
key_looks = Table(
    "key_looks",
    metadata,
    Column("link", _name(LINK_LENGTH), primary_key=True),
    Column("topic", _name(TOPIC_LENGTH), primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("source_topic_id", _name(64), nullable=False),
    Column("target_topic_id", _name(64), nullable=False),
    _number("mark_end"),
    _number("mark_ms"),
    _number("since_ms"),
    _number("retention_ms"),
    _number("missed"),
    _number("looked_ms"),
    _number("looked_end"),
    _number("owed"),
    _number("from_offset"),
    _number("to_offset"),
)

# Beside each proof: its parts as JSON, each with when it was read last, and the newest row of the ledger it knows of.
proof_books = Table(
    "proof_books",
    metadata,
    Column("link", _name(LINK_LENGTH), primary_key=True),
    Column("topic", _name(TOPIC_LENGTH), primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    _number("ledger_id"),
    Column("pieces", _text(), nullable=False),
)
