"""A prefix pair on two real clusters, read in the order of each key while its writers go from one to the other.

The test itself is the mirror: it copies each record to the twin, late.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from testkit.clients import add_partitions
from testkit.errors import mentions
from testkit.log_lines import LogLines
from tests.conftest import ClusterFactory
from tests.scenarios.pair_rig import (
    KEYS,
    LAG_S,
    PARTITIONS,
    Plainly,
    Reading,
    Reads,
    Writers,
    aborts,
    add,
    crossing,
    has_read,
    in_order,
    make_topics,
    pair_consumer,
    reads_all,
    record_of,
)
from tests.scenarios.switch_rig import transactional
from tests.scenarios.test_client_homes import sites
from tests.scenarios.test_following_writers import until
from twinshore.client import FailoverPairConsumer
from twinshore.client.discovery.config_service import Pushes, PushFile
from twinshore.config.errors import ConfigError
from twinshore.lab.clients import create_topic, read_group_offsets
from twinshore.lab.cluster import LabCluster


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"pair-{request.node.name[5:50].replace('_', '-')}"


@pytest.mark.long
@pytest.mark.claim(
    "client",
    "pair",
    "a prefix pair is read in the order of each key, though a producer moves and crossing lags: each once",
)
def test_a_pair_is_read_in_the_order_of_each_key_though_its_writers_move(
    east: LabCluster, west: LabCluster, topic: str
) -> None:
    """On both clusters at once. A consumer that takes what comes reads some of it out of order."""
    make_topics(topic, east, west)
    writers = Writers(topic, east, west)
    with ExitStack() as stack:
        stack.enter_context(crossing(topic, east, west))
        stack.enter_context(crossing(topic, west, east))
        readings = {
            at: Reading(pair_consumer(topic, east, west, cluster=at, config={"group.id": f"{topic}-{at}"}), topic)
            for at in ("east", "west")
        }
        plain = list[Plainly]()
        names = [topic, f"west.{topic}"]
        for at in ("east", "west", "east", "west", "east"):
            writers.write(at, rounds=20, pause_s=0.02)
        thread = threading.Thread(target=lambda: plain.append(Plainly(east, names, writers.total())))
        thread.start()
        for at, reading in readings.items():
            until(reads_all(reading, writers), 60, f"{at} reads all")
        thread.join(60)
        time.sleep(0.5)
        for reading in readings.values():
            reading.stop()
    for at, reading in readings.items():
        assert len(reading.reads) == writers.total() and in_order(reading.reads), f"on {at}: each once, in order"
        assert set(reading.homes) == {"east", "west"}
    assert len(plain[0].reads) == writers.total() and not in_order(plain[0].reads), "or nothing was at stake"
    print(
        f"told: {writers.total()} records of {KEYS} keys whose producers moved 4 times while crossing lagged {LAG_S} s"
    )


def test_a_group_moves_to_the_other_cluster_and_back(east: LabCluster, west: LabCluster, topic: str) -> None:
    """The second time its old places there are still known. What it read has not always crossed when it comes."""
    make_topics(topic, east, west)
    writers = Writers(topic, east, west)
    with crossing(topic, east, west, 1.0), crossing(topic, west, east, 1.0):
        reading = Reading(pair_consumer(topic, east, west), topic)
        for number, to in enumerate(("west", "east", "west", "east")):
            writers.write(("east", "west")[number % 2], rounds=10)
            until(lambda: bool(reading.errors) or len(reading.reads) > 0.5 * writers.total(), 60, "it reads")
            reading.orders.append(to)
            writers.write(to, rounds=10, pause_s=0.02)
        until(reads_all(reading, writers), 60, "it reads all")
        time.sleep(0.5)
        assert reading.consumer.where() == "east"
        reading.stop()
    assert len(reading.reads) == writers.total() and in_order(reading.reads)


@pytest.mark.long
def test_a_place_that_has_not_crossed_yet_is_waited_for(east: LabCluster, west: LabCluster, topic: str) -> None:
    """librdkafka would begin anew, as the place lies behind the twin's end."""
    make_topics(topic, east, west)
    writers = Writers(topic, east, west)
    writers.write("east", rounds=5)
    with pair_consumer(topic, east, west) as reader:
        reader.subscribe([topic])
        reads: Reads = []
        read = partial(has_read, reads, reader)
        until(lambda: read(writers.total()), 60, "it reads on east")
        reader.move("west")
        until(lambda: read(0) and bool(reader.awaits()), 60, "it waits on west")
        assert mentions(reader.awaits()[0], 15)
        with crossing(topic, east, west, 0.5):
            writers.write("east", rounds=5)
            until(lambda: read(writers.total()), 60, "it reads on")
            assert reader.awaits() == []
    assert len(reads) == writers.total() and in_order(reads)
    names = [f"east.{topic}", topic]
    group = f"{topic}-readers"
    assert [read_group_offsets(west.cluster, group, name, range(PARTITIONS)) for name in names] == [[30] * 4, [0] * 4]


@pytest.mark.long
def test_a_home_that_dies_is_waited_for_and_then_its_twin_s_own_end_counts(
    east: LabCluster, cluster_factory: ClusterFactory, topic: str, log_lines: LogLines
) -> None:
    north = cluster_factory("north")
    make_topics(topic, east, north)
    writers = Writers(topic, east, north)
    with pair_consumer(topic, east, north, cluster="east", wait_s=3) as reader:
        reader.subscribe([topic])
        reads: Reads = []
        read = partial(has_read, reads, reader)
        with crossing(topic, north, east, 0.0) as crossed:
            writers.write("north", rounds=2)
            until(lambda: read(writers.total()), 60, "it reads while all is well")
            crossed.lag_s = 1_000
            writers.write("north")
            writers.write("east")
            until(lambda: not read(2 * KEYS + 1) and len(reader.awaits()) == PARTITIONS, 60, "it waits for the rest")
        assert not log_lines
        north.brokers[0].kill()
        began_s = time.monotonic()
        until(lambda: read(2 * KEYS + 1), 60, "it goes on")
        assert time.monotonic() > began_s + 2.5, "it waits for a home that may come back"
        lost = KEYS
        until(lambda: read(writers.total() - lost), 60, "it goes on with all")
        writers.write("east", rounds=1)
        began_s = time.monotonic()
        until(lambda: read(writers.total() - lost), 60, "it goes on with what is new")
        assert time.monotonic() < began_s + 2.5, "it is known to be away"
    assert sorted(reads) == sorted((f"key-{key}", number) for key in range(KEYS) for number in (0, 1, 3, 4))
    assert in_order([(key, number - (number > 2)) for key, number in reads])
    assert [mentions(one, "north", topic) for one in log_lines] == [True]


@pytest.mark.long
def test_members_come_and_go_and_each_record_is_read_once(east: LabCluster, west: LabCluster, topic: str) -> None:
    make_topics(topic, east, west)
    writers = Writers(topic, east, west)
    reads: Reads = []
    with crossing(topic, east, west, 0.5), crossing(topic, west, east, 0.5):
        first = Reading(pair_consumer(topic, east, west), topic, reads)
        writers.write("east", rounds=10, pause_s=0.02)
        until(lambda: bool(reads or first.errors), 60, "the first one reads")
        second = Reading(pair_consumer(topic, east, west), topic, reads)
        for at in ("west", "east", "west"):
            writers.write(at, rounds=20, pause_s=0.03)

        def second_reads() -> bool:
            """What was written before may all be read by the first one."""
            writers.write("east", pause_s=0.03)
            return bool(second.homes or second.errors)

        until(second_reads, 60, "the second one reads")
        writers.write("east", rounds=20, pause_s=0.03)
        first.stop()
        writers.write("west", rounds=10, pause_s=0.02)
        until(reads_all(second, writers, reads), 60, "the second one reads all")
        time.sleep(0.5)
        second.stop()
    assert len(reads) == writers.total() and in_order(reads)
    assert first.homes.total() and second.homes.total()


@pytest.mark.long
def test_markers_and_aborted_records_at_the_end_of_a_log_hold_nothing_back(
    east: LabCluster, west: LabCluster, topic: str
) -> None:
    """In the topic's own log and in its twin, where a mirror leaves them at the same offsets."""
    make_topics(topic, east, west)
    writers = Writers(topic, east, west)
    for lab, name in ((east, topic), (west, topic), (east, f"west.{topic}")):
        producer = transactional(lab, f"{topic}-{name}")
        producer.begin_transaction()
        for number in range(PARTITIONS):
            producer.produce(name, b"0", b"%s-%d" % (b"west" if lab is west else name[:4].encode(), number), number)
        assert producer.flush(30) == 0
        producer.commit_transaction(30)
        aborts(lab, name)
    with pair_consumer(topic, east, west) as reader:
        reader.subscribe([topic])
        reads: Reads = []
        read = partial(has_read, reads, reader)
        ours = 2 * PARTITIONS  # those of the twin are copies of those of west
        until(lambda: read(ours), 60, "it reads what is committed")
        for _ in range(2):  # also while it reads
            writers.write("east", rounds=1)
            until(lambda: read(ours + writers.total()), 60, "it passes over what is not")
            aborts(west, topic)
            aborts(east, f"west.{topic}", topic)
        assert not read(ours + writers.total() + 1)
        west_s = [TopicPartition(f"west.{topic}", number) for number in range(PARTITIONS)]
        until(
            lambda: read(0) and {one.offset for one in reader.position(west_s)} == {8},
            60,
            "it stands behind all records and markers",
        )
    assert read_group_offsets(east.cluster, f"{topic}-readers", f"west.{topic}", range(PARTITIONS)) == [8] * PARTITIONS


@pytest.mark.long
def test_what_has_still_to_cross_is_waited_for_and_nothing_newer_is_committed(
    east: LabCluster, west: LabCluster, topic: str
) -> None:
    make_topics(topic, east, west)
    writers = Writers(topic, east, west)
    writers.write("west", rounds=3)
    writers.write("east", rounds=3)
    group = f"{topic}-readers"
    with pair_consumer(topic, east, west) as reader:
        reader.subscribe([topic])
        until(lambda: reader.poll(0.1) is None and len(reader.awaits()) == PARTITIONS, 60, "it waits")
        assert reader.awaits()[0] == f"west.{topic}-0 is read to 0, and must be to 9"
        began_s = time.monotonic()
        while time.monotonic() < began_s + 1:
            assert reader.poll(0.1) is None, "it would be too early"
        assert max(read_group_offsets(east.cluster, group, topic, range(PARTITIONS))) <= 0
        reads: Reads = []
        with crossing(topic, west, east, 0.0):
            until(lambda: add(reads, reader) == writers.total(), 60, "it goes on")
    assert in_order(reads)
    assert read_group_offsets(east.cluster, group, topic, range(PARTITIONS)) == [9] * PARTITIONS


@pytest.mark.long
def test_a_group_that_is_far_behind_catches_up_in_order(east: LabCluster, west: LabCluster, topic: str) -> None:
    """More than it may hold of each log, and what nobody reads at the end of both."""
    make_topics(topic, east, west)
    writers = Writers(topic, east, west)
    with crossing(topic, west, east, 0.0) as crossed:
        for _ in range(4):
            writers.write("east", rounds=300)
            writers.write("west", rounds=300)
        until(lambda: crossed.crossed == writers.total() // 2, 60, "all crosses")
    aborts(west, topic)
    aborts(east, f"west.{topic}", topic)
    reads: Reads = []
    with pair_consumer(topic, east, west) as reader:
        reader.subscribe([topic])
        began_s = time.monotonic()
        read = partial(has_read, reads, reader)
        until(lambda: read(writers.total()), 60, "it reads all")
        print(f"told: {writers.total()} records of a backlog in {time.monotonic() - began_s:.1f} s")
        writers.write("east", rounds=1)
        until(lambda: read(writers.total()), 60, "it reads what is new")
    assert len(reads) == writers.total() and in_order(reads)


@pytest.mark.long
def test_topics_that_are_not_alike_are_refused_until_they_are(east: LabCluster, west: LabCluster, topic: str) -> None:
    make_topics(topic, east)
    create_topic(east.cluster, f"west.{topic}", partitions=PARTITIONS - 1)
    create_topic(west.cluster, topic, partitions=PARTITIONS - 1)
    with pair_consumer(topic, east, west, config={"topic.metadata.refresh.interval.ms": 500}) as reader:
        reader.subscribe([topic])
        with pytest.raises(ConfigError, match=r"\bboth topics\b") as told:
            reader.poll(60)
        assert f"partitions 0, 1, 2, 3 of {topic}, and partitions 0, 1, 2 of west.{topic} on east" in str(told.value)
        assert reader.assignment() == []
        add_partitions(west.cluster, topic, PARTITIONS)
        add_partitions(east.cluster, f"west.{topic}", PARTITIONS)
        writers = Writers(topic, east)
        writers.write("east")
        reads: Reads = []

        def read() -> bool:
            with suppress(ConfigError):
                reads.extend(record_of(one) for one in reader.consume(100, 0.05))
            return len(reads) >= writers.total()

        until(read, 60, "it reads now")


@pytest.mark.long
def test_a_pushed_home_moves_it(east: LabCluster, west: LabCluster, topic: str, tmp_path: Path) -> None:
    make_topics(topic, east, west)
    writers = Writers(topic, east, west)
    file = tmp_path / "push"

    def push(home: str) -> None:
        part = file.with_suffix(".part")
        part.write_text(json.dumps({"clusters": sites(east, west), "home": home}))
        part.replace(file)

    push("west")
    config = {"group.id": f"{topic}-readers", "auto.offset.reset": "earliest"}
    with crossing(topic, east, west, 0.2), crossing(topic, west, east, 0.2):
        reading = Reading(FailoverPairConsumer(config, clusters=Pushes(PushFile(file))), topic)
        assert reading.consumer.where() == "west"
        writers.write("east", rounds=5)
        until(reads_all(reading, writers), 60, "it reads on west")
        push("east")
        writers.write("west", rounds=5)
        until(reads_all(reading, writers), 60, "it reads on")
        until(lambda: reading.consumer.where() == "east", 60, "it moves")
        writers.write("east", rounds=5)
        until(reads_all(reading, writers), 60, "it reads on east")
        reading.stop()
    assert len(reading.reads) == writers.total() and in_order(reading.reads)
