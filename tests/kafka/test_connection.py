"""Control calls against peers that are old, wrong, silent or lying: each a sentence with a place, none a hang."""

from __future__ import annotations

import socket
import struct
import threading
import time
from datetime import timedelta

import pytest
from kio.schema.init_producer_id.v4 import InitProducerIdRequest, InitProducerIdResponse
from kio.static.primitive import i32Timedelta

from tests.kafka.peers import answer, greet, peer, read_request, silent
from twinshore.config.errors import KafkaError
from twinshore.config.model import Security
from twinshore.kafka.connection import Connection, open_connection
from twinshore.kafka.protocol import apis
from twinshore.lab.cluster import LabCluster

PRODUCER_ID = (apis.INIT_PRODUCER_ID, 0, 5)


def ask_id(connection: Connection, timeout_s: float = 5.0) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout=i32Timedelta.parse(timedelta(minutes=1)))
    return int(connection.call(request, InitProducerIdResponse, timeout_s=timeout_s).producer_id)


def id_body(producer_id: int, code: int = 0) -> bytes:
    return b"\0" + struct.pack(">ihqhB", 0, code, producer_id, 0, 0)


def test_calls_from_many_threads_get_their_own_answers() -> None:
    def serve(connection: socket.socket) -> None:
        greet(connection, PRODUCER_ID)
        while True:
            _, _, correlation_id = read_request(connection)
            answer(connection, correlation_id, id_body(correlation_id))

    with peer(serve) as address:
        connection = open_connection(address, Security())
        found: list[int] = []
        threads = [threading.Thread(target=lambda: found.append(ask_id(connection))) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        connection.close()
    assert sorted(found) == list(range(2, 22))


def test_a_broker_that_knows_only_the_first_api_versions_is_understood() -> None:
    def serve(connection: socket.socket) -> None:
        _, version, correlation_id = read_request(connection)
        assert version == 3
        old = struct.pack(">hi", 35, 1) + struct.pack(">hhh", 18, 0, 1)
        answer(connection, correlation_id, old)
        _, version, correlation_id = read_request(connection)
        assert version == 0
        answer(connection, correlation_id, struct.pack(">hi", 0, 2) + struct.pack(">hhhhhh", 18, 0, 1, 3, 0, 8))

    with peer(serve) as address:
        connection = open_connection(address, Security())
        assert connection.api_version(apis.METADATA, 12) == 8
        with pytest.raises(KafkaError, match=r"offers Metadata in versions 0 to 8, Twinshore needs 9 to 12") as caught:
            connection.api_version(apis.METADATA, 12, 9)
        assert caught.value.code == 35
        with pytest.raises(KafkaError, match="does not offer DescribeProducers"):
            connection.api_version(apis.DESCRIBE_PRODUCERS, 0)
        connection.close()


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (struct.pack(">i", 0x15030300), "claims 352518912 bytes"),
        (struct.pack(">i", -5), "claims -5 bytes"),
        (struct.pack(">ii", 8, 999) + bytes(4), "got the answer to 999"),
        (struct.pack(">ii", 6, 2) + b"\0\1", "cannot be read"),
        (struct.pack(">ii", 8, 2) + b"\xff\xff\xff\xff", "header cannot be read"),
        (struct.pack(">ii", 4 + 18, 2) + id_body(7, code=9999), "9999"),
        (struct.pack(">ii", 4 + 21, 2) + id_body(7)[:-1] + b"\1\x63\x7f\0", "tagged field runs past the end"),
        (struct.pack(">ii", 100, 2) + b"\0\1", "closed the connection during InitProducerId"),
        (b"", "closed the connection during InitProducerId"),
    ],
)
def test_lies_are_told_from_answers(reply: bytes, complaint: str) -> None:
    def serve(connection: socket.socket) -> None:
        greet(connection, PRODUCER_ID)
        read_request(connection)
        connection.sendall(reply)

    with peer(serve) as address:
        connection = open_connection(address, Security())
        with pytest.raises(KafkaError, match=complaint) as caught:
            ask_id(connection)
        assert str(caught.value).startswith(f"127.0.0.1:{address[1]}: ")
        assert connection.closed


def test_whoever_speaks_unasked_is_left() -> None:
    def serve(connection: socket.socket) -> None:
        greet(connection, PRODUCER_ID)
        _, _, correlation_id = read_request(connection)
        said = id_body(7)
        connection.sendall(struct.pack(">ii", len(said) + 4, correlation_id) + said + b"more")
        silent(connection)

    with peer(serve) as address:
        connection = open_connection(address, Security())
        assert ask_id(connection) == 7
        with pytest.raises(KafkaError, match=r"the peer sent 4 bytes unasked|got the answer to|claims"):
            ask_id(connection)
        assert connection.closed


def test_tags_of_newer_brokers_are_passed_over() -> None:
    def serve(connection: socket.socket) -> None:
        _, _, correlation_id = read_request(connection)
        apis_offered = b"\2" + struct.pack(">hhhB", *PRODUCER_ID, 0)
        answer(connection, correlation_id, b"\0\0" + apis_offered + bytes(4) + b"\1\x63\1\0")
        _, _, correlation_id = read_request(connection)
        answer(connection, correlation_id, id_body(7)[:-1] + b"\1\x63\1\0")

    with peer(serve) as address:
        connection = open_connection(address, Security())
        assert ask_id(connection) == 7
        connection.close()


def test_a_silent_broker_is_left_in_time_and_for_good() -> None:
    def serve(connection: socket.socket) -> None:
        greet(connection, PRODUCER_ID)
        silent(connection)

    with peer(serve) as address:
        connection = open_connection(address, Security())
        started = time.monotonic()
        with pytest.raises(KafkaError, match="InitProducerId in time") as caught:
            ask_id(connection, timeout_s=0.2)
        assert time.monotonic() - started < 5
        assert caught.value.retriable
        assert not connection.usable
        with pytest.raises(KafkaError, match="is closed"):
            ask_id(connection)


def test_a_peer_silent_from_the_start_is_left_in_time() -> None:
    with peer(silent) as address, pytest.raises(KafkaError, match="ApiVersions in time"):
        open_connection(address, Security(), timeout_s=0.2)


def test_an_answer_that_trickles_does_not_put_the_deadline_off() -> None:
    def trickle(connection: socket.socket) -> None:
        greet(connection, PRODUCER_ID)
        read_request(connection)
        connection.sendall(struct.pack(">i", 1000))
        for _ in range(200):
            connection.sendall(b"\0")
            time.sleep(0.02)

    with peer(trickle) as address:
        connection = open_connection(address, Security())
        started = time.monotonic()
        with pytest.raises(KafkaError, match="in time"):
            ask_id(connection, timeout_s=0.3)
        assert time.monotonic() - started < 2


def test_a_real_broker_answers(east: LabCluster) -> None:
    host, _, port = east.bootstrap[0].rpartition(":")
    connection = open_connection((host, int(port)), Security())
    deadline = time.monotonic() + 20
    while (first := ask_id(connection)) < 0:  # a young cluster has none to give for a moment
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert ask_id(connection) == first + 1
    raw = connection.call_raw(apis.INIT_PRODUCER_ID, 4, b"\0" + struct.pack(">iqhB", 60_000, -1, -1, 0))
    assert struct.unpack_from(">ihqh", raw) == (0, 0, first + 2, 0)
    connection.close()
