"""The client library on two real clusters: moved by home lines alone, and what it does where something is wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition

from testkit.errors import mentions
from testkit.log_lines import LogLines
from tests.scenarios.test_following_writers import Hand, both, records, until
from twinshore.client import FailoverConsumer, FailoverProducer
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster
from twinshore.lab.ports import free_port
from twinshore.routing.core.home_records import HomeState

__all__ = ["both"]
Both = tuple[KafkaCluster, KafkaCluster]
PARTITIONS = 2


class Heard:
    """What a producer was told."""

    def __init__(self) -> None:
        self.acked: list[bytes] = []
        self.errors: list[str] = []

    def __call__(self, error: KafkaError | None, message: Message | None) -> None:
        if error is not None:
            self.errors.append(error.str())
        elif message is not None:
            self.acked.append(bytes(message.value() or b""))


def sites(*labs: LabCluster) -> dict[str, dict[str, Any]]:
    return {lab.cluster.name: dict(client_settings(lab.cluster)) for lab in labs}


def values(lab: LabCluster, topic: str) -> list[bytes]:
    return [value for number in range(PARTITIONS) for _, _, value in records(lab, topic, number)]


@pytest.fixture
def topic(request: pytest.FixtureRequest, east: LabCluster, west: LabCluster) -> Iterator[str]:
    name = f"hot-{request.node.name[5:60].replace('_', '-')}"
    for lab in (east, west):
        lab.create_topic(name, partitions=PARTITIONS)
    yield name


def test_calls_during_a_switch_are_kept_and_sent_to_the_new_home(
    both: Both, east: LabCluster, west: LabCluster, topic: str
) -> None:
    """Two producers in one process, one of which has never written to the topic."""
    hand, heard = Hand(topic, *both), Heard()
    with ExitStack() as stack:
        ours, idle = (
            stack.enter_context(FailoverProducer({}, clusters=sites(east, west), topics=[topic], name=name))
            for name in ("ours", "idle")
        )
        for number in range(50):
            ours.produce(topic, b"before-%d" % number, b"key", on_delivery=heard)
        assert ours.flush(60) == 0
        line = hand.say("east", 1, 1, HomeState.HELD)
        assert set(hand.awaited(line)) <= {"ours", "idle"}
        hand.wait(line, 60)
        for number in range(50):
            ours.produce(topic, b"held-%d" % number, b"key", on_delivery=heard)
        assert mentions(ours.where(topic), topic, "switch")
        assert len(ours) == 50, "a call during a switch returns, and waits"
        hand.say("west", 2, 0, HomeState.SETTLED)
        assert ours.flush(60) == 0
        assert ours.where(topic) == "west"
        # Nothing that the other one sent has waited for that.
        until(lambda: idle.where(topic) == "west", 60, "the idle one heard nothing")
    assert not heard.errors
    assert values(east, topic) == [b"before-%d" % number for number in range(50)]
    assert values(west, topic) == [b"held-%d" % number for number in range(50)]


def test_a_switch_that_turns_back_lets_it_go_on_where_it_was(
    both: Both, east: LabCluster, west: LabCluster, topic: str
) -> None:
    hand, heard = Hand(topic, *both), Heard()
    with FailoverProducer({}, clusters=sites(east, west), topics=[topic]) as ours:
        ours.produce(topic, b"0", b"key", on_delivery=heard)
        assert ours.flush(60) == 0
        hand.wait(hand.say("east", 1, 1, HomeState.HELD), 60)
        ours.produce(topic, b"1", b"key", on_delivery=heard)
        hand.say("east", 1, 2, HomeState.SETTLED)
        assert ours.flush(60) == 0
    assert (heard.acked, heard.errors, values(east, topic)) == ([b"0", b"1"], [], [b"0", b"1"])


def test_nothing_is_sent_to_a_cluster_that_is_not_the_one_expected(
    both: Both, east: LabCluster, west: LabCluster, topic: str, log_lines: LogLines
) -> None:
    clusters = sites(east, west)
    clusters["east"]["twinshore.cluster.id"] = both[1].cluster_id()
    with FailoverProducer({}, clusters=clusters, topics=[topic], max_block_s=0.2, kept_max=1) as ours:
        ours.produce(topic, b"0")
        with pytest.raises(BufferError, match=r"silent.*: east"):
            ours.produce(topic, b"1")
        until(lambda: bool(log_lines), 60, "nobody was told")
        assert ours.close(0.5) == 1, "how many were never sent is said"
    assert log_lines == [f"east is cluster {both[0].cluster_id()}, not {both[1].cluster_id()}: it is not followed"]
    assert values(east, topic) == []


def test_a_cluster_that_is_away_at_the_start_keeps_nobody_from_the_other(
    both: Both, west: LabCluster, topic: str
) -> None:
    Hand(topic, *both).say("west", 2, 0, HomeState.SETTLED)
    heard = Heard()
    clusters = {"east": {"bootstrap.servers": f"127.0.0.1:{free_port()}"}, **sites(west)}
    with FailoverProducer({}, clusters=clusters, topics=[topic]) as ours:
        ours.produce(topic, b"0", b"key", on_delivery=heard)
        assert ours.flush(60) == 0
    assert (heard.acked, heard.errors) == ([b"0"], [])
    assert values(west, topic) == [b"0"]


def test_a_callback_that_raises_is_told_to_whoever_polls_and_stops_nothing(
    east: LabCluster, west: LabCluster, topic: str
) -> None:
    def raises(_error: KafkaError | None, _message: Message | None) -> None:
        raise LookupError("the application's own")

    heard = Heard()
    with FailoverProducer({}, clusters=sites(east, west), topics=[topic]) as ours:
        ours.produce(topic, b"0", b"key", on_delivery=raises)
        ours.produce(topic, b"1", b"key", on_delivery=heard)
        with pytest.raises(LookupError):
            ours.flush(60)
        assert ours.flush(60) == 0
    assert heard.acked == [b"1"]


def test_it_ends_in_the_middle_of_a_switch_and_says_what_it_never_sent(
    both: Both, east: LabCluster, west: LabCluster, topic: str
) -> None:
    hand = Hand(topic, *both)
    ours = FailoverProducer({}, clusters=sites(east, west), topics=[topic], name="ends")
    ours.produce(topic, b"0", b"key")
    assert ours.flush(60) == 0
    hand.wait(hand.say("east", 1, 1, HomeState.HELD), 60)
    for _ in range(3):
        ours.produce(topic, b"1", b"key")
    assert ours.close(0.1) == 3
    until(lambda: hand.living() == [], 60, "it said goodbye")
    with pytest.raises(RuntimeError, match="is closed"):
        ours.produce(topic, b"2")


def test_a_call_that_waits_for_room_ends_when_the_producer_is_closed(
    both: Both, east: LabCluster, west: LabCluster, topic: str
) -> None:
    Hand(topic, *both).say("east", 1, 1, HomeState.HELD)
    ended: list[BaseException] = []
    ours = FailoverProducer({}, clusters=sites(east, west), topics=[topic], kept_max=1)
    until(lambda: "is held by a switch" in ours.where(topic), 60, "it hears of the switch")
    ours.produce(topic, b"0")

    def waits() -> None:
        try:
            ours.produce(topic, b"1")
        except RuntimeError as error:
            ended.append(error)

    thread = threading.Thread(target=waits)
    thread.start()
    time.sleep(0.1)
    assert thread.is_alive()
    ours.close(0)
    thread.join(60)
    assert [str(one) for one in ended] == ["producer is closed"]


def test_a_reader_goes_on_at_the_same_offset_and_hears_of_it(
    both: Both, east: LabCluster, west: LabCluster, topic: str
) -> None:
    """The twin's records are written by hand, and the group's place is not carried: its own position counts."""
    hand, moves, read = Hand(topic, *both), list[tuple[str, str, str]](), list[bytes]()
    for lab in (east, west):
        with FailoverProducer({}, clusters=sites(lab), topics=[topic], name=lab.name) as ours:
            for number in range(10):
                ours.produce(topic, b"%d" % number, partition=0)
            assert ours.flush(60) == 0
    config = {"group.id": f"{topic}-readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}

    def told(moved: str, source: str, target: str) -> None:
        moves.append((moved, source, target))

    with FailoverConsumer(config, clusters=sites(east, west), before_move=told, after_move=told) as reader:
        reader.subscribe([topic])

        def reads(count: int) -> bool:
            message = reader.poll(0.1)
            if message is not None:
                assert message.error() is None
                read.append(bytes(message.value() or b""))
            return len(read) >= count

        until(lambda: reads(10), 60, "it reads")
        line = hand.say("east", 1, 1, HomeState.HELD)
        until(lambda: not reads(11) and not hand.awaited(line), 60, "it leaves")
        assert moves == [(topic, "east", "")]
        hand.say("west", 2, 0, HomeState.SETTLED, points=(10, 0))
        with FailoverProducer({}, clusters=sites(west), topics=[topic], name="on") as ours:
            ours.produce(topic, b"10", partition=0)
            assert ours.flush(60) == 0
        until(lambda: reads(11), 60, "it reads on")
        assert reader.where(topic) == "west"
    assert read == [b"%d" % number for number in range(11)], "nothing twice, and nothing left out"
    assert moves == [(topic, "east", ""), (topic, "east", "west")]


def test_what_a_reader_seeks_and_pauses_while_its_topic_is_held_is_so_at_the_new_home(
    both: Both, east: LabCluster, west: LabCluster, topic: str
) -> None:
    """Though the group stands further there, and no consumer of librdkafka's could be told."""
    hand, read = Hand(topic, *both), list[tuple[int, int]]()
    for lab in (east, west):
        with FailoverProducer({}, clusters=sites(lab), topics=[topic], name=lab.name) as ours:
            for number in range(20):
                ours.produce(topic, b"%d" % number, partition=number % 2)
            assert ours.flush(60) == 0
    config = {"group.id": f"{topic}-readers", "auto.offset.reset": "earliest"}
    first, second = (TopicPartition(topic, number) for number in range(2))
    with FailoverConsumer(config, clusters=sites(east, west)) as reader:
        reader.subscribe([topic])

        def reads(count: int) -> bool:
            read.extend((one.partition() or 0, one.offset() or 0) for one in reader.consume(10, 0.1))
            return len(read) >= count

        until(lambda: reads(20), 60, "it reads")
        reader.seek(TopicPartition(topic, 1, 8))
        until(lambda: reads(22), 60, "it reads again")
        line = hand.say("east", 1, 1, HomeState.HELD)
        until(lambda: not reads(23) and not hand.awaited(line), 60, "it leaves")
        reader.seek(TopicPartition(topic, 0, 4))
        reader.pause([first, second])
        assert [one.offset for one in reader.position([first, second])] == [4, 10]
        assert [one.offset for one in reader.committed([second, first])] == [10, 10]
        hand.say("west", 2, 0, HomeState.SETTLED, points=(10, 10))
        del read[:]
        until(lambda: not reads(1) and bool(reader.assignment()), 60, "it joins")
        assert not any(reads(1) for _ in range(5)), "both are paused"
        reader.resume([first, second])
        until(lambda: reads(6), 60, "it reads on")
        assert not reads(7)
        assert (reader.where(topic), read) == ("west", [(0, number) for number in range(4, 10)])
        reader.seek(TopicPartition(topic, 1, 9))
        hand.say("east", 3, 0, HomeState.SETTLED, points=(10, 10))
        until(lambda: reads(7) and reader.where(topic) == "east", 60, "it goes back, and reads behind what it sought")
        assert (1, 9) in read and not reads(8)
