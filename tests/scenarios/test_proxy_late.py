"""Requests that come late or twice around a switch, and clients of topics whose twins are just being made."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.proxy.served import ProxyProcess
from tests.proxy.test_moved import records as batch
from tests.scenarios.mirror_rig import Rig, settings_text, spans, url_in
from tests.scenarios.plain_clients import PlainWriter, records_there
from tests.scenarios.switch_rig import QUICK, carried
from tests.scenarios.test_following_writers import until
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_proxy_switch import moved, proxies
from tests.scenarios.test_switched_home import read
from twinshore.kafka.protocol import produce
from twinshore.kafka.protocol.apis import INIT_PRODUCER_ID, PRODUCE, api_format
from twinshore.kafka.protocol.framing import frame_request, read_response_header
from twinshore.lab.cluster import LabCluster
from twinshore.proxy.core.message_codec import build_message, decode_response, encode_message, get_request_type
from twinshore.proxy.core.model import Parts

TWICE = 46


class Raw:
    """A connection to the port of a cluster's broker at a proxy, and a producer's number."""

    def __init__(self, proxy: ProxyProcess, lab: LabCluster, topic: str, like: Raw | None = None) -> None:
        self._sock = socket.create_connection(("127.0.0.1", proxy.port_of(lab.name, lab.brokers[0].node_id)), 30)
        self._sock.settimeout(60)
        self._topic = topic
        self.producer_id: int = like.producer_id if like else -1
        self.epoch: int = like.epoch if like else -1
        if like is not None:
            return
        asked = build_message(get_request_type(INIT_PRODUCER_ID, 3), transactional_id=None)
        said = decode_response(INIT_PRODUCER_ID, 3, self._ask(INIT_PRODUCER_ID, 3, encode_message(asked)))
        self.producer_id, self.epoch = said.producer_id, said.producer_epoch

    def _ask(self, key: int, version: int, body: Parts) -> memoryview:
        self._sock.sendall(
            b"".join(frame_request(key, version, 7, "raw", body, api_format(key, version).tags_in_request))
        )
        size = struct.unpack(">i", self._sock.recv(4, socket.MSG_WAITALL))[0]
        found = memoryview(self._sock.recv(size, socket.MSG_WAITALL))
        return found[read_response_header(found, api_format(key, version).tags_in_response)[1] :]

    def write(self, sequence: int) -> int:
        """The error of one record."""
        data = batch(sequence, 1, epoch=self.epoch, producer_id=self.producer_id)
        asked = produce.ProduceRequest(None, -1, 5000, [produce.ProduceRequestPartition(self._topic, 0, data)])
        (one,) = produce.read_produce_response(
            self._ask(PRODUCE, 9, produce.write_produce_request(9, asked)), 0, 9
        ).appended
        return one.error


@pytest.mark.long
@pytest.mark.claim("proxy", "again", "a batch whose answer was lost is known again behind switches, there and back")
def test_a_batch_whose_answer_was_lost_is_known_again(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    """Also by a proxy that began behind the switch, and of a producer that was silent for a whole term."""
    with carried(east, west, "proxy-again", tmp_path) as rig, proxies(rig, 1) as some:
        one, silent = (Raw(some[0], east, rig.topic) for _ in range(2))
        assert [made.write(number) for made in (one, silent) for number in range(2)] == [0] * 4
        moved(rig, "west", some)
        time.sleep(2)
        assert Raw(some[0], west, rig.topic, one).write(1) == TWICE
        moved(rig, "east", some)
        time.sleep(2)
        assert Raw(some[0], east, rig.topic, silent).write(1) == TWICE
        last = Raw(some[0], east, rig.topic)
        assert [last.write(number) for number in range(2)] == [0, 0]
        some[0].end(signal.SIGKILL)
        moved(rig, "west", [])
        some[0].start()
        time.sleep(3)
        again = Raw(some[0], west, rig.topic, last)
        assert [again.write(number) for number in (1, 2)] == [TWICE, 0]
        rig.same()
    print("told: a batch that was sent again behind one switch, behind two, and by a new proxy: each is there once")


@pytest.mark.long
@pytest.mark.claim(
    "proxy", "paused", "a proxy that stood still through a switch tells of nothing that its old home took late"
)
def test_a_paused_proxy_tells_of_nothing_that_arrived_late(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    """What it had in its buffers goes to the old home once it goes on; its clients send it again to the new one."""
    with carried(east, west, "proxy-paused", tmp_path) as rig, proxies(rig, 1) as some:
        usual = {"bootstrap.servers": some[0].bootstrap, "enable.idempotence": True, "log_level": 2}
        made = [Producer(usual) for _ in range(3)]
        failed: list[str] = []
        acked: list[bytes] = []

        def heard(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error.str())
            else:
                acked.append(bytes(message.key() or b""))

        for number, one in enumerate(made):
            one.produce(rig.topic, b"x", b"first %d" % number, number, on_delivery=heard)
            assert one.flush(30) == 0
        (broker,) = east.brokers
        broker.pause()
        for writer, one in enumerate(made):
            for number in range(30):
                key = b"%d of %d" % (number, writer)
                one.produce(rig.topic, os.urandom(900_000), key, number % 3, on_delivery=heard)
            one.poll(0)
        time.sleep(2)
        os.kill(some[0].process.pid, signal.SIGSTOP)
        broker.resume()
        time.sleep(3)
        moved(rig, "west", [])
        os.kill(some[0].process.pid, signal.SIGCONT)
        for one in made:
            assert one.flush(90) == 0
        assert (failed, len(acked)) == ([], 93), some[0].said()
        read_there = [one for number in range(3) for one in read(west, rig.topic, number, "read_committed")]
        there = [key for _, key, _ in read_there if key in set(acked)]
        assert Counter(there) == Counter(acked), "each is there once"
    print("told: 93 of 93 acknowledged records are at the new home, each once")


@pytest.mark.long
@pytest.mark.claim("proxy", "no-twin", "no client is led to a twin that is just being made")
def test_no_client_writes_to_a_twin_that_is_just_being_made(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    """The proxy's first cluster has none of the topics; then a link begins that carries them there, and none back. The
    store is made after the proxy has begun."""
    topics = [f"proxy-new-{number}" for number in range(6)]
    for topic in topics:
        west.create_topic(topic)
        fill(west, topic, 10)
    text = settings_text(tmp_path, [east.cluster, west.cluster], {"west->east": "proxy-new-.*"}, mirror=QUICK)
    made = Rig(tmp_path, text)
    folder = tmp_path / "proxy"
    folder.mkdir()
    proxy = ProxyProcess(folder, [east.cluster, west.cluster], store=url_in(tmp_path))
    writers: list[PlainWriter] = []
    try:
        proxy.start()
        writers = [PlainWriter(proxy.bootstrap, topic, 50, name=topic) for topic in topics]
        until(lambda: all(len(one.acked) > 50 for one in writers), 60, "they write")
        made.process.start()
        until(lambda: all(spans(east.cluster, topic, 1)[0][1] > 50 for topic in topics), 120, "twins are made")
        proxy.end()
        proxy.start()
        count = sum(len(one.acked) for one in writers) + 1_000
        until(lambda: sum(len(one.acked) for one in writers) > count, 60, "they write on, also by a new proxy")
        acked = [one.stop() for one in writers]
        for topic, some in zip(topics, acked, strict=True):
            there = {(key, number) for _, key, number in records_there(west, topic, 1)}
            assert {(one.key, one.number) for one in some} <= there, topic
        assert [one.failed for one in writers] == [[]] * 6
        told = sum(map(len, acked))
    finally:
        for one in writers:
            one.stop()
        proxy.close()
        made.process.end()
    print(f"told: {told} records to 6 topics while their twins were made: all at their home")
