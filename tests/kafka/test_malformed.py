"""Raw answers that cannot be read: an error with its place, and the connection they came by is not used again."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from random import Random

import pytest

from tests.kafka.peers import answer, greet, peer, read_request
from twinshore.config.errors import KafkaError
from twinshore.config.model import Cluster, Security, TopicPartition
from twinshore.kafka.connection import Connection, open_connection
from twinshore.kafka.leader_queries import LeaderPartition, fetch_records
from twinshore.kafka.metadata import BrokerAddress
from twinshore.kafka.pool import NodeConnections
from twinshore.kafka.protocol import apis
from twinshore.kafka.protocol.offsets import parse_offset_commit, parse_offset_fetch
from twinshore.kafka.protocol.produce import read_produce_response
from twinshore.kafka.protocol.transactions import parse_describe_transactions

WANTED = LeaderPartition(TopicPartition("t", 0), bytes(15) + b"\1", 0)
Asking = Callable[[Connection], object]
ASKINGS: dict[str, tuple[str, Asking]] = {
    "records": ("Fetch", lambda line: fetch_records(line, WANTED, 0, bytes_max=9, committed=False, timeout_s=5)),
    "places": ("OffsetFetch", lambda line: line.ask(9, 8, b"", lambda said: parse_offset_fetch(bytes(said), {}))),
    "commit": ("OffsetCommit", lambda line: line.ask(8, 8, b"", lambda said: parse_offset_commit(bytes(said)))),
    "produce": ("Produce", lambda line: line.ask(0, 9, b"", lambda said: read_produce_response(said, 0, 9).appended)),
    "none": (
        "DescribeTransactions",
        lambda line: line.ask(65, 0, b"", lambda said: parse_describe_transactions(said, 0)[0]),
    ),
}


@pytest.mark.parametrize("body", [b"", bytes(4) + b"\xff" * 40], ids=["empty", "junk"])
@pytest.mark.parametrize("asking", ASKINGS)
def test_what_cannot_be_read_names_its_place_and_ends_its_connection(asking: str, body: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        greet(connection, *[(key, 0, 20) for key in (0, 1, 8, 9, 65)])
        _, _, correlation_id = read_request(connection)
        answer(connection, correlation_id, b"\0" + body)

    name, ask = ASKINGS[asking]
    with peer(serve) as address:
        connection = open_connection(address, Security())
        with pytest.raises(KafkaError, match=rf"^127.0.0.1:{address[1]}: the answer to {name} cannot be read: "):
            ask(connection)
        assert connection.closed


def test_a_connection_that_is_let_go_ends_the_call_that_is_under_way_first() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def serve(connection: socket.socket) -> None:
        greet(connection, (apis.FETCH, 0, 20))
        _, _, correlation_id = read_request(connection)
        asked.set()
        assert go_on.wait(10)
        answer(connection, correlation_id, b"\0answered")

    with peer(serve) as address:
        nodes = NodeConnections(Cluster("east", ("127.0.0.1:1",)), "test", time.monotonic, Random(1), call_s=5)
        nodes.learn({1: BrokerAddress(*address, None)})
        line = nodes.kept(address, timeout_s=5)
        found: list[bytes] = []
        thread = threading.Thread(target=lambda: found.append(line.ask(apis.FETCH, 16, b"", bytes)))
        thread.start()
        assert asked.wait(10)
        nodes.learn({})
        assert (line.closed, line.usable) == (False, False)
        go_on.set()
        thread.join()
        assert found == [b"answered"]
        assert line.closed
        nodes.close()


def test_a_connection_at_rest_is_let_go_at_once() -> None:
    with peer(lambda connection: greet(connection, (apis.FETCH, 0, 16))) as address:
        connection = open_connection(address, Security())
        connection.retire()
        assert connection.closed
        with pytest.raises(KafkaError, match="is closed"):
            connection.call_raw(apis.FETCH, 16, b"")
