"""A notebook's patience and its malformed pages, without a cluster."""

from __future__ import annotations

import socket
import struct
from contextlib import closing
from random import Random

import pytest

from tests.kafka.peers import answer, greet, peer, read_request
from twinshore.config.errors import KafkaError
from twinshore.config.model import Cluster
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol import apis
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.produce import ProducedPartition, ProduceResponse, write_produce_response
from twinshore.kafka.state_topic import StateTopic

TOPIC_ID = bytes(15) + b"\7"


def broker_answers(port: int, answers: list[bytes], connection: socket.socket) -> None:
    """One broker with one topic; these answers to all that is neither greeting nor metadata, in turn."""
    greet(connection, (apis.METADATA, 0, 12), (apis.PRODUCE, 0, 13), (apis.FETCH, 0, 17), (apis.LIST_OFFSETS, 0, 9))
    while True:
        key, _, correlation_id = read_request(connection)
        if key == apis.METADATA:
            broker = struct.pack(">iB", 1, 10) + b"127.0.0.1" + struct.pack(">iBB", port, 0, 0)
            nodes = b"\2" + struct.pack(">i", 1)
            part = struct.pack(">hiii", 0, 0, 1, 5) + nodes + nodes + b"\1\0"
            topic = struct.pack(">h", 0) + b"\2n" + TOPIC_ID + b"\0\2" + part + struct.pack(">iB", 0, 0)
            said = bytes(5) + b"\2" + broker + b"\2c" + struct.pack(">i", 1) + b"\2" + topic + b"\0"
        else:
            said = answers.pop(0)
        answer(connection, correlation_id, said)


def produced(code: int) -> bytes:
    """ProduceResponse 13 for partition 0."""
    return b"\0" + write_produce_response(13, ProduceResponse([ProducedPartition(TOPIC_ID, 0, code, 0, -1, 0)]))


def append(answers: list[bytes]) -> None:
    port = 0
    with peer(lambda connection: broker_answers(port, answers, connection)) as address:
        port = address[1]
        with closing(KafkaCluster(Cluster("east", (f"127.0.0.1:{port}",)), patience_s=5)) as kafka:
            StateTopic(kafka, "n", rng=Random(3)).append([(b"k", b"v")], 5)


def test_what_may_pass_is_asked_again() -> None:
    answers = [produced(Code.unknown_topic_id), produced(Code.not_leader_or_follower), produced(0)]
    append(answers)
    assert not answers


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (b"\0\xff\xff", r"^east 127.0.0.1:\d+: the answer to Produce cannot be read"),
        (produced(Code.topic_authorization_failed), "^east: append to n-0: "),
    ],
)
def test_what_cannot_pass_is_told_once(said: bytes, complaint: str) -> None:
    answers = [said, produced(0)]
    with pytest.raises(KafkaError, match=complaint):
        append(answers)
    assert len(answers) == 1
