"""By which names clients know brokers where all come to one port, and what a name means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.proxy.talks import LAYOUT
from twinshore.proxy.core.model import BrokerId

NAMED = replace(LAYOUT, node_hosts="node-*.kafka.example")
NODES = {"east": [1, 3], "west": [1002]}


def test_each_broker_has_a_name_and_all_have_one_port() -> None:
    assert [NAMED.host_of("east", 1), NAMED.host_of("west", 1002)] == ["node-1.kafka.example", "node-102.kafka.example"]
    assert NAMED.port_of("east", 1) == NAMED.port_of("west", 1002) == NAMED.last_port == NAMED.port
    assert LAYOUT.host_of("west", 2) == LAYOUT.host


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("node-102.kafka.example", 102),
        ("NODE-102.Kafka.Example", 102),
        ("node-.kafka.example", None),
        ("node-x.kafka.example", None),
        ("node-1.other.example", None),
        ("anode-1.kafka.example", None),
        ("node-١.kafka.example", None),
        (".kafka.example", None),
        ("kafka.example", None),
        ("", None),
    ],
)
def test_a_name_means_the_broker_of_its_number_or_none(name: str, number: int | None) -> None:
    assert NAMED.parse_broker_name(name) == number
    assert LAYOUT.parse_broker_name(name) is None


def test_a_number_means_the_broker_that_has_it_and_keeps_the_place_of_one_that_is_away() -> None:
    assert NAMED.place_of(3, NODES) == BrokerId("east", 3)
    assert NAMED.place_of(102, NODES) == BrokerId("west", 1002)
    assert NAMED.place_of(7, NODES) == BrokerId("east", 7)
    assert NAMED.place_of(102, {}) == BrokerId("west", 2)
    assert NAMED.place_of(200, NODES) is None
    for name in ("9" * 300, "0000000017", "007"):
        assert NAMED.parse_broker_name(f"node-{name}.kafka.example") is None
    assert NAMED.parse_broker_name("node-7.kafka.example.") == 7, "a name may end with the root's dot"
