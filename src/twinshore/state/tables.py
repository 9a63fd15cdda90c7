"""All tables, for three databases. Names compare byte by byte everywhere: `Orders` and `orders` are two topics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, get_args, get_type_hints

from sqlalchemy import BigInteger, Boolean, Column, Double, ForeignKey, Index, Integer, MetaData, String, Table, Text
from sqlalchemy import UniqueConstraint as Unique
from sqlalchemy.dialects.mysql import MEDIUMTEXT, VARCHAR
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeEngine

from twinshore.state import sql
from twinshore.state.core import proxy_values, values

LINK_LENGTH = 130
TOPIC_LENGTH = 249
GROUP_LENGTH = NAME_LENGTH = 255
ID_LENGTH = 64
LENGTHS = {
    **dict.fromkeys(("link", "pair"), LINK_LENGTH),
    "topic": TOPIC_LENGTH,
    **dict.fromkeys(("id", "instance", "run", "kind", "state", "digest"), ID_LENGTH),
}
_LONG_OF_LINKS = ("after", "before", "outcome", "section", "seed", "sentence", "subject", "value", "words")
_LONG_OF_PROXIES = ("goals", "members", "partitions", "reason", "text")
_LONG_OF_OTHERS = ("block", "links", "switch_state", "unreplicated_ends")
_LONG_OF_PLATFORM = ("arguments", "plan")
LONG_TEXTS = frozenset((*_LONG_OF_LINKS, *_LONG_OF_PROXIES, *_LONG_OF_OTHERS, *_LONG_OF_PLATFORM))
_NUMBERS: dict[object, type[TypeEngine[Any]]] = {bool: Boolean, int: BigInteger, float: Double}
LINK, PARTITION = ("link",), ("link", "topic", "partition")

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


def row_id() -> Column[int]:
    return Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True)


def number(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False)


def partition_key() -> tuple[Column[str], Column[str], Column[int]]:
    return (
        Column("link", exact_name(LINK_LENGTH), primary_key=True),
        Column("topic", exact_name(TOPIC_LENGTH), primary_key=True),
        Column("partition", BigInteger, primary_key=True, autoincrement=False),
    )


def row_table(name: str, row: type, keys: tuple[str, ...], /, *more: SchemaItem, **lengths: int) -> Table:
    """A column for each field of `row`, and `more`. Texts have a length, by their name or by `lengths`, or none."""
    sql.TABLE_NAMES[row] = name
    return Table(name, metadata, *_columns(row, keys, lengths), *more)


def _columns(row: type, keys: tuple[str, ...], lengths: dict[str, int]) -> Iterator[Column[Any]]:
    hints = get_type_hints(row)
    for field in fields(row):
        kinds = get_args(hints[field.name]) if NoneType in get_args(hints[field.name]) else (hints[field.name],)
        if is_dataclass(kinds[0]):
            yield from _columns(hints[field.name], keys, lengths)
        elif field.name == "id" and kinds[0] is int:
            yield row_id()
        else:
            is_key = field.name in keys
            kind = _kind(field.name, kinds[0], lengths)
            yield Column(field.name, kind, nullable=NoneType in kinds, primary_key=is_key, autoincrement=False)


def _kind(name: str, kind: object, lengths: dict[str, int]) -> TypeEngine[Any]:
    if number_type := _NUMBERS.get(kind):
        return number_type()
    if name in LONG_TEXTS and name not in lengths:
        return long_text()
    return exact_name(lengths.get(name) or LENGTHS.get(name, NAME_LENGTH))


leases = row_table("leases", values.LeaseRow, ("name",), name=512)
# One row: the store's id, also after a move or restore.
store_identity = Table(
    "store_identity",
    metadata,
    Column("row", Integer, primary_key=True, autoincrement=False),
    Column("store_id", exact_name(ID_LENGTH), nullable=False),
)
link_identities = row_table("link_identities", values.LinkIdentity, LINK)
twins = row_table("twins", values.TwinRow, PARTITION)
# Where each topic of a pair of clusters is written. `term` grows whenever another home is set.
homes = row_table("homes", values.HomeRow, ("pair", "topic"))
# One row for each partition, so recording progress writes one row a partition.
positions = row_table("positions", values.ReplicatedPosition, (), row_id(), number("producers"), Unique(*PARTITION))
# Offset runs of mapped twins; looked up from either side by an index.
offset_runs = Table(
    "offset_runs",
    metadata,
    *partition_key(),
    Column("source", BigInteger, primary_key=True, autoincrement=False),
    *map(number, ("target", "length", "sequence")),
    Index("ix_offset_runs_target", *PARTITION, "target"),
)
source_producers = Table(
    "source_producers",
    metadata,
    Column("position_id", BigInteger, ForeignKey("positions.id", ondelete="CASCADE"), primary_key=True),
    Column("producer_id", BigInteger, primary_key=True, autoincrement=False),
    *map(number, ("epoch", "last_offset", "last_ms")),
    Column("batches", long_text(), nullable=False),
    Index("ix_source_producers_recent", "position_id", "last_offset"),
)
# `open_key` is unique while an incident is open and NULL afterwards: one open row for one thing, on every database.
incidents = row_table(
    "incidents",
    values.Incident,
    (),
    row_id(),
    Column("open_key", exact_name(ID_LENGTH), unique=True),
    number("opened_ms"),
    Column("closed_ms", BigInteger),
    Column("joined_ranges", long_text()),
    number("joined_rows"),
    Index("ix_incidents_link", "link"),
    Index("ix_incidents_partition", *PARTITION, "kind"),
)
link_status = row_table("link_status", values.LinkStatus, LINK)
# Changes by links and operators besides records; of each link the newest rows only.
audit = row_table("audit", values.AuditRow, ("id",), Index("ix_audit_link", "link"))
# The key has the subject's digest: subjects are longer than keys may be.
link_states = row_table(
    "link_states",
    values.LinkStateRow,
    ("link", "kind"),
    Column("subject_digest", exact_name(ID_LENGTH), primary_key=True),
)
# One value for each name, as JSON; the version grows with each change, so that pollers read only that.
controls = row_table("controls", values.ControlRow, ("link", "name"))
control_versions = Table(
    "control_versions", metadata, Column("link", exact_name(LINK_LENGTH), primary_key=True), number("version")
)
live_settings = row_table("live_settings", values.LiveSettingRow, ("key",))
# Definitions of links: the section of the settings as JSON. `seed`: the settings when last adopted.
link_rows = row_table("link_rows", values.LinkRow, LINK)
# A number for each subject that grows with each change, so that pollers read only that.
revisions = Table("revisions", metadata, Column("subject", exact_name(ID_LENGTH), primary_key=True), number("revision"))
# As with incidents: `open_key` is unique while an alarm is open, and NULL in the history.
alarms = row_table(
    "alarms",
    values.AlarmRow,
    ("id",),
    Column("open_key", exact_name(ID_LENGTH), unique=True),
    Index("ix_alarms_link", "link"),
)
partition_delays = row_table("partition_delays", values.PartitionDelayRow, (*PARTITION, "group"))
# Lag monitors and their watchers. Each reports itself; one that stops is missed.
watchers = row_table("watchers", values.WatcherRow, ("name",))
# One row for each partition: through which offset both sides are identical, or how they differ.
proofs = row_table("proofs", values.ProofRow, PARTITION)
# One row for each partition of a compacted twin: the last comparison of keys, and its missing tombstones.
key_checks = row_table("key_checks", values.KeyCheckRow, PARTITION)

# `revisions` has a number that grows with each change of this table, and of `proxy_resets`.
proxy_breakers = row_table("proxy_breakers", proxy_values.BreakerRow, ("topic", "client", "kind"), topic=NAME_LENGTH)
proxy_instances = row_table("proxy_instances", proxy_values.ProxyInstanceRow, ("id",))
proxy_breaker_counts = row_table(
    "proxy_breaker_counts", proxy_values.BreakerCountRow, ("instance", "topic", "client", "kind"), topic=NAME_LENGTH
)
# Never deleted: these records are on no broker, though their producers got acknowledgements.
proxy_drops = row_table("proxy_drops", proxy_values.DroppedRecordsRow, ("instance", "topic", "client", "since_ms"))
proxy_resets = row_table("proxy_resets", proxy_values.ResetRow, ("group",))
proxy_reset_statuses = row_table("proxy_reset_statuses", proxy_values.ResetStatusRow, ("instance", "run"))

# The primary key is the lock: of two switches that want one topic, the first has it.
topics_in_switch = row_table(
    "topics_in_switch", values.TopicInSwitch, ("pair", "topic"), Index("ix_topics_in_switch_link", "link")
)
# `switch_state`: all that its steps need, as JSON.
switches = row_table("switches", values.SwitchRow, ("id",))
# Of a topic that moved by force: how far the old link had replicated.
replicated_prefixes = Table(
    "replicated_prefixes", metadata, *partition_key(), *map(number, ("term", "to_offset", "since_ms"))
)
# Copies of `source_producers` rows, which are deleted with their position.
replicated_producers = Table(
    "replicated_producers",
    metadata,
    *partition_key(),
    Column("producer_id", BigInteger, primary_key=True, autoincrement=False),
    number("epoch"),
    Column("batches", long_text(), nullable=False),
)
# One write block for all twins of a cluster: `block` is JSON, with the changed ACLs of the cluster.
write_blocks = row_table("write_blocks", values.WriteBlockRow, ("cluster",))
