"""Writers that follow home lines: moved between two clusters by lines alone, and what becomes of those that do not."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from testkit.switch_under_load import told
from tests.scenarios.following_writer import FollowingWriter, Writing
from twinshore.config.frozen import FOLLOWERS_TOPIC, HOMES_TOPIC
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import client_settings, create_admin_client
from twinshore.lab.cluster import LabCluster
from twinshore.routing.core.home_records import HomeRecord, HomeState
from twinshore.routing.core.subscribers import SUBSCRIPTION_LEASE_S, SubscriberLog
from twinshore.routing.homes_topic import HomesTopic, SubscribersTopic

SWITCH = "5" * 32
PARTITIONS = 2


class Hand:
    """A switch by hand: the lines of one topic on both clusters, and who is waited for."""

    def __init__(self, topic: str, *clusters: KafkaCluster) -> None:
        self._topic = topic
        self._ids = {cluster.name: cluster.cluster_id() for cluster in clusters}
        self._homes = [HomesTopic(cluster) for cluster in clusters]
        self._seen = SubscriberLog()
        self._followers = [SubscribersTopic(cluster, self._seen) for cluster in clusters]
        for homes, followers in zip(self._homes, self._followers, strict=True):
            homes.make()
            followers.make()

    def say(self, home: str, term: int, step: int, state: HomeState, points: tuple[int, ...] = ()) -> HomeRecord:
        line = HomeRecord(
            topic=self._topic,
            home=home,
            cluster_id=self._ids[home],
            term=term,
            step=step,
            state=state,
            switch=SWITCH,
            points=points,
        )
        for notes in self._homes:
            assert notes.say([line], wall_ms()) == {self._topic: line}
        return line

    def living(self) -> list[str]:
        self._read()
        return sorted(one.name for one in self._seen.living(time.monotonic()) if one.writes(self._topic))

    def awaited(self, line: HomeRecord) -> list[str]:
        self._read()
        found = self._seen.awaited({self._topic: line.word}, time.monotonic())
        return sorted(one.name for one in found.get(self._topic, []))

    def wait(self, line: HomeRecord, within_s: float = 10.0) -> float:
        """How long until nobody is waited for."""
        began_s = time.monotonic()
        until(lambda: not self.awaited(line), within_s, "somebody does not park")
        return time.monotonic() - began_s

    def _read(self) -> None:
        for notes in self._followers:
            notes.read()


def until(holds: Callable[[], bool], within_s: float, what: str | Callable[[], str]) -> None:
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s, what if isinstance(what, str) else what()
        time.sleep(0.01)


@pytest.fixture
def both(east: LabCluster, west: LabCluster) -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    with ExitStack() as stack:
        found = [stack.enter_context(closing(KafkaCluster(lab.cluster, patience_s=10))) for lab in (east, west)]
        yield found[0], found[1]
    for lab in (east, west):
        admin = create_admin_client(lab.cluster)
        there = [name for name in (HOMES_TOPIC, FOLLOWERS_TOPIC) if name in admin.list_topics(timeout=10).topics]
        for future in admin.delete_topics(there).values() if there else ():
            future.result(timeout=30)


def writers(topic: str, count: int, how: Writing, east: LabCluster, west: LabCluster) -> list[FollowingWriter]:
    clusters = {"east": east.cluster, "west": west.cluster}
    return [FollowingWriter(f"{topic}-{number}", topic, clusters, "east", how) for number in range(count)]


def none_lost(topic: str, ours: Sequence[FollowingWriter], keys: int, *labs: LabCluster) -> dict[str, int]:
    """Every acknowledged record lies where it was acknowledged, of each key in order and once over both clusters; how
    many lie on each."""
    found: dict[bytes, list[int]] = defaultdict(list)
    places: dict[tuple[str, int, int], tuple[bytes, int]] = {}
    for lab in labs:
        for partition in range(PARTITIONS):
            for offset, key, value in records(lab, topic, partition):
                number = told(value, keys)
                found[key].append(number)
                places[lab.cluster.name, partition, offset] = key, number
    for one in (acked for writer in ours for acked in writer.acked):
        assert places[one.cluster, one.partition, one.offset] == (one.key, one.number)
    for key, numbers in found.items():
        assert numbers == sorted(set(numbers)), f"{key!r} is doubled or out of order"
    acked = sum(len(writer.acked) for writer in ours)
    assert len(places) == acked, "there is more than was acknowledged"
    return {lab.cluster.name: sum(place[0] == lab.cluster.name for place in places) for lab in labs}


def records(lab: LabCluster, topic: str, partition: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Those that are committed, to the end."""
    settings = {**client_settings(lab.cluster), "group.id": "read", "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    with closing(consumer):
        while True:
            for one in consumer.consume(1_000, timeout=1.0):
                error = one.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return
                assert error is None
                key, value = one.key(), one.value()
                assert isinstance(key, bytes)
                assert isinstance(value, bytes)
                yield one.offset() or 0, key, value


@pytest.mark.parametrize("transaction_s", [0.0, 0.1], ids=["idempotent", "transactional"])
def test_two_writers_move_by_home_lines_alone_and_nothing_is_lost(
    both: tuple[KafkaCluster, KafkaCluster], east: LabCluster, west: LabCluster, transaction_s: float
) -> None:
    topic = f"follow-{'tx' if transaction_s else 'plain'}"
    for lab in (east, west):
        lab.create_topic(topic, partitions=PARTITIONS)
    hand = Hand(topic, *both)
    how = Writing(records_per_s=500, transaction_s=transaction_s)
    ours = writers(topic, 2, how, east, west)
    with ours[0], ours[1]:
        until(lambda: all(len(writer.acked) > 500 for writer in ours), 40, "they do not write")
        assert hand.living() == [writer.name for writer in ours]
        line = hand.say("east", 1, 1, HomeState.ANNOUNCED)
        assert hand.awaited(line) == [writer.name for writer in ours]
        time.sleep(1.1)  # Whoever writes looks every second until a switch is announced.
        held_s = time.monotonic()
        waited_s = hand.wait(hand.say("east", 1, 2, HomeState.HELD))
        before = sum(len(writer.acked) for writer in ours)
        time.sleep(0.3)
        assert sum(len(writer.acked) for writer in ours) == before, "one of them writes on"
        hand.say("west", 2, 0, HomeState.SETTLED)
        until(lambda: all(len(w.acked) and w.acked[-1].cluster == "west" for w in ours), 10, "they do not go on")
        until(lambda: sum(len(writer.acked) for writer in ours) > before + 1000, 20, "they do not go on")
    pause_s = max(writer.longest_pause_s(held_s - 0.5) for writer in ours)
    print(
        f"parked {waited_s * 1000:.0f} ms after the hold; longest pause {pause_s * 1000:.0f} ms, 300 of them on purpose"
    )
    found = none_lost(topic, ours, how.keys, east, west)
    assert all(not writer.failed and not writer.sent_again for writer in ours)
    assert found["east"] == before
    assert pause_s < 3.0
    until(lambda: hand.living() == [], 1, "they said goodbye")


def test_a_switch_that_rolls_back_lets_writers_go_on_where_they_were(
    both: tuple[KafkaCluster, KafkaCluster], east: LabCluster, west: LabCluster
) -> None:
    east.create_topic("follow-back", partitions=PARTITIONS)
    hand = Hand("follow-back", *both)
    (writer,) = writers("follow-back", 1, Writing(records_per_s=500), east, west)
    with writer:
        until(lambda: len(writer.acked) > 100, 40, "it does not write")
        hand.wait(hand.say("east", 1, 1, HomeState.HELD))
        before = len(writer.acked)
        hand.say("east", 1, 2, HomeState.SETTLED)
        until(lambda: len(writer.acked) > before + 100, 10, "it does not go on")
        again = hand.say("east", 1, 3, HomeState.HELD)
        assert hand.awaited(again) == [writer.name], "what it said of the hold before does not count"
        hand.wait(again)
    none_lost("follow-back", [writer], 20, east)


def test_who_follows_nobody_writes_on_and_who_is_killed_is_waited_for_as_long_as_its_lease(
    both: tuple[KafkaCluster, KafkaCluster], east: LabCluster, west: LabCluster
) -> None:
    east.create_topic("follow-nobody", partitions=PARTITIONS)
    hand = Hand("follow-nobody", *both)
    stubborn, mortal = writers("follow-nobody", 2, Writing(records_per_s=100), east, west)
    stubborn = FollowingWriter(
        "stubborn", "follow-nobody", {"east": east.cluster}, "east", Writing(records_per_s=100, follows=False)
    )
    with stubborn, mortal:
        until(lambda: len(stubborn.acked) > 20 and len(mortal.acked) > 20, 40, "they do not write")
        assert hand.living() == [mortal.name]
        mortal.kill()
        line = hand.say("east", 1, 1, HomeState.HELD)
        assert hand.awaited(line) == [mortal.name]
        assert hand.wait(line) > SUBSCRIPTION_LEASE_S - 2.0
        before = len(stubborn.acked)
        until(lambda: len(stubborn.acked) > before + 20, 10, "nothing but its rights holds it")


def test_where_both_clusters_are_out_of_reach_a_writer_parks_within_its_lease(
    both: tuple[KafkaCluster, KafkaCluster], east: LabCluster, west: LabCluster
) -> None:
    east.create_topic("follow-away", partitions=PARTITIONS)
    hand = Hand("follow-away", *both)
    (writer,) = writers("follow-away", 1, Writing(records_per_s=100, lease_s=2.0), east, west)
    with writer:
        until(lambda: len(writer.acked) > 20, 40, "it does not write")
        writer.deafen()
        until(lambda: bool(writer.moves) and "was not read" in str(writer.moves[-1][1]), 5, "it does not park")
        time.sleep(1.0)  # what is on its way is answered
        before = len(writer.acked)
        time.sleep(0.3)
        assert len(writer.acked) == before
    assert hand.living() in ([], [writer.name])
