"""What an operator sees of what went through: by subject, sorted, a page at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.errors import mentions
from twinshore.config.errors import ConfigError
from twinshore.kafka.clock import wall_ms
from twinshore.proxy.core.traffic import TrafficGrouping, TrafficOrder, aggregate_traffic, get_tail_latency_ms
from twinshore.proxy.operations.traffic import TrafficQuery, parse_query, query_traffic
from twinshore.state.core.proxy_values import LATENCY_BUCKETS_MS, TrafficCounter, TrafficKey, TrafficKind, TrafficRow
from twinshore.state.store import open_store


def row(
    client: str, topic: str, kind: TrafficKind, flow: TrafficCounter, cluster: str = "east", at_ms: int = 0
) -> TrafficRow:
    return TrafficRow("p1", "proxy a:19092", at_ms, at_ms + 10_000, TrafficKey(client, topic, cluster, kind), flow)


def produced(client: str, topic: str, size: int, requests: int = 10, at_ms: int = 0) -> TrafficRow:
    return row(
        client, topic, TrafficKind.PRODUCE, TrafficCounter(requests=requests, bytes=size, records=requests), at_ms=at_ms
    )


ROWS = [
    produced("app", "orders", 1_000, 200),
    produced("other", "orders", 1_000, 1, at_ms=10_000),
    produced("app", "bills", 5_000, 2),
    row("app", "", TrafficKind.FETCH, TrafficCounter(requests=4, empty=3), "west"),
    row("app", "", TrafficKind.CLIENT, TrafficCounter(requests=300, bytes=9_000, connections=3, connected_max=2), ""),
]


def test_flows_are_seen_by_topic_client_cluster_and_way() -> None:
    def named(by: TrafficGrouping, sort: TrafficOrder = TrafficOrder.BYTES) -> list[tuple[str, str]]:
        return [(one.subject, one.kind.value) for one in aggregate_traffic(ROWS, by, sort)]

    assert named(TrafficGrouping.TOPIC) == [("bills", "produce"), ("orders", "produce")]
    assert named(TrafficGrouping.TOPIC, TrafficOrder.REQUESTS) == [("orders", "produce"), ("bills", "produce")]
    assert named(TrafficGrouping.CLUSTER) == [("east", "produce"), ("west", "fetch")]
    assert named(TrafficGrouping.PROXY_TO_CLUSTER)[0] == ("proxy a:19092 to east", "produce")
    assert named(TrafficGrouping.CLIENT) == [
        ("app", "client"),
        ("app", "produce"),
        ("other", "produce"),
        ("app", "fetch"),
    ]
    assert ("app, no topic on west", "fetch") in named(TrafficGrouping.FLOW)


def test_rates_are_of_the_whole_time() -> None:
    orders = aggregate_traffic(ROWS, TrafficGrouping.TOPIC, TrafficOrder.REQUESTS)[0].as_values()
    assert (orders["bytes_s"], orders["requests"], orders["clients"]) == (100.0, 201, 2)


def test_the_tail_is_the_end_of_a_bucket() -> None:
    counts = [0] * (len(LATENCY_BUCKETS_MS) + 1)
    assert get_tail_latency_ms(counts) is None
    counts[1], counts[4] = 99, 1
    assert get_tail_latency_ms(counts) == 2
    counts[4] = 2
    assert get_tail_latency_ms(counts) == 20
    counts[-1] = 50
    assert get_tail_latency_ms(counts) is None


def test_a_page_is_a_part_of_what_is_meant(tmp_path: Path) -> None:
    now_ms = wall_ms()
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        recent = [produced("app", f"t{number}", number, at_ms=now_ms - 20_000) for number in range(1, 6)]
        store.traffic.tell([*recent, produced("else", "t9", 1_000, at_ms=now_ms - 20_000)])
        found = query_traffic(TrafficQuery(client="app", page=2, size=2), store)
        assert [one.subject for one in found.lines] == ["t3", "t2"]
        assert (found.pages, found.count) == (3, 5)
        assert found.sentences()[-1] == "page 2 of 3, 5 in all"
        assert query_traffic(TrafficQuery(topic="t9*"), store).as_values()["lines"][0]["bytes"] == 1_000
        assert query_traffic(TrafficQuery(last_s=1), store).lines == ()


def test_a_name_that_nothing_had_is_told_with_what_may_be_meant(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        store.traffic.tell([produced("app-7", "orders", 1_000, at_ms=wall_ms() - 20_000)])
        (topic,) = query_traffic(TrafficQuery(topic="ordrs"), store).sentences()
        assert mentions(topic, "topic ordrs", "300 s", "orders")
        (client,) = query_traffic(TrafficQuery(client="xyz*"), store).sentences()
        assert mentions(client, "client xyz*", "300 s")
        assert query_traffic(TrafficQuery(topic="ord*"), store).unseen == ()


def test_what_is_asked_for_must_be_there() -> None:
    assert parse_query("way", "latency", "2h", "*", "*", 1, 20) == TrafficQuery(
        TrafficGrouping.PROXY_TO_CLUSTER, TrafficOrder.LATENCY, 7_200
    )
    for wrong in (("ways", "bytes", "5m"), ("way", "byte", "5m"), ("way", "bytes", "5")):
        with pytest.raises(ConfigError, match=r"way|byte|5"):
            parse_query(*wrong, "*", "*", 1, 20)
