"""How long errands last: never longer than they may, however many brokers are silent."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack, closing

import pytest

from tests.kafka.peers import answer, greet, peer, read_request, silent
from twinshore.config.errors import KafkaError
from twinshore.config.model import Cluster, TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol import apis

Errand = Callable[[KafkaCluster], object]
ERRANDS: dict[str, Errand] = {
    "metadata": lambda kafka: kafka.metadata([]),
    "leaders": lambda kafka: kafka.list_offsets([TopicPartition("t", 0)], OffsetKind.LOG_END),
    "partition": lambda kafka: kafka.leader_of(TopicPartition("t", 0)),
    "anybody": lambda kafka: kafka.anybody(
        "it", lambda connection, timeout_s: connection.handshake(timeout_s=timeout_s)
    ),
    "address": lambda kafka: kafka.connection_to(1),
}


def greets_and_falls_silent(connection: socket.socket) -> None:
    greet(connection, (apis.METADATA, 0, 12))
    silent(connection)


def one_broker(connection: socket.socket, port: int) -> None:
    """Answers metadata with one broker, without topics."""
    greet(connection, (apis.METADATA, 0, 12))
    while True:
        _, _, correlation_id = read_request(connection)
        broker = struct.pack(">iB", 1, 10) + b"127.0.0.1" + struct.pack(">iBB", port, 0, 0)
        answer(connection, correlation_id, bytes(5) + b"\2" + broker + b"\2c" + struct.pack(">iBB", 1, 1, 0))


@pytest.mark.parametrize("talk", [silent, greets_and_falls_silent])
@pytest.mark.parametrize("errand", ERRANDS.values(), ids=ERRANDS)
def test_six_silent_brokers_do_not_outlast_patience(errand: Errand, talk: Callable[[socket.socket], None]) -> None:
    with ExitStack() as stack:
        addresses = [stack.enter_context(peer(talk)) for _ in range(6)]
        cluster = Cluster("east", tuple(f"{host}:{port}" for host, port in addresses))
        with closing(KafkaCluster(cluster, patience_s=0.5, call_s=5.0)) as kafka:
            started = time.monotonic()
            with pytest.raises(KafkaError) as caught:
                errand(kafka)
            assert time.monotonic() - started < 1.2
            assert caught.value.retriable


def test_a_silent_broker_leaves_time_for_the_next_and_no_haste_behind() -> None:
    port = 0
    with peer(silent) as quiet, peer(lambda connection: one_broker(connection, port)) as honest:
        port = honest[1]
        cluster = Cluster("east", tuple(f"{host}:{port}" for host, port in (quiet, honest)))
        with closing(KafkaCluster(cluster, patience_s=2.0, call_s=2.0)) as kafka:
            assert list(kafka.metadata([]).brokers) == [1]
            assert kafka.connection_to(1).timeout_s == 2.0
