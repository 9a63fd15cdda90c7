"""Whom a transactional id's requests go to, when its coordinator is lost."""

from __future__ import annotations

import socket
import struct
from contextlib import closing

import pytest

from tests.kafka.peers import answer, greet, peer, read_request
from twinshore.config.errors import KafkaError
from twinshore.config.model import Cluster
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol import apis
from twinshore.kafka.transactional_ids import TransactionalIds

FIND_COORDINATOR = 10


def test_a_coordinator_that_hangs_up_is_looked_up_anew() -> None:
    asked: list[str] = []
    address: tuple[str, int] = ("", 0)

    def serve(connection: socket.socket) -> None:
        greet(connection, (apis.METADATA, 0, 12), (FIND_COORDINATOR, 0, 4), (apis.INIT_PRODUCER_ID, 0, 4))
        while True:
            key, _, correlation_id = read_request(connection)
            if key == apis.METADATA:
                brokers = b"".join(
                    struct.pack(">iB", node, 10) + b"127.0.0.1" + struct.pack(">iBB", address[1], 0, 0)
                    for node in (1, 2)
                )
                answer(connection, correlation_id, bytes(5) + b"\3" + brokers + b"\2c" + struct.pack(">iBB", 1, 1, 0))
            elif key == FIND_COORDINATOR:
                asked.append("find")
                node = struct.pack(">iBihBB", 1 if asked.count("find") == 1 else 2, 1, 0, 0, 0, 0)
                answer(connection, correlation_id, bytes(5) + b"\2" + b"\2x" + node + b"\0")
            else:
                asked.append("init")
                if asked.count("init") == 1:
                    return
                answer(connection, correlation_id, b"\0" + struct.pack(">ihqhB", 0, 0, 7, 3, 0))

    with peer(serve) as found:
        address = found
        cluster = Cluster("east", (f"127.0.0.1:{found[1]}",))
        with closing(KafkaCluster(cluster, patience_s=5)) as kafka:
            transactions = TransactionalIds(kafka, patience_s=5, go=lambda: None)
            with pytest.raises(KafkaError, match="during InitProducerId"):
                transactions.acquire("x", 10)
            assert transactions.acquire("x", 10) == ("x", 7, 3)
    assert asked == ["find", "init", "find", "init"]
