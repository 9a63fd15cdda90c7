"""A line to a source: when an answer that comes in pieces wakes the task, and what a peer's silence or end does."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from tests.kafka.peers import greet, peer, read_request, woken
from twinshore.config.errors import KafkaError
from twinshore.config.model import Security
from twinshore.kafka.connection import open_connection
from twinshore.kafka.protocol.fetch import (
    FETCH_KEY,
    FETCH_VERSION,
    FetchPartitionById,
    FetchResponse,
    FetchResponsePartition,
    write_fetch_response,
)
from twinshore.kafka.protocol.requests import response_frame
from twinshore.replication.task.core.connections import SourceFetcher
from twinshore.replication.task.core.fetching import PlannedFetch
from twinshore.replication.task.core.messages import TaskLimits
from twinshore.replication.task.runner import SourceConnection

TOPIC = bytes(range(16))
ORDER = PlannedFetch(0, 0, [FetchPartitionById(TOPIC, 0, 0, 1, 1, 8 << 20)], [], wait_ms_max=100)


def answer_of(correlation: int, records: bytes) -> bytes:
    """A whole fetch answer for one partition."""
    return framed(correlation, FetchResponse(0, 0, 7, [FetchResponsePartition(TOPIC, 0, 0, 9, 9, 0, [], -1, records)]))


def framed(correlation: int, answer: FetchResponse) -> bytes:
    return b"".join(response_frame(FETCH_KEY, FETCH_VERSION, correlation, write_fetch_response(FETCH_VERSION, answer)))


def test_a_bulk_wakes_the_task_and_few_bytes_do_not_but_are_had_on_a_look() -> None:
    records = bytes(range(256)) * 20_000
    turns = [threading.Event() for _ in range(3)]

    def serve(connection: socket.socket) -> None:
        greet(connection, (FETCH_KEY, FETCH_VERSION, FETCH_VERSION))
        data = answer_of(read_request(connection)[2], records)
        for turn, (start, end) in zip(turns, ((0, 1_000), (1_000, 9_000), (9_000, len(data))), strict=True):
            turn.wait(10)
            connection.sendall(data[start:end])
        connection.sendall(answer_of(read_request(connection)[2], b"few"))
        connection.recv(1)

    with peer(serve) as address:
        connection = open_connection(address, Security())
        connection.transport.setblocking(False)
        line = SourceConnection(SourceFetcher((1, 0), TaskLimits()), connection)
        assert line.ask(line.flow.ask(ORDER, 0.0))
        turns[0].set()
        assert woken(line, 10), "the beginning of an answer is told at once"
        assert line.receive(1.0) is None
        turns[1].set()
        assert not woken(line, 0.3), "a few bytes of five megabytes wake nobody"
        deadline_s = line.flow.deadline_s
        assert line.receive(2.0) is None
        assert line.flow.deadline_s > deadline_s, "but are a sign of life when looked for"
        turns[2].set()
        found, until_s = None, time.monotonic() + 10
        while found is None and time.monotonic() < until_s:
            assert woken(line, 10)
            found = line.receive(3.0)
        assert found is not None
        assert bytes(found[0].partitions[0].records) == records
        line.flow.answered(*found, 3.0)
        assert line.ask(line.flow.ask(ORDER, 4.0))
        assert woken(line, 10), "the next answer, however short, is told at once"
        again = line.receive(5.0)
        assert again is not None
        assert bytes(again[0].partitions[0].records) == b"few"
        line.close()


def test_the_end_of_a_source_wakes_whoever_waits_for_a_bulk() -> None:
    def serve(connection: socket.socket) -> None:
        greet(connection, (FETCH_KEY, FETCH_VERSION, FETCH_VERSION))
        connection.sendall(answer_of(read_request(connection)[2], bytes(5 << 20))[:50_000])

    with peer(serve) as address:
        connection = open_connection(address, Security())
        connection.transport.setblocking(False)
        line = SourceConnection(SourceFetcher((1, 0), TaskLimits()), connection)
        line.ask(line.flow.ask(ORDER, 0.0))
        with pytest.raises(KafkaError, match="hung up"):
            for _ in range(20):
                assert woken(line, 10)
                assert line.receive(1.0) is None
        line.close()


def test_the_header_of_a_throttled_answer_is_nothing_that_crossed() -> None:
    def serve(connection: socket.socket) -> None:
        greet(connection, (FETCH_KEY, FETCH_VERSION, FETCH_VERSION))
        connection.sendall(framed(read_request(connection)[2], FetchResponse(3000, 0, 7, [])))

    with peer(serve) as address:
        connection = open_connection(address, Security())
        connection.transport.setblocking(False)
        line = SourceConnection(SourceFetcher((1, 0), TaskLimits()), connection)
        line.ask(line.flow.ask(ORDER, 0.0))
        assert woken(line, 10)
        found = line.receive(1.0)
        assert found is not None
        line.flow.answered(*found, 1.0)
        assert line.flow.quota.still(3.9)
        assert not line.flow.quota.still(4.1)
        assert line.flow.quota.bytes_s(1.0) == 1.0, "the least that is told: nothing crossed"
        line.close()


def test_a_source_that_speaks_unasked_is_an_error_of_its_line() -> None:
    def serve(connection: socket.socket) -> None:
        greet(connection, (FETCH_KEY, FETCH_VERSION, FETCH_VERSION))
        connection.sendall(answer_of(read_request(connection)[2], b"few") + b"more")
        connection.recv(1)

    with peer(serve) as address:
        connection = open_connection(address, Security())
        connection.transport.setblocking(False)
        line = SourceConnection(SourceFetcher((1, 0), TaskLimits()), connection)
        assert line.ask(line.flow.ask(ORDER, 0.0))
        found, until_s = None, time.monotonic() + 10
        while found is None and time.monotonic() < until_s:
            assert woken(line, 10)
            found = line.receive(1.0)
        assert found is not None
        assert bytes(found[0].partitions[0].records) == b"few"
        line.flow.answered(*found, 1.0)
        with pytest.raises(KafkaError, match="the peer sent 4 bytes unasked"):
            line.ask(line.flow.ask(ORDER, 2.0))
        line.close()
