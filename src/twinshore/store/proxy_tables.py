"""The tables of proxies: fuses, the processes that serve, what fuses answered, the ledger of what they dropped, and
resets of groups' places."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Table

from twinshore.store.tables import ACTOR_LENGTH, GROUP_LENGTH, TOPIC_LENGTH, exact_name, long_text, metadata, number

CLIENT_LENGTH = 255
INSTANCE_LENGTH = RUN_LENGTH = 64
NAME_LENGTH = 255
_WORD_LENGTH = 32


def _fuse_key() -> tuple[Column[str], ...]:
    return (
        Column("topic", exact_name(TOPIC_LENGTH + 1), primary_key=True),
        Column("client", exact_name(CLIENT_LENGTH), primary_key=True),
        Column("kind", exact_name(_WORD_LENGTH), primary_key=True),
    )


# `revisions` has a number that grows with each change of this table.
proxy_fuses = Table(
    "proxy_fuses",
    metadata,
    *_fuse_key(),
    Column("state", exact_name(_WORD_LENGTH), nullable=False),
    Column("policy", exact_name(_WORD_LENGTH), nullable=False),
    Column("reason", long_text(), nullable=False),
    Column("set_by", exact_name(ACTOR_LENGTH), nullable=False),
    number("since_ms"),
    number("until_ms"),
    number("records_s"),
    number("bytes_s"),
    number("latency_ms"),
    number("above_s"),
    number("quiet_s"),
)

proxy_instances = Table(
    "proxy_instances",
    metadata,
    Column("id", exact_name(INSTANCE_LENGTH), primary_key=True),
    Column("name", exact_name(NAME_LENGTH), nullable=False),
    Column("host", exact_name(NAME_LENGTH), nullable=False),
    number("port"),
    number("started_ms"),
    number("revision"),
    number("seen_ms"),
)

proxy_fuse_counts = Table(
    "proxy_fuse_counts",
    metadata,
    Column("instance", exact_name(INSTANCE_LENGTH), primary_key=True),
    *_fuse_key(),
    number("requests"),
    number("records"),
    number("bytes"),
    Column("tripped", Boolean(), nullable=False),
    number("changed_ms"),
)

# Never taken away: what is here is on no broker, though its producers were told that it is.
proxy_drops = Table(
    "proxy_drops",
    metadata,
    Column("instance", exact_name(INSTANCE_LENGTH), primary_key=True),
    Column("topic", exact_name(TOPIC_LENGTH), primary_key=True),
    Column("client", exact_name(CLIENT_LENGTH), primary_key=True),
    Column("since_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("fuse", exact_name(TOPIC_LENGTH + 1), nullable=False),
    Column("partitions", long_text(), nullable=False),
    number("records"),
    number("bytes"),
    number("until_ms"),
)

# `revisions` has a number that grows with each change of this table.
proxy_resets = Table(
    "proxy_resets",
    metadata,
    Column("group_id", exact_name(GROUP_LENGTH), primary_key=True),
    Column("run", exact_name(RUN_LENGTH), nullable=False),
    Column("state", exact_name(_WORD_LENGTH), nullable=False),
    Column("set_by", exact_name(ACTOR_LENGTH), nullable=False),
    number("since_ms"),
    number("until_ms"),
    Column("goals", long_text(), nullable=False),
    Column("members", long_text(), nullable=False),
)

proxy_reset_words = Table(
    "proxy_reset_words",
    metadata,
    Column("instance", exact_name(INSTANCE_LENGTH), primary_key=True),
    Column("run", exact_name(RUN_LENGTH), primary_key=True),
    number("waits"),
    number("at_ms"),
)
