"""The clients in Java go along with their topics as those in Python do: by home lines, and with a real switch."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from testkit.clients import commit_group_offsets
from testkit.switch_under_load import records_of
from tests.conftest import ClusterFactory
from tests.scenarios import mirror_rig
from tests.scenarios.java_examples import Examples, Load, Read, examples, java_classes
from tests.scenarios.switch_rig import carried
from tests.scenarios.test_client_homes import Both
from tests.scenarios.test_following_writers import Hand, both, records, until
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import client_settings, read_group_offsets
from twinshore.lab.cluster import LabCluster
from twinshore.routing.core.home_records import HomeState

__all__ = ["both", "examples", "java_classes"]
PARTITIONS = 2


@pytest.fixture
def topic(request: pytest.FixtureRequest, east: LabCluster, west: LabCluster) -> Iterator[str]:
    name = f"java-{request.node.name[5:60].replace('_', '-')}"
    for lab in (east, west):
        lab.create_topic(name, partitions=PARTITIONS)
    yield name


def numbers(lab: LabCluster, topic: str) -> dict[bytes, list[int]]:
    """Of each key, as they lie there."""
    found: dict[bytes, list[int]] = defaultdict(list)
    for partition in range(PARTITIONS):
        for _, key, value in records(lab, topic, partition):
            found[key].append(int(value))
    return found


def log(lab: LabCluster, topic: str) -> dict[tuple[int, int], str]:
    """What lies at each place, as the reader says it."""
    return {
        (partition, offset): f"{key.decode()} {value.decode()}"
        for partition, offset, key, value in records_of(lab.cluster, topic)
    }


def write(lab: LabCluster, topic: str, partition: int, values: list[tuple[bytes, bytes]]) -> None:
    producer = Producer({**client_settings(lab.cluster), "enable.idempotence": True})
    for key, value in values:
        producer.produce(topic, value, key, partition)
    assert producer.flush(30) == 0


def writes_on(load: Load, what: str) -> None:
    """A log to which somebody writes all the time has no end that a consumer comes to: it is not looked at here."""
    before = load.count("acked")
    until(lambda: load.count("acked") > before + 1_000, 60, what)


def places(read: Read) -> list[int]:
    """Behind the last record of each partition that was read."""
    found = read.read()
    return [1 + max(one.offset for one in found if one.partition == number) for number in range(PARTITIONS)]


@pytest.mark.long
def test_nothing_is_lost_or_out_of_order_and_a_planned_switch_doubles_nothing(
    both: Both, east: LabCluster, west: LabCluster, topic: str, examples: Examples
) -> None:
    hand, load = Hand(topic, *both), examples.load(topic, both[0].cluster_id())
    until(lambda: load.count("acked") > 1_000, 60, "it writes")
    hand.say("east", 1, 1, HomeState.ANNOUNCED)
    line = hand.say("east", 1, 2, HomeState.HELD)
    assert hand.living() == ["java-load"]
    hand.wait(line, 30)
    held = {key: list(some) for key, some in numbers(east, topic).items()}
    hand.say("west", 2, 0, HomeState.SETTLED, points=(0, 0))
    writes_on(load, "it writes at the new home")
    assert numbers(east, topic) == held, "nothing was on its way any more"

    # By force, without a word before.
    hand.say("east", 3, 0, HomeState.SETTLED, points=(0, 0))
    writes_on(load, "it writes at the old home again")
    assert load.end("left ") == "left 0"
    until(lambda: hand.living() == [], 60, "it says goodbye")

    assert not load.count("refused")
    acked = {int(one.value) for one in load.acked()}
    assert acked == set(range(len(acked)))
    first, second = numbers(east, topic), numbers(west, topic)
    for key in first:
        for some in (first[key], second[key]):
            assert some == sorted(set(some)), "in order, and once on each"
        planned = held[key] + second[key]
        assert planned == sorted(set(planned)), "the planned switch doubles nothing"
    found = {number for some in (first, second) for one in some.values() for number in one}
    assert found == acked
    assert all(len(second[key]) > 100 and len(first[key]) > len(held[key]) + 50 for key in first), "at each home"


@pytest.mark.long
def test_nothing_goes_to_a_cluster_that_is_not_the_one_expected(
    both: Both, east: LabCluster, topic: str, examples: Examples
) -> None:
    hand, there = Hand(topic, *both), Hand(topic, both[0])
    load = examples.load(topic, both[1].cluster_id())
    until(lambda: hand.living() == ["java-load"], 60, "it says that it follows")
    time.sleep(3)
    assert there.living() == [], "which it says on the other cluster alone"
    assert load.lines() == []
    assert not any(numbers(east, topic).values())


@pytest.mark.long
def test_a_reader_goes_on_at_the_very_next_offset(
    both: Both, east: LabCluster, west: LabCluster, topic: str, examples: Examples
) -> None:
    """The test is the mirror: it copies what lies on the old home while the topic is held. The group's place it does
    not carry: how far the reader itself has read counts."""
    hand, load, read = Hand(topic, *both), examples.load(topic), examples.read(topic)
    until(lambda: read.count("read") > 1_000, 60, "it reads")
    line = hand.say("east", 1, 1, HomeState.HELD)
    assert hand.living() == ["java-load", "java-read"]
    hand.wait(line, 30)
    assert read_group_offsets(east.cluster, topic, topic, range(PARTITIONS)) == places(read), (
        "it commits before it has parked"
    )

    before = read.count("read")
    hand.say("east", 1, 2, HomeState.SETTLED)
    until(lambda: read.count("read") > before + 1_000, 60, "it reads on where it was, as the switch turned back")
    line = hand.say("east", 1, 3, HomeState.HELD)
    hand.wait(line, 30)
    points = []
    for partition in range(PARTITIONS):
        there = [(key, value) for _, key, value in records(east, topic, partition)]
        points.append(len(there))
        write(west, topic, partition, there)
    hand.say("west", 2, 0, HomeState.SETTLED, points=tuple(points))
    before = read.count("read")
    until(lambda: read.count("read") > before + 1_000, 60, "it reads on at the new home")
    assert load.end("left ") == "left 0"
    until(lambda: read.count("read") >= load.count("acked"), 60, "it reads all")
    assert read.end("done") == "done"

    assert read.moves() == ["east west"]
    found, logs = read.read(), {"east": log(east, topic), "west": log(west, topic)}
    assert [one for one in found if logs[one.cluster].get((one.partition, one.offset)) != one.text] == []
    once = Counter((one.partition, one.offset) for one in found)
    assert once == Counter(logs["west"].keys()), "each once: nothing is read again, and nothing is left out"
    said = sorted(int(one.text.split()[1]) for one in found)
    assert said == list(range(len(load.acked())))
    print(f"told: {len(found)} records read, {sum(one.cluster == 'west' for one in found)} of them at the new home")


@pytest.mark.long
def test_by_force_a_reader_goes_on_at_the_point(
    both: Both, east: LabCluster, west: LabCluster, topic: str, examples: Examples
) -> None:
    """Ten records of each partition had crossed; behind them the new home has others."""
    hand = Hand(topic, *both)
    both_have = [(b"key", b"%d" % number) for number in range(10)]
    lost, other = ([(key, b"%d" % number) for number in range(10, 20)] for key in (b"lost", b"other"))
    write(east, topic, 0, both_have + lost)
    write(east, topic, 1, both_have)
    for partition in range(PARTITIONS):
        write(west, topic, partition, both_have + other)
    commit_group_offsets(
        west.cluster, topic, TopicPartition(topic, 0, 4)
    )  # the mirror was behind: that it has read itself counts
    read = examples.read(topic)
    until(lambda: read.count("read") == 30, 60, "it reads")
    hand.say("west", 2, 0, HomeState.SETTLED, points=(10, 10))
    until(lambda: read.count("read") >= 50, 60, "it reads on")
    assert read.end("done") == "done"
    assert read.moves() == ["east west"]
    for partition in range(PARTITIONS):
        there = [one for one in read.read() if (one.cluster, one.partition) == ("west", partition)]
        assert [(one.offset, one.text) for one in there] == [(number, f"other {number}") for number in range(10, 20)]
    assert read.count("read") == 50
    assert read_group_offsets(west.cluster, topic, topic, range(PARTITIONS)) == [20, 20]


@pytest.mark.long
def test_a_topic_that_moves_leaves_its_neighbour_where_it_is(
    both: Both, east: LabCluster, west: LabCluster, topic: str, examples: Examples
) -> None:
    """One member reads both: it stays in its group for the one, and leaves with the other."""
    hand, stays = Hand(topic, *both), f"{topic}-stays"
    east.create_topic(stays, partitions=PARTITIONS)
    written: list[str] = []

    def goes_on(lab: LabCluster, name: str, key: bytes) -> None:
        number = len(written)
        for partition in range(PARTITIONS):
            write(lab, name, partition, [(key, b"%d" % (number + partition))])
            written.append(f"{lab.name} {key.decode()} {number + partition}")
        until(lambda: read.count("read") == len(written), 30, f"it reads {name} on {lab.name}")

    read = examples.read(topic, stays)
    goes_on(east, topic, b"moves")
    goes_on(east, stays, b"stays")
    for step in (1, 3):
        hand.wait(hand.say("east", 1, step, HomeState.HELD), 30)
        assert read_group_offsets(east.cluster, topic, topic, range(PARTITIONS)) == [(step + 1) // 2] * PARTITIONS
        goes_on(east, stays, b"stays")
        if step == 1:
            hand.say("east", 1, 2, HomeState.SETTLED)
            goes_on(east, topic, b"moves")
    for partition in range(PARTITIONS):
        write(west, topic, partition, [(key, value) for _, key, value in records(east, topic, partition)])
    hand.say("west", 2, 0, HomeState.SETTLED, points=(2, 2))
    goes_on(west, topic, b"moves")
    goes_on(east, stays, b"stays")
    assert read.end("done") == "done"
    assert read.moves() == ["east west"]
    assert sorted(f"{one.cluster} {one.text}" for one in read.read()) == sorted(written)


@pytest.mark.long
def test_a_reader_leaves_a_home_that_died(cluster_factory: ClusterFactory, tmp_path: Path, java_classes: str) -> None:
    topic = "java-died"
    east, west = (cluster_factory(name, heap_mb=256) for name in ("east", "west"))
    values = [(b"key", b"%d" % number) for number in range(20)]
    for lab, count in ((east, 15), (west, 20)):
        lab.create_topic(topic, partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            write(lab, topic, partition, values[:count])
    with (
        closing(KafkaCluster(west.cluster, patience_s=10)) as kafka,
        Examples(tmp_path, java_classes, east, west) as ran,
    ):
        hand, read = Hand(topic, kafka), ran.read(topic)
        until(lambda: read.count("read") == 2 * 15, 60, "it reads")
        for broker in east.brokers:
            broker.kill()
        began_s = time.monotonic()
        hand.say("west", 2, 0, HomeState.SETTLED, points=(15, 15))
        until(lambda: read.count("read") == 2 * 20, 60, "it reads on")
        print(f"told: it reads on {time.monotonic() - began_s:.1f} s after it was told")
        assert read.end("done") == "done"
    assert sorted(one[1:3] for one in read.read()) == [(number, at) for number in range(PARTITIONS) for at in range(20)]


@pytest.mark.long
@pytest.mark.claim(
    "client", "java", "clients in Java go along with planned switches, there and back: 0 lost or doubled, 0 read again"
)
def test_both_go_along_with_a_switch(east: LabCluster, west: LabCluster, tmp_path: Path, examples: Examples) -> None:
    topic = "java-orders"
    with carried(east, west, topic, tmp_path) as rig:
        load, read = examples.load(topic), examples.read(topic)
        for home in ("west", "east"):
            acked, before = load.count("acked"), read.count("read")
            enough = lambda acked=acked: load.count("acked") > acked + 500  # noqa: E731
            until(enough, 60, "it writes")
            until(lambda before=before: read.count("read") > before + 500, 60, "it reads")  # type: ignore[misc]
            said = rig.move(home)
            print("told:", said.last)
            assert said.code == 0, said.text
        acked = load.count("acked")
        until(lambda: load.count("acked") > acked + 500, 60, "it writes on")
        assert load.end("left ") == "left 0"
        mirror_rig.until(lambda: read.count("read") >= load.count("acked") + 30, 60, "it reads all", rig.rig)
        assert read.end("done") == "done"
        rig.same()
        everything_once(load, read, log(east, topic))


def everything_once(load: Load, read: Read, there: dict[tuple[int, int], str]) -> None:
    assert not load.count("refused")
    acked = load.acked()
    mine = Counter(text for text in there.values() if text.startswith("key-"))
    assert mine == Counter(f"{one.key} {one.value}" for one in acked), "each acknowledged record once"
    assert read.moves() == ["east west", "west east"]
    found = read.read()
    assert Counter((one.partition, one.offset) for one in found) == Counter(there.keys()), "each read once"
    assert [one for one in found if there[one.partition, one.offset] != one.text] == []
    print(f"told: {len(acked)} records written, {len(found)} read")
