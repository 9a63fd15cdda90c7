"""Metadata from peers: newer than this code, and lying."""

from __future__ import annotations

import socket
import struct

import pytest

from tests.kafka.peers import answer, greet, peer, read_request
from twinshore.config.errors import KafkaError
from twinshore.config.model import Security
from twinshore.kafka.connection import open_connection
from twinshore.kafka.metadata import PARTITIONS_MAX, ClusterMetadata, read_metadata
from twinshore.kafka.protocol import apis

NEW_TAG = b"\1\x63\2ab"


def body(partition: int, tags: bytes = b"\0") -> bytes:
    """One broker, and one topic with this partition alone."""
    broker = struct.pack(">i", 1) + b"\2h" + struct.pack(">i", 9092) + b"\0" + tags
    nodes = b"\2" + struct.pack(">i", 1)
    part = struct.pack(">hiii", 0, partition, 1, 5) + nodes + nodes + b"\1" + tags
    topic = struct.pack(">h", 0) + b"\2t" + bytes(15) + b"\7\0\2" + part + struct.pack(">i", 0) + tags
    return struct.pack(">i", 0) + b"\2" + broker + b"\2c" + struct.pack(">i", 1) + b"\2" + topic + tags


def asked(said: bytes) -> ClusterMetadata:
    def serve(connection: socket.socket) -> None:
        greet(connection, (apis.METADATA, 0, 13))
        _, _, correlation_id = read_request(connection)
        answer(connection, correlation_id, b"\0" + said)

    with peer(serve) as address:
        connection = open_connection(address, Security())
        try:
            return read_metadata(connection, None, timeout_s=5)
        finally:
            connection.close()


def test_tags_of_a_newer_broker_change_nothing() -> None:
    plain, tagged = asked(body(0)), asked(body(0, NEW_TAG))
    assert plain == tagged
    (part,) = tagged.topics["t"].partitions
    assert (part.leader, part.leader_epoch, part.replicas) == (1, 5, (1,))
    assert len(asked(body(2)).topics["t"].partitions) == 3


@pytest.mark.parametrize("partition", [PARTITIONS_MAX, (1 << 31) - 1])
def test_a_partition_beyond_all_sense_is_refused(partition: int) -> None:
    with pytest.raises(KafkaError, match=rf"topic t would have {partition + 1} partitions"):
        asked(body(partition))
