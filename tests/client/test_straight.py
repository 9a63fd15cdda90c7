"""Calls that go straight to librdkafka: what comes back of them, in which order, and what no hold may overtake."""

from __future__ import annotations

import gc
import os
import signal
import socket
import struct
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.client.turning import Stage, stage
from tests.kafka.peers import peer
from tests.kafka.protocol.serving.relay import frames
from twinshore.client import FailoverProducer
from twinshore.client.pending import DeliveryReports, PendingSend
from twinshore.client.producer_routing import ClusterProducer, DirectSend
from twinshore.kafka.clock import steady_s
from twinshore.kafka.protocol.apis import PRODUCE
from twinshore.kafka.protocol.requests import read_request
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster

__all__ = ["stage"]
AWAY: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def test_what_librdkafka_gives_back_is_each_call_as_it_was_and_in_order() -> None:
    came: list[PendingSend] = []
    client = ClusterProducer(AWAY, DeliveryReports(), lambda kept, _error, _message: came.append(kept), 5.0)
    calls = [(b"%d" % number, b"key %d" % (number % 3)) for number in range(5_000)]
    calls += [(None, b"no value"), (b"", b"none in it"), ("текст", None), (b"x", b"")]  # type: ignore[list-item]
    ways = [client.way("orders"), client.way("bills")]
    for number, (value, key) in enumerate(calls):
        straight = DirectSend(ways[number % 2])
        straight.number, straight.told = number, print
        ways[number % 2].produce(straight.route.topic, value, key, -1, straight)
        ways[number % 2].sent += 1
    ways[0].send(PendingSend(5_004, "orders", b"sent", None, 3, None, 5, (("a", None),)))
    assert (client.on_its_way("orders"), client.on_its_way("bills"), client.on_their_way()) == (2_503, 2_502, 5_005)
    client.give_up()
    assert client.on_their_way() == 0
    found = sorted(came)
    assert [(one.number, one.topic) for one in found] == [(n, ("orders", "bills")[n % 2]) for n in range(5_005)]
    expected = [(one.encode() if isinstance(one, str) else one, key) for one, key in calls]
    assert [(one.value, one.key) for one in found[:-1]] == expected, "None is not empty"
    assert {(one.partition, one.told, one.timestamp, one.headers) for one in found[:-1]} == {(-1, print, 0, ())}
    assert found[-1] == PendingSend(5_004, "orders", b"sent", None, 3, None, 5, (("a", None),))
    assert (len(ways[0].free), ways[0].free[0].told) == (2_502, None), "to serve other calls"


@pytest.mark.claim("client", "never-given-up", "no setting lets a record land after its call was given up")
@pytest.mark.parametrize("setting", ["message.timeout.ms", "delivery.timeout.ms"])
def test_nothing_is_given_up_that_might_still_arrive(setting: str) -> None:
    came: list[KafkaError | None] = []
    client = ClusterProducer(
        AWAY | {setting: 300}, DeliveryReports(), lambda _kept, error, _message: came.append(error), 5.0
    )
    client.way("orders").send(PendingSend(0, "orders", b"sent", None, -1, None, 5, ()))
    until_s = steady_s() + 2.5
    while steady_s() < until_s:
        time.sleep(0.05)
        client.poll()
    assert not came
    client.give_up()
    assert len(came) == 1


@pytest.mark.claim("client", "never-given-up", "no setting lets a record land after its call was given up")
@pytest.mark.parametrize("setting", ["retries", "message.send.max.retries"])
def test_what_the_broker_took_is_asked_for_again_until_an_answer_comes(
    east: LabCluster, unique_topic: str, setting: str
) -> None:
    east.create_topic(unique_topic)
    host, _, port = east.bootstrap[0].rpartition(":")
    took: list[int] = []

    def loses_answers(connection: socket.socket) -> None:
        with socket.create_connection((host, int(port))) as broker:
            answers = frames(broker)
            for frame in frames(connection):
                broker.sendall(struct.pack(">i", len(frame)) + frame)
                said = bytes(next(answers))
                if read_request(frame).key == PRODUCE:
                    took.append(len(took))
                    if len(took) <= 3:
                        return
                said = said.replace(struct.pack(">i", int(port)), struct.pack(">i", own[1]))
                connection.sendall(struct.pack(">i", len(said)) + said)

    came: list[KafkaError | None] = []
    with peer(loses_answers) as own:
        settings = {"bootstrap.servers": f"{own[0]}:{own[1]}", "log_level": 0, setting: 2}
        client = ClusterProducer(settings, DeliveryReports(), lambda _kept, error, _message: came.append(error), 5.0)
        client.way(unique_topic).send(PendingSend(0, unique_topic, b"sent", None, 0, None, 5, ()))
        until_s = steady_s() + 30
        while client.on_their_way() and steady_s() < until_s:
            time.sleep(0.05)
            client.poll()
    assert (client.on_their_way(), came, len(took)) == (0, [], 4)


def test_a_client_that_is_given_up_ends_at_once(stage: Stage) -> None:
    """Not whenever the interpreter looks for what nobody names: it would go on asking a home that died."""
    producer = stage.opens("orders")
    for _ in range(3):
        producer.produce("orders", b"x")
        stage.at("east").answers()
    stage.at("east").lives = False
    producer.produce("orders", b"never acknowledged")
    client = weakref.ref(producer._router._clients["east"])
    gc.disable()
    try:
        stage.hears("west", 2, "orders")
        stage.turn(2)
        assert client() is None
    finally:
        gc.enable()
    assert stage.log("west") == [("orders", b"never acknowledged")]


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (ValueError, {"value": "\ud800"}),
        (TypeError, {"key": bytearray(b"key")}),
        (TypeError, {"timestamp": 1.5}),
        (ValueError, {"timestamp": 1 << 63}),
        (TypeError, {"partition": "1"}),
        (ValueError, {"topic": "orders\0"}),
        (TypeError, {"topic": ["orders"]}),
        (TypeError, {"headers": [("trace", 5)]}),
    ],
)
def test_what_no_record_can_be_is_told_by_librdkafka_as_by_us(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, call: dict[str, Any], error: type[Exception]
) -> None:
    """Which takes all else that a call straight to it may have."""
    producer = stage.opens("orders")
    real = Producer(AWAY)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(producer._router.routes["orders"], "produce", real.produce)
        with pytest.raises(error):
            producer.produce(**({"topic": "orders", "value": b"x"} | call))
        producer.produce("orders", "text", "key")
        producer.produce("orders", None)
    assert len(producer) == 2
    real.purge()
    real.flush(10)
    assert len(producer) == 2, "the thread that moves has not looked at them yet"
    stage.turn()
    assert stage.at("east").log[-2:] == [("orders", b"text"), ("orders", None)]


def test_a_hold_waits_for_a_call_that_is_being_made(stage: Stage) -> None:
    """It would be said that nothing is on its way, and then something is."""
    producer = stage.opens("orders")
    way = producer._router.routes["orders"]
    taken, came, said = way.produce, threading.Event(), threading.Event()
    overtook: list[bool] = []

    def holds() -> None:
        came.wait(60)
        stage.hears("east", 1, "orders", step=1, held=True)
        stage.turn()
        said.set()

    def slowly(*arguments: Any) -> None:
        came.set()
        overtook.append(said.wait(0.5))
        taken(*arguments)

    way.produce = slowly
    thread = threading.Thread(target=holds)
    thread.start()
    producer._router.direct_until_s = steady_s() + 60
    producer.produce("orders", b"x")
    thread.join(60)
    assert overtook == [False], "a turn has closed the way while a call was going it"
    assert stage.at("east").log[-1] == ("orders", b"x")


def test_a_hold_is_said_no_sooner_than_the_last_call_of_any_thread_is_answered(stage: Stage) -> None:
    producer = stage.opens("orders", kept_max=1_000_000)
    until = threading.Event()

    def calls() -> None:
        while not until.is_set():
            for _ in range(50):
                producer.produce("orders", b"x")
            # On a machine that is busy more would be kept in a hold than is ever sent behind it.
            time.sleep(0.001)

    threads = [threading.Thread(target=calls) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for step in range(1, 40, 2):
            east = stage.at("east")
            time.sleep(0.005)
            stage.hears("east", 1, "orders", step=step, held=True)
            while stage.centre.held():
                stage.turn()
            assert east.flying == []
            count = len(east.log)
            time.sleep(0.005)
            assert len(east.log) == count, "nothing is sent behind it"
            stage.hears("east", 1, "orders", step=step + 1)
            while "orders" not in producer._router.routes:
                stage.turn()
                east.answers()
    finally:
        until.set()
        for thread in threads:
            thread.join(60)


def test_a_process_that_was_forked_is_told_though_another_thread_was_in_a_call(stage: Stage) -> None:
    producer = stage.opens("orders")
    producer.produce("orders", b"of the parent")
    with producer._router.gate:
        child = os.fork()
        if not child:
            signal.alarm(30)
            try:
                producer.produce("orders", b"of the child")
            except RuntimeError:
                os._exit(7)
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    producer.produce("orders", b"of the parent")
    assert [value for _, value in stage.log("east")] == [b"first", b"of the parent", b"of the parent"]


def test_each_call_of_several_threads_is_told_of_once_and_keys_are_in_order(
    east: LabCluster, unique_topic: str, tmp_path: Path
) -> None:
    """With answers heard in whichever thread comes by, and a queue of librdkafka's that is full again and again."""
    east.create_topic(unique_topic, partitions=2)
    told: list[tuple[bytes, int, int, int]] = []

    def answered(error: KafkaError | None, message: Message | None) -> None:
        assert error is None
        assert message is not None
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        told.append((key, int(value), message.partition() or 0, message.offset() or 0))

    settings = {**client_settings(east.cluster), "queue.buffering.max.messages": 500}
    with FailoverProducer({}, clusters={"east": settings}, topics=[unique_topic], spool=tmp_path) as producer:
        producer.produce(unique_topic, b"from then on calls go straight")
        assert producer.flush(60) == 0

        def calls(own: int) -> None:
            for number in range(5_000):
                producer.produce(unique_topic, b"%d" % number, b"key %d" % own, on_delivery=answered if own else None)

        threads = [threading.Thread(target=calls, args=(own,)) for own in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert producer.flush(60) == 0
        assert list(tmp_path.glob("*.spool")) == [], "all went straight"
    for own in range(1, 4):
        of_key = sorted((one[3], one[1]) for one in told if one[0] == b"key %d" % own)
        assert [number for _, number in of_key] == list(range(5_000))
    assert len(told) == 15_000
