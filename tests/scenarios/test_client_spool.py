"""What a producer kept on its disk reaches the brokers in order, though the process is killed and its home is down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.conftest import ClusterFactory
from tests.scenarios.spool_stage import KEYS, SpoolingProcess, key_of
from tests.scenarios.test_client_homes import Heard, sites
from tests.scenarios.test_following_writers import SWITCH, both, records, until
from twinshore.client import FailoverProducer
from twinshore.client.core.spool_format import SpoolRecord
from twinshore.client.spool import Spool, SpoolFiles, load_spool
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.cluster import LabCluster
from twinshore.routing.core.home_records import HomeRecord, HomeState
from twinshore.routing.homes_topic import HomesTopic

__all__ = ["both"]
PARTITIONS = 2


def by_key(lab: LabCluster, topic: str) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for partition in range(PARTITIONS):
        for _, key, value in records(lab, topic, partition):
            found.setdefault(key, []).append(int(value))
    return found


@pytest.fixture
def process() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.long
@pytest.mark.claim(
    "client", "spool-sent", "spool: the broker is down and the process killed: the next producer sends all, in order"
)
def test_calls_of_a_killed_process_are_sent_by_the_next_one_once_the_broker_is_back(
    cluster_factory: ClusterFactory, tmp_path: Path, process: ExitStack
) -> None:
    east = cluster_factory("east")
    east.create_topic("orders", partitions=PARTITIONS)
    ours = SpoolingProcess("write", sites(east), "orders", tmp_path / "spool", tmp_path / "said")
    process.callback(ours.kill)
    until(lambda: bool(ours.said("acked")), 60, "it writes")
    (broker,) = east.brokers
    broker.kill()
    until(lambda: len(ours.said("kept")) > 200, 60, "it goes on while its home is away")
    ours.kill()
    count = load_spool(SpoolFiles(tmp_path / "spool")).tallies["orders"].records
    assert count >= 200
    heard = Heard()
    with FailoverProducer({}, clusters=sites(east), topics=["orders"], spool=tmp_path / "spool") as after:
        assert len(after) == count
        for number in range(10_000, 10_050):
            after.produce("orders", b"%d" % number, key_of(number), on_delivery=heard)
        broker.restart()
        assert after.flush(120) == 0
    expected = {
        key_of(one): [*range(one, 100 + count, KEYS), *range(10_000 + one, 10_050, KEYS)] for one in range(KEYS)
    }
    assert by_key(east, "orders") == expected, "each once, in order, those that were kept before those that came later"
    assert sorted(heard.acked) == [b"%d" % number for number in range(10_000, 10_050)]
    print(f"told: {count} calls were kept when the process was killed; 0 lost, 0 doubled, 0 out of order")


def test_a_process_that_is_killed_while_it_sends_leaves_the_rest_and_doubles_only_what_was_on_its_way(
    east: LabCluster, unique_topic: str, tmp_path: Path, process: ExitStack
) -> None:
    count = 100_000
    east.create_topic(unique_topic, partitions=PARTITIONS)
    spool = Spool(tmp_path / "spool")
    made = [
        SpoolRecord(number, unique_topic, b"%d" % number, key_of(number), -1, wall_ms(), (), wall_ms())
        for number in range(count)
    ]
    batch = spool.keep(made)
    assert batch is not None
    spool.commit(batch)
    spool.close()
    ours = SpoolingProcess("send", sites(east), unique_topic, tmp_path / "spool", tmp_path / "said")
    process.callback(ours.kill)
    until(lambda: any(left < count * 0.9 for left in ours.said("left")[-20:]), 60, "it sends")
    ours.kill()
    left = load_spool(SpoolFiles(tmp_path / "spool")).tallies[unique_topic].records
    assert 0 < left <= count
    with FailoverProducer({}, clusters=sites(east), topics=[unique_topic], spool=tmp_path / "spool") as after:
        assert after.close(120) == 0
    doubled = 0
    for key, numbers in by_key(east, unique_topic).items():
        once = list(dict.fromkeys(numbers))
        assert once == sorted(once), f"{key!r} in order"
        doubled += len(numbers) - len(once)
        count -= len(once)
    assert count == 0, "each is there"
    assert doubled <= left
    print(f"told: killed with {left} of 100000 not marked as done: 0 lost; {doubled} are there twice")


@pytest.mark.long
def test_what_a_dead_home_never_acknowledged_is_kept_for_a_topic_that_is_still_held(
    cluster_factory: ClusterFactory, west: LabCluster, tmp_path: Path, unique_topic: str
) -> None:
    """Two topics were written to the old home. One has a new home already; the other waits, and the process dies."""
    east = cluster_factory("east")
    moved, held = f"{unique_topic}-moved", f"{unique_topic}-held"
    for lab in (east, west):
        for topic in (moved, held):
            lab.create_topic(topic, partitions=PARTITIONS)
    folder, topics = tmp_path / "spool", [moved, held]
    with ExitStack() as stack:
        kafkas = [stack.enter_context(closing(KafkaCluster(lab.cluster, patience_s=10))) for lab in (east, west)]
        ids = [kafka.cluster_id() for kafka in kafkas]
        notes = HomesTopic(kafkas[1])
        notes.make()

        def say(topic: str, home: str, term: int, step: int, state: HomeState) -> None:
            home_id = ids[("east", "west").index(home)]
            line = HomeRecord(
                topic=topic, home=home, cluster_id=home_id, term=term, step=step, state=state, switch=SWITCH
            )
            notes.say([line], wall_ms())

        ours = FailoverProducer({}, clusters=sites(east, west), topics=topics, spool=folder)
        for topic in topics:
            ours.produce(topic, b"0", key_of(0))
        assert ours.flush(60) == 0
        east.brokers[0].kill()
        for number in range(1, 50):
            for topic in topics:
                ours.produce(topic, b"%d" % number, key_of(number))
        say(held, "east", 1, 1, HomeState.HELD)
        until(lambda: "is held by a switch" in ours.where(held), 60, "it hears of the switch")
        for number in range(50, 60):
            ours.produce(held, b"%d" % number, key_of(number))
        say(moved, "west", 2, 0, HomeState.SETTLED)

        def on_disk() -> int:
            tally = load_spool(SpoolFiles(folder)).tallies.get(held)
            return tally.records if tally else 0

        until(lambda: on_disk() == 59, 60, "what came back is on the disk")
        ours.kill()
        say(held, "west", 2, 0, HomeState.SETTLED)
        with FailoverProducer({}, clusters=sites(east, west), topics=topics, spool=folder) as after:
            until(lambda: after.where(held) == "west", 60, "it hears of the new home")
            assert after.close(60) == 0
    expected = {key_of(one): list(range(one or KEYS, 60, KEYS)) for one in range(KEYS)}
    assert by_key(west, held) == expected, "in order, though what came back was written last"
    sent = {key: list(dict.fromkeys(numbers)) for key, numbers in by_key(west, moved).items()}
    assert sent == {key: [one for one in numbers if one < 50] for key, numbers in expected.items()}, (
        "or on its way twice"
    )


@pytest.mark.long
def test_while_its_home_answers_nothing_calls_are_kept_on_the_disk_though_nobody_has_switched(
    cluster_factory: ClusterFactory, west: LabCluster, tmp_path: Path, unique_topic: str
) -> None:
    """The other cluster answers, so it knows where the topic is at home: there, where nothing answers."""
    east = cluster_factory("east")
    east.create_topic(unique_topic, partitions=PARTITIONS)
    heard, number = Heard(), 0
    with FailoverProducer({}, clusters=sites(east, west), topics=[unique_topic], spool=tmp_path, lease_s=2.0) as ours:

        def calls(count: int) -> None:
            nonlocal number
            for _ in range(count):
                ours.produce(unique_topic, b"%d" % number, key_of(number), on_delivery=heard)
                number += 1

        calls(20)
        assert ours.flush(60) == 0
        until(lambda: not list(tmp_path.glob("*.spool")), 10, "what was called before it had heard a cluster is done")
        calls(20)
        assert list(tmp_path.glob("*.spool")) == [], "while all is well nothing is on the disk"
        assert ours.flush(60) == 0
        east.brokers[0].kill()

        def kept() -> int:
            calls(1)
            tally = load_spool(SpoolFiles(tmp_path)).tallies.get(unique_topic)
            return tally.records if tally else 0

        until(lambda: kept() >= 50, 60, "calls are kept on the disk")
        assert ours.where(unique_topic) == "east"
        east.brokers[0].restart()
        assert ours.flush(120) == 0
        calls(20)
        assert ours.close(60) == 0
    assert (len(heard.acked), heard.errors) == (number, [])
    assert by_key(east, unique_topic) == {key_of(one): list(range(one, number, KEYS)) for one in range(KEYS)}
    assert list(tmp_path.glob("*.spool")) == []


@pytest.mark.long
def test_what_went_straight_and_has_no_answer_is_left_in_the_spool_by_a_producer_that_closes(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    east = cluster_factory("east")
    east.create_topic("orders", partitions=PARTITIONS)
    with FailoverProducer({}, clusters=sites(east), topics=["orders"], spool=tmp_path) as ours:
        ours.produce("orders", b"0", key_of(0))
        assert ours.flush(60) == 0
        east.brokers[0].kill()
        for number in range(1, 3_000):
            ours.produce("orders", b"%d" % number, key_of(number))
        assert ours.close(0) == 2_999
    east.brokers[0].restart()
    with FailoverProducer({}, clusters=sites(east), topics=["orders"], spool=tmp_path) as after:
        after.produce("orders", b"3000", key_of(3_000))
        assert after.close(60) == 0
    assert by_key(east, "orders") == {key_of(one): list(range(one, 3_001, KEYS)) for one in range(KEYS)}
