"""All tables, for three databases. Names compare byte by byte everywhere: `Orders` and `orders` are two topics."""

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


def exact_name(length: int) -> TypeEngine[str]:
    exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return String(length).with_variant(exact, "mysql", "mariadb")


def long_text() -> TypeEngine[str]:
    exact = MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin")
    return Text().with_variant(exact, "mysql", "mariadb")


def _row_id() -> TypeEngine[int]:
    return BigInteger().with_variant(Integer(), "sqlite")


def number(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def partition_key() -> tuple[Column[str], Column[str], Column[int]]:
    return (
        Column("link", exact_name(LINK_LENGTH), primary_key=True),
        Column("topic", exact_name(TOPIC_LENGTH), primary_key=True),
        Column("partition", Integer, primary_key=True, autoincrement=False),
    )


leases = Table(
    "leases",
    metadata,
    Column("name", exact_name(512), primary_key=True),
    Column("owner", exact_name(255), nullable=False),
    number("epoch"),
    number("renewals"),
    number("ttl_ms"),
    Column("released", Boolean, nullable=False),
)

# One row: the store's id, also after a move or restore.
store_identity = Table(
    "store_identity",
    metadata,
    Column("row", Integer, primary_key=True, autoincrement=False),
    Column("store_id", exact_name(64), nullable=False),
)

link_identities = Table(
    "link_identities",
    metadata,
    Column("link", exact_name(LINK_LENGTH), primary_key=True),
    number("producer_id"),
    number("producer_epoch"),
    Column("source_cluster_id", exact_name(255), nullable=False),
    Column("target_cluster_id", exact_name(255), nullable=False),
)

twins = Table(
    "twins",
    metadata,
    *partition_key(),
    Column("source_topic_id", exact_name(64), nullable=False),
    Column("target_topic_id", exact_name(64), nullable=False),
    number("base_offset"),
    number("base_sequence"),
    number("created_ms"),
    number("inherited_end"),
    Column("epoch", Integer, nullable=False),
    number("last_incident_id"),
)

# Where each topic of a pair of clusters is written. `term` grows whenever another home is set.
homes = Table(
    "homes",
    metadata,
    Column("pair", exact_name(LINK_LENGTH), primary_key=True),
    Column("topic", exact_name(TOPIC_LENGTH), primary_key=True),
    Column("home", exact_name(64), nullable=False),
    number("term"),
    number("since_ms"),
    Column("set_by", exact_name(255), nullable=False),
)

# One row for each partition, so recording progress writes one row a partition.
positions = Table(
    "positions",
    metadata,
    Column("id", _row_id(), primary_key=True, autoincrement=True),
    Column("link", exact_name(LINK_LENGTH), nullable=False),
    Column("topic", exact_name(TOPIC_LENGTH), nullable=False),
    Column("partition", Integer, nullable=False),
    number("start_offset"),
    number("to_offset"),
    number("records"),
    number("bytes"),
    number("batches"),
    number("source_end"),
    number("lag_records"),
    Column("state", exact_name(32), nullable=False),
    number("first_ms"),
    number("last_ms"),
    Column("producers", Integer, nullable=False),
    Column("source_epoch", Integer, nullable=False),
    UniqueConstraint("link", "topic", "partition"),
)

# Offset runs of mapped twins; looked up from either side by an index.
offset_runs = Table(
    "offset_runs",
    metadata,
    *partition_key(),
    Column("source", BigInteger, primary_key=True, autoincrement=False),
    number("target"),
    number("length"),
    number("sequence"),
)
Index("ix_offset_runs_target", offset_runs.c.link, offset_runs.c.topic, offset_runs.c.partition, offset_runs.c.target)

source_producers = Table(
    "source_producers",
    metadata,
    Column("position_id", BigInteger, ForeignKey("positions.id", ondelete="CASCADE"), primary_key=True),
    Column("producer_id", BigInteger, primary_key=True, autoincrement=False),
    Column("epoch", Integer, nullable=False),
    number("last_offset"),
    number("last_ms"),
    Column("batches", long_text(), nullable=False),
)
Index("ix_source_producers_recent", source_producers.c.position_id, source_producers.c.last_offset)

# `open_key` is unique while an incident is open and NULL afterwards: one open row for one thing, on every database.
incidents = Table(
    "incidents",
    metadata,
    Column("id", _row_id(), primary_key=True, autoincrement=True),
    Column("open_key", exact_name(64), nullable=True, unique=True),
    Column("link", exact_name(LINK_LENGTH), nullable=False, index=True),
    Column("topic", exact_name(TOPIC_LENGTH), nullable=False),
    Column("partition", Integer, nullable=False),
    Column("kind", exact_name(64), nullable=False),
    number("from_offset"),
    number("to_offset"),
    Column("policy", long_text(), nullable=False),
    Column("effect", exact_name(32), nullable=False),
    Column("side", exact_name(32), nullable=False),
    Column("sentence", long_text(), nullable=False),
    number("opened_ms"),
    Column("closed_ms", BigInteger, nullable=True),
    Column("joined_ranges", long_text(), nullable=True),
    Column("joined_rows", Integer, nullable=False),
    Column("proof_mode", exact_name(32), nullable=False),
    Index("ix_incidents_partition", "link", "topic", "partition", "kind"),
)

link_status = Table(
    "link_status",
    metadata,
    Column("link", exact_name(LINK_LENGTH), primary_key=True),
    Column("owner", exact_name(255), nullable=False),
    Column("state", exact_name(64), nullable=False),
    Column("sentence", long_text(), nullable=False),
    number("updated_ms"),
    Column("tasks", Integer, nullable=False),
    Column("partitions", Integer, nullable=False),
    Column("records_per_s", Double, nullable=False),
    Column("bytes_per_s", Double, nullable=False),
    number("lag_records"),
    Column("p50_ms", Double, nullable=True),
    Column("p99_ms", Double, nullable=True),
)

# Changes by links and operators besides records; of each link the newest rows only.
audit = Table(
    "audit",
    metadata,
    Column("id", _row_id(), primary_key=True, autoincrement=True),
    number("at_ms"),
    Column("link", exact_name(LINK_LENGTH), nullable=False, index=True),
    Column("kind", exact_name(64), nullable=False),
    Column("subject", long_text(), nullable=False),
    Column("before", long_text(), nullable=False),
    Column("after", long_text(), nullable=False),
    Column("outcome", long_text(), nullable=False),
    Column("actor", exact_name(ACTOR_LENGTH), nullable=False),
    Column("topic", exact_name(TOPIC_LENGTH), nullable=False),
    Column("group_id", exact_name(GROUP_LENGTH), nullable=False),
)

# The key has the subject's digest: subjects are longer than keys may be.
link_states = Table(
    "link_states",
    metadata,
    Column("link", exact_name(LINK_LENGTH), primary_key=True),
    Column("kind", exact_name(64), primary_key=True),
    Column("subject_digest", exact_name(64), primary_key=True),
    Column("state", exact_name(32), nullable=False),
    Column("subject", long_text(), nullable=False),
    Column("value", long_text(), nullable=False),
    number("since_ms"),
)

# One value for each name, as JSON; the version grows with each change, so that pollers read only that.
controls = Table(
    "controls",
    metadata,
    Column("link", exact_name(LINK_LENGTH), primary_key=True),
    Column("name", exact_name(64), primary_key=True),
    Column("value", long_text(), nullable=False),
    number("changed_ms"),
    Column("changed_by", exact_name(255), nullable=False),
)

control_versions = Table(
    "control_versions",
    metadata,
    Column("link", exact_name(LINK_LENGTH), primary_key=True),
    number("version"),
)

# Definitions of links: the section of the settings as JSON. `seed`: the settings when last adopted.
link_rows = Table(
    "link_rows",
    metadata,
    Column("link", exact_name(LINK_LENGTH), primary_key=True),
    Column("state", exact_name(32), nullable=False),
    Column("section", long_text(), nullable=False),
    Column("seed", long_text(), nullable=False),
    number("revision"),
    number("changed_ms"),
    Column("changed_by", exact_name(255), nullable=False),
)

# A number for each subject that grows with each change, so that pollers read only that.
revisions = Table(
    "revisions",
    metadata,
    Column("subject", exact_name(64), primary_key=True),
    number("revision"),
)

# As with incidents: `open_key` is unique while an alarm is open, and NULL in the history.
alarms = Table(
    "alarms",
    metadata,
    Column("id", _row_id(), primary_key=True, autoincrement=True),
    Column("open_key", exact_name(64), nullable=True, unique=True),
    Column("link", exact_name(LINK_LENGTH), nullable=False, index=True),
    Column("kind", exact_name(64), nullable=False),
    Column("topic", exact_name(TOPIC_LENGTH), nullable=False),
    Column("group_id", exact_name(255), nullable=False),
    Column("sentence", long_text(), nullable=False),
    number("raised_ms"),
    Column("reported_ms", BigInteger, nullable=True),
    number("reports"),
    Column("cleared_ms", BigInteger, nullable=True),
)

partition_delays = Table(
    "partition_delays",
    metadata,
    *partition_key(),
    Column("group_id", exact_name(255), primary_key=True),
    number("at_ms"),
    number("source_end"),
    number("target_end"),
    number("lag_records"),
    number("recovery_point_ms"),
    Column("offset_relation", exact_name(32), nullable=False),
    Column("state", exact_name(32), nullable=False),
    Column("unreplicated_ends", long_text(), nullable=False),
)

# Lag monitors and their watchers. Each reports itself; one that stops is missed.
watchers = Table(
    "watchers",
    metadata,
    Column("name", exact_name(255), primary_key=True),
    Column("kind", exact_name(32), nullable=False),
    Column("owner", exact_name(255), nullable=False),
    number("heartbeats"),
    number("heartbeat_interval_ms"),
    number("heartbeat_ms"),
    number("sampled_ms"),
    Column("sentence", long_text(), nullable=False),
    Column("links", long_text(), nullable=False),
)

# One row for each partition: through which offset both sides are identical, or how they differ.
proofs = Table(
    "proofs",
    metadata,
    *partition_key(),
    Column("mode", exact_name(32), nullable=False),
    Column("state", exact_name(32), nullable=False),
    number("from_offset"),
    number("to_offset"),
    number("target_offset"),
    number("source_end"),
    number("records"),
    Column("digest", exact_name(32), nullable=False),
    Column("sentence", long_text(), nullable=False),
    Column("source_topic_id", exact_name(64), nullable=False),
    Column("target_topic_id", exact_name(64), nullable=False),
    number("proven_ms"),
    number("last_incident_id"),
    number("bytes_read"),
    number("oldest_ms"),
    number("reread_offset"),
    number("reread_target"),
    number("reread_end"),
    number("reread_ms"),
    number("revision"),
)

# One row for each partition of a compacted twin: the last comparison of keys, and its missing tombstones.
key_checks = Table(
    "key_checks",
    metadata,
    *partition_key(),
    Column("source_topic_id", exact_name(64), nullable=False),
    Column("target_topic_id", exact_name(64), nullable=False),
    number("mark_end"),
    number("mark_ms"),
    number("since_ms"),
    number("retention_ms"),
    number("may_lack_tombstones"),
    number("checked_ms"),
    number("checked_end"),
    number("missing_tombstones"),
    number("from_offset"),
    number("to_offset"),
)

CLIENT_LENGTH = 255
INSTANCE_LENGTH = RUN_LENGTH = 64
NAME_LENGTH = 255
_WORD_LENGTH = 32


def _breaker_key() -> tuple[Column[str], ...]:
    return (
        Column("topic", exact_name(TOPIC_LENGTH + 1), primary_key=True),
        Column("client", exact_name(CLIENT_LENGTH), primary_key=True),
        Column("kind", exact_name(_WORD_LENGTH), primary_key=True),
    )


# `revisions` has a number that grows with each change of this table.
proxy_breakers = Table(
    "proxy_breakers",
    metadata,
    *_breaker_key(),
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

proxy_breaker_counts = Table(
    "proxy_breaker_counts",
    metadata,
    Column("instance", exact_name(INSTANCE_LENGTH), primary_key=True),
    *_breaker_key(),
    number("requests"),
    number("records"),
    number("bytes"),
    Column("tripped", Boolean(), nullable=False),
    number("changed_ms"),
)

# Never deleted: these records are on no broker, though their producers got acknowledgements.
proxy_drops = Table(
    "proxy_drops",
    metadata,
    Column("instance", exact_name(INSTANCE_LENGTH), primary_key=True),
    Column("topic", exact_name(TOPIC_LENGTH), primary_key=True),
    Column("client", exact_name(CLIENT_LENGTH), primary_key=True),
    Column("since_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("breaker", exact_name(TOPIC_LENGTH + 1), nullable=False),
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

proxy_reset_statuses = Table(
    "proxy_reset_statuses",
    metadata,
    Column("instance", exact_name(INSTANCE_LENGTH), primary_key=True),
    Column("run", exact_name(RUN_LENGTH), primary_key=True),
    number("waiting_members"),
    number("at_ms"),
)

SWITCH_ID_LENGTH = 32
SET_BY_LENGTH = 255

# The primary key is the lock: of two switches that want one topic, the first has it.
topics_in_switch = Table(
    "topics_in_switch",
    metadata,
    Column("pair", exact_name(LINK_LENGTH), primary_key=True),
    Column("topic", exact_name(TOPIC_LENGTH), primary_key=True),
    Column("switch_id", exact_name(SWITCH_ID_LENGTH), nullable=False),
    Column("link", exact_name(LINK_LENGTH), nullable=False),
    Column("request", exact_name(32), nullable=False),
    number("requested_ms"),
    number("stopped_ms"),
)
Index("ix_topics_in_switch_link", topics_in_switch.c.link)

# `switch_state`: all that its steps need, as JSON.
switches = Table(
    "switches",
    metadata,
    Column("id", exact_name(SWITCH_ID_LENGTH), primary_key=True),
    Column("kind", exact_name(32), nullable=False),
    Column("source", exact_name(64), nullable=False),
    Column("target", exact_name(64), nullable=False),
    Column("state", exact_name(32), nullable=False),
    Column("switch_state", long_text(), nullable=False),
    Column("set_by", exact_name(SET_BY_LENGTH), nullable=False),
    number("begun_ms"),
    number("changed_ms"),
    Column("ended_ms", BigInteger, nullable=True),
)


# Of a topic that moved by force: how far the old link had replicated.
replicated_prefixes = Table(
    "replicated_prefixes",
    metadata,
    *partition_key(),
    number("term"),
    number("to_offset"),
    number("since_ms"),
)

# Copies of `source_producers` rows, which are deleted with their position.
replicated_producers = Table(
    "replicated_producers",
    metadata,
    *partition_key(),
    Column("producer_id", BigInteger, primary_key=True, autoincrement=False),
    Column("epoch", Integer, nullable=False),
    Column("batches", long_text(), nullable=False),
)

# One write block for all twins of a cluster: `block` is JSON, with the changed ACLs of the cluster.
write_blocks = Table(
    "write_blocks",
    metadata,
    Column("cluster", exact_name(64), primary_key=True),
    Column("block", long_text(), nullable=False),
    number("changed_ms"),
)
