"""The table of what went through proxies, a row for each flow and window."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, Table

from twinshore.store.proxy_tables import CLIENT_LENGTH, INSTANCE_LENGTH, NAME_LENGTH
from twinshore.store.tables import TOPIC_LENGTH, exact_name, metadata, number
from twinshore.store.traffic_values import HIGHEST, SUMS

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
