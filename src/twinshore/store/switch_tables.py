"""The tables of switches: every switch with its record, which topics one moves just now, what had crossed of those that
moved by force, and who is kept out where."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, Table

from twinshore.store.tables import LINK_LENGTH, TOPIC_LENGTH, exact_name, long_text, metadata, number, partition_key

SWITCH_ID_LENGTH = 32
SET_BY_LENGTH = 255

# The primary key is the lock: of two switches that want one topic, the first has it.
switching = Table(
    "switching",
    metadata,
    Column("pair", exact_name(LINK_LENGTH), primary_key=True),
    Column("topic", exact_name(TOPIC_LENGTH), primary_key=True),
    Column("switch_id", exact_name(SWITCH_ID_LENGTH), nullable=False),
    Column("link", exact_name(LINK_LENGTH), nullable=False),
    Column("asked", exact_name(32), nullable=False),
    number("asked_ms"),
    number("let_go_ms"),
)
Index("ix_switching_link", switching.c.link)

# `record`: all that the switch has come to, as JSON.
switches = Table(
    "switches",
    metadata,
    Column("id", exact_name(SWITCH_ID_LENGTH), primary_key=True),
    Column("kind", exact_name(32), nullable=False),
    Column("source", exact_name(64), nullable=False),
    Column("target", exact_name(64), nullable=False),
    Column("state", exact_name(32), nullable=False),
    Column("record", long_text(), nullable=False),
    Column("set_by", exact_name(SET_BY_LENGTH), nullable=False),
    number("begun_ms"),
    number("changed_ms"),
    Column("ended_ms", BigInteger, nullable=True),
)


# Of a topic that moved by force: how far the link that carried it had receipts.
crossings = Table(
    "crossings",
    metadata,
    *partition_key(),
    number("term"),
    number("to_offset"),
    number("since_ms"),
)

# Rows of `source_producers`, which are gone with the position that they hang on.
crossed_producers = Table(
    "crossed_producers",
    metadata,
    *partition_key(),
    Column("producer_id", BigInteger, primary_key=True, autoincrement=False),
    Column("epoch", Integer, nullable=False),
    Column("batches", long_text(), nullable=False),
)

# One guard for all twins of a cluster: `guard` is JSON, and says what of the cluster's ACLs is not as it was.
guards = Table(
    "guards",
    metadata,
    Column("cluster", exact_name(64), primary_key=True),
    Column("guard", long_text(), nullable=False),
    number("changed_ms"),
)
