"""The traffic of all proxies in the last minutes, from the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twinshore.config.schema import parse_member
from twinshore.kafka.clock import wall_ms
from twinshore.proxy.core.traffic import TrafficGrouping, TrafficLine, TrafficOrder, aggregate_traffic, describe_traffic
from twinshore.proxy.operations.breakers import list_unknown_names, parse_seconds
from twinshore.routing.core.subscribers import pattern_matches
from twinshore.state.store import Store


@dataclass(frozen=True, slots=True)
class TrafficQuery:
    """A query. `last_s`: the period. `topic`, `client`: patterns, as of breakers. `page` from 1, `size` lines each."""

    by: TrafficGrouping = TrafficGrouping.TOPIC
    sort: TrafficOrder = TrafficOrder.BYTES
    last_s: int = 300
    topic: str = "*"
    client: str = "*"
    page: int = 1
    size: int = 20


@dataclass(frozen=True, slots=True)
class TrafficPage:
    """Some of `count` lines. `unseen`: requested names without traffic."""

    lines: tuple[TrafficLine, ...]
    page: int
    pages: int
    count: int
    last_s: int
    unseen: tuple[str, ...] = ()

    def as_values(self) -> dict[str, Any]:
        whole = {"page": self.page, "pages": self.pages, "count": self.count, "last_s": self.last_s}
        return {**whole, "lines": [line.as_values() for line in self.lines]}

    def sentences(self) -> list[str]:
        if not self.lines:
            return list(self.unseen) or ["no proxy has told of any traffic"]
        told = [describe_traffic(line) for line in self.lines]
        if self.pages > 1:
            told.append(f"page {self.page} of {self.pages}, {self.count:,} in all")
        return told


def parse_query(by: str, sort: str, last: str, topic: str, client: str, page: int, size: int) -> TrafficQuery:
    """Parse the options. ConfigError if invalid."""
    grouping, order = parse_member(TrafficGrouping, "by", by), parse_member(TrafficOrder, "sort", sort)
    return TrafficQuery(grouping, order, parse_seconds(last, "--last"), topic, client, page, size)


def query_traffic(query: TrafficQuery, store: Store) -> TrafficPage:
    """Returns a page over the windows that ended in the period."""
    now_ms = wall_ms()
    rows = store.traffic.rows(now_ms - query.last_s * 1000, now_ms)
    of_topic = [row for row in rows if pattern_matches(query.topic, row.key.topic)]
    meant = [row for row in of_topic if pattern_matches(query.client, row.key.client)]
    lines = aggregate_traffic(meant, query.by, query.sort)
    first = (query.page - 1) * query.size
    pages = max(1, -(-len(lines) // query.size))
    said = list_unknown_names(query.topic, query.client, rows, f"in the last {query.last_s} s")
    some = tuple(lines[first : first + query.size])
    return TrafficPage(some, query.page, pages, len(lines), query.last_s, said)
