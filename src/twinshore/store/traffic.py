"""What went through proxies, in SQL: windows that each proxy adds, and that go once they are old."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Index, Integer, RowMapping, Table, delete, insert, select
from sqlalchemy.exc import DataError, IntegrityError

from twinshore.store.dialects import storable
from twinshore.store.engine import StorePart, reads, writes
from twinshore.store.proxy_tables import CLIENT_LENGTH, INSTANCE_LENGTH, NAME_LENGTH
from twinshore.store.tables import TOPIC_LENGTH, exact_name, metadata, number
from twinshore.store.traffic_values import HIGHEST, SUMS, Flow, FlowKey, FlowKind, FlowRow

SOFTWARE_LENGTH = 128
HISTOGRAM_LENGTH = 255
_CLUSTER_LENGTH = 64
_WORD_LENGTH = 32

# `place` counts the rows of a window: names of clients are too long for a key.
proxy_traffic = Table(
    "proxy_traffic",
    metadata,
    Column("instance", exact_name(INSTANCE_LENGTH), primary_key=True),
    Column("since_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("proxy", exact_name(NAME_LENGTH), nullable=False),
    number("until_ms"),
    Column("client", exact_name(CLIENT_LENGTH), nullable=False),
    Column("topic", exact_name(TOPIC_LENGTH), nullable=False),
    Column("cluster", exact_name(_CLUSTER_LENGTH), nullable=False),
    Column("kind", exact_name(_WORD_LENGTH), nullable=False),
    *(number(name) for name in (*SUMS, *HIGHEST)),
    Column("software", exact_name(SOFTWARE_LENGTH), nullable=False),
    Column("latency", exact_name(HISTOGRAM_LENGTH), nullable=False),
    Column("sizes", exact_name(HISTOGRAM_LENGTH), nullable=False),
)
Index("ix_proxy_traffic_until_ms", proxy_traffic.c.until_ms)

# Rows that one statement takes away: a table that was left alone for long is emptied in portions.
_FORGOTTEN_AT_ONCE = 20_000
# The largest that all databases keep.
_COUNT_MAX = 2**63 - 1
# A row that is refused for what is in it: drivers say some of it themselves, in Python's words.
_REFUSED = (DataError, IntegrityError, OverflowError, ValueError)


class Traffic(StorePart):
    """Rows of `proxy_traffic`."""

    @writes
    def tell(self, connection: Connection, rows: Sequence[FlowRow]) -> int:
        """One window of one proxy, in place of what it told of a window that began then. How many rows the database
        refused for what is in them: all others are kept."""
        if not rows:
            return 0
        first = rows[0]
        ours = (proxy_traffic.c.instance == first.instance, proxy_traffic.c.since_ms == first.since_ms)
        values = [_values(place, row) for place, row in enumerate(rows)]
        connection.execute(delete(proxy_traffic).where(*ours))
        return 0 if _takes(connection, values) else sum(not _takes(connection, [one]) for one in values)

    @reads
    def rows(self, connection: Connection, from_ms: int, to_ms: int) -> tuple[FlowRow, ...]:
        """Windows that ended between the two, the first excluded; by their time."""
        query = (
            select(proxy_traffic)
            .where(proxy_traffic.c.until_ms > from_ms, proxy_traffic.c.until_ms <= to_ms)
            .order_by(proxy_traffic.c.until_ms, proxy_traffic.c.instance, proxy_traffic.c.place)
        )
        return tuple(_row(row) for row in connection.execute(query).mappings())

    @writes
    def forget_before(self, connection: Connection, until_ms: int) -> int:
        """Takes away windows that ended before; how many rows that were. Of very many some are left for next time."""
        old = (
            select(proxy_traffic.c.until_ms)
            .where(proxy_traffic.c.until_ms < until_ms)
            .order_by(proxy_traffic.c.until_ms)
            .offset(_FORGOTTEN_AT_ONCE)
            .limit(1)
        )
        border = connection.scalar(old)
        ended = proxy_traffic.c.until_ms < (until_ms if border is None else border + 1)
        return connection.execute(delete(proxy_traffic).where(ended)).rowcount


def _takes(connection: Connection, values: Sequence[dict[str, Any]]) -> bool:
    """Whether the database takes all of these, or else none of them."""
    try:
        with connection.begin_nested():
            connection.execute(insert(proxy_traffic), values)
    except _REFUSED:
        return False
    return True


def _values(place: int, row: FlowRow) -> dict[str, Any]:
    flow = row.flow
    return {
        "instance": row.instance,
        "since_ms": row.since_ms,
        "place": place,
        "proxy": storable(row.proxy)[:NAME_LENGTH],
        "until_ms": row.until_ms,
        "client": storable(row.key.client)[:CLIENT_LENGTH],
        "topic": storable(row.key.topic)[:TOPIC_LENGTH],
        "cluster": row.key.cluster,
        "kind": row.key.kind.value,
        **{name: min(_COUNT_MAX, getattr(flow, name)) for name in (*SUMS, *HIGHEST)},
        "software": storable(flow.software)[:SOFTWARE_LENGTH],
        "latency": _text(flow.latency),
        "sizes": _text(flow.sizes),
    }


def _row(row: RowMapping) -> FlowRow:
    flow = Flow(
        **{name: row[name] for name in (*SUMS, *HIGHEST)},
        software=row["software"],
        latency=_numbers(row["latency"]),
        sizes=_numbers(row["sizes"]),
    )
    key = FlowKey(row["client"], row["topic"], row["cluster"], FlowKind(row["kind"]))
    return FlowRow(row["instance"], row["proxy"], row["since_ms"], row["until_ms"], key, flow)


def _text(counts: Sequence[int]) -> str:
    return ",".join(map(str, counts))


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]
