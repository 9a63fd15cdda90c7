"""A topic's home moves to the other cluster and back: each link goes on behind what the other side wrote itself.

The steps of a switch that the mirror takes no part in are done here by hand; writers stand still meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.cimpl import KafkaException

from testkit.clients import delete_topic
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until, url_in
from tests.scenarios.test_mirror_basic import fill
from twinshore.config.model import Link, TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.transactions import (
    MARKERS_KEY,
    MARKERS_VERSION,
    MarkedPartition,
    TransactionMarker,
    encode_markers,
    parse_markers,
)
from twinshore.lab.clients import client_settings, read_group_offsets
from twinshore.lab.cluster import LabCluster
from twinshore.replication.link_claim import LinkClaim
from twinshore.replication.operations.recover import Recoverer
from twinshore.state.core.values import HomeChange, MirrorRequest, TopicInSwitch
from twinshore.state.store import Store, open_store

PAIR = "east<>west"
PLAIN, BOUND, KEYED = TOPICS = ("turn-plain", "turn-bound", "turn-keyed")
PARTITIONS = 2
QUICK = {"tasks_per_link": 1, "refresh_s": 0.5}
Read = list[tuple[int, bytes | None, bytes | None]]


def written_by_transactions(lab: LabCluster, topic: str, name: str, *, ends_aborted: bool) -> None:
    """Transactions on both partitions: committed and aborted ones by turns."""
    producer = Producer({**client_settings(lab.cluster), "transactional.id": name})
    producer.init_transactions(60)
    for number in range(6):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            for record in range(5):
                producer.produce(topic, f"{name} {number} {record}".encode(), b"%d" % record, partition=partition)
        if (number % 2 == 0) is ends_aborted:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)


def read(lab: LabCluster, topic: str, partition: int, isolation: str) -> Read:
    """What a consumer sees, with its offsets."""
    reading = {"group.id": "turn-read", "isolation.level": isolation, "enable.partition.eof": True}
    consumer = Consumer({**client_settings(lab.cluster), **reading})
    found: Read = []
    try:
        consumer.assign([ClientTopicPartition(topic, partition, 0)])
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            message = consumer.poll(1.0)
            error = message.error() if message is not None else None
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return found
            if message is not None and error is None:  # else it is of a topic that was made a moment ago
                found.append((message.offset() or 0, message.key(), message.value()))
    finally:
        consumer.close()
    raise AssertionError(f"{topic}-{partition} cannot be read")


def stand(lab: LabCluster, topic: str, place: int) -> None:
    """A group of that topic's readers commits a place, and is idle again."""
    consumer = Consumer({**client_settings(lab.cluster), "group.id": "turn-group"})
    consumer.commit(offsets=[ClientTopicPartition(topic, 0, place)], asynchronous=False)
    consumer.close()


def group_at(lab: LabCluster) -> int:
    return read_group_offsets(lab.cluster, "turn-group", PLAIN, [0])[0]


@dataclass
class Stage:
    """`home` is where the topics are written, `twin` the other cluster; a turn makes them change places."""

    rig: Rig
    store: Store
    home: LabCluster
    twin: LabCluster
    term: int = 1

    @property
    def link(self) -> str:
        return f"{self.home.cluster.name}->{self.twin.cluster.name}"

    def write(self, round_: int) -> None:
        """Each kind of records; aborted ones last in every second round."""
        fill(self.home, PLAIN, 20, partition=0)
        fill(self.home, PLAIN, 7 + round_, partition=1)
        fill(self.home, KEYED, 30, partition=round_ % PARTITIONS)
        written_by_transactions(self.home, BOUND, f"bound {round_}", ends_aborted=round_ % 2 == 0)

    def level(self, topics: tuple[str, ...] = TOPICS) -> bool:
        return all(
            [end for _, end in spans(self.home.cluster, topic, PARTITIONS)]
            == [end for _, end in spans(self.twin.cluster, topic, PARTITIONS)]
            for topic in topics
        )

    def let_go(self, topics: tuple[str, ...] = TOPICS) -> str:
        """As a switch does: it asks the mirror, and waits for its word."""
        switch = f"{self.term:032x}"
        rows = [TopicInSwitch(PAIR, topic, switch, self.link, MirrorRequest.ANNOUNCED, 1) for topic in topics]
        assert [row.switch_id for row in self.store.topics_in_switch.begin(rows)] == [switch] * len(topics)
        time.sleep(0.5)
        assert not any(row.stopped_ms for row in self.store.topics_in_switch.of(PAIR)), "it goes on until it is asked"
        self.store.topics_in_switch.request(switch, MirrorRequest.STOP_REPLICATION, 2)
        until(lambda: all(row.stopped_ms for row in self.store.topics_in_switch.of(PAIR)), 30, "let go", self.rig)
        return switch

    def turn(self, topics: tuple[str, ...] = TOPICS) -> None:
        """Lets go, fences, flips: the home is the other cluster from then on."""
        switch = self.let_go(topics)
        self.flip(topics)
        self.store.topics_in_switch.end(switch)
        self.home, self.twin, self.term = self.twin, self.home, self.term + 1

    def flip(self, topics: tuple[str, ...]) -> None:
        source, target = self.home.cluster.name, self.twin.cluster.name
        identity = self.store.links.identity(self.link)
        assert identity is not None
        epochs = {row.topic: row.epoch for row in self.store.twins.of(self.link)}
        with (
            closing(KafkaCluster(self.home.cluster, client_id="a")) as old,
            closing(KafkaCluster(self.twin.cluster, client_id="b")) as new,
        ):
            flips = []
            for topic in topics:
                parts = [TopicPartition(topic, number) for number in range(PARTITIONS)]
                ends = new.list_offsets(parts, OffsetKind.LOG_END)
                for named in parts:
                    _fence(new, named, identity.producer_id, identity.producer_epoch + epochs[topic] + 1)
                behind = new.list_offsets(parts, OffsetKind.LOG_END)
                assert behind == {named: end + 1 for named, end in ends.items()}
                to, of = (kafka.metadata([topic], refresh=True).topics[topic].topic_id.hex() for kafka in (new, old))
                at = tuple(ends[named] for named in parts)
                back = f"{target}->{source}"
                flips.append(
                    HomeChange(
                        pair=PAIR,
                        topic=topic,
                        home=target,
                        term=self.term + 1,
                        link=self.link,
                        back=back,
                        source_topic_id=to,
                        target_topic_id=of,
                        points=at,
                        since_ms=1_000 + self.term,
                        set_by="a test",
                    )
                )
        assert self.store.topics_in_switch.change_homes(flips) == tuple(flips)

    def open_rows(self) -> dict[str, str]:
        rows = [row for link in ("east->west", "west->east") for row in self.store.incidents.rows(link, open_only=True)]
        return {f"{row.incident.topic}-{row.incident.partition}": row.incident.sentence for row in rows}


def _fence(new: KafkaCluster, named: TopicPartition, producer_id: int, epoch: int) -> None:
    def ask(line: Connection, timeout_s: float) -> list[MarkedPartition]:
        line.handwritten_version(MARKERS_KEY)
        asked = encode_markers(
            [(TransactionMarker(producer_id, epoch, False, 0, [(named.topic, [named.partition])]), 1)]
        )
        return line.ask(MARKERS_KEY, MARKERS_VERSION, asked, parse_markers, timeout_s=timeout_s)

    (answer,) = new.at(new.leader_of(named), "the fence", ask)
    assert not answer.error, answer


@pytest.fixture
def stage(east: LabCluster, west: LabCluster, tmp_path: Path) -> Iterator[Stage]:
    east.create_topic(PLAIN, partitions=PARTITIONS)
    east.create_topic(BOUND, partitions=PARTITIONS)
    east.create_topic(KEYED, partitions=PARTITIONS, settings={"cleanup.policy": "compact"})
    links = {"east->west": "turn-.*", "west->east": "turn-.*"}
    rig = Rig(tmp_path, settings_text(tmp_path, [east.cluster, west.cluster], links, mirror=QUICK))
    with open_store(url_in(tmp_path)) as store:
        yield Stage(rig, store, east, west)
        rig.process.end()
    for lab, topic in product((east, west), TOPICS):
        with suppress(KafkaException):  # one that was never written has no twin
            delete_topic(lab.cluster, topic)


@pytest.mark.long
def test_a_home_moves_there_and_back_and_there_again(stage: Stage, tmp_path: Path) -> None:
    stage.write(0)
    stage.rig.process.start()
    until(stage.level, 120, "the first crossing", stage.rig)
    for round_ in range(1, 4):
        stage.turn()
        before = {topic: spans(stage.home.cluster, topic, PARTITIONS) for topic in TOPICS}
        until(stage.level, 60, f"the fence of turn {round_} has crossed back", stage.rig)
        stage.write(round_)
        stand(stage.home, PLAIN, round_)
        if round_ == 2:
            stage.rig.process.end()
            stage.rig.process.start()
        until(stage.level, 60, f"on from the new home after turn {round_}", stage.rig)
        assert before != {topic: spans(stage.home.cluster, topic, PARTITIONS) for topic in TOPICS}
        until(lambda at=round_: group_at(stage.twin) == at, 60, "the group's place follows", stage.rig)  # type: ignore[misc]
        assert stage.open_rows() == {}
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            ours, theirs = (read(lab, topic, partition, "read_committed") for lab in (stage.home, stage.twin))
            assert ours == theirs, f"{topic}-{partition}"
            assert ours
    for partition in range(PARTITIONS):
        ours, theirs = (read(lab, PLAIN, partition, "read_uncommitted") for lab in (stage.home, stage.twin))
        assert ours == theirs
    said = stage.rig.verb("prove", "--here")
    assert "identical" in said, said
    stage.rig.process.end()
    _a_lost_store_finds_the_demoted_twins(stage, tmp_path)


def _a_lost_store_finds_the_demoted_twins(stage: Stage, folder: Path) -> None:
    """What the targets' notes say: the link from the home has its twins, with what they inherited, the other none."""
    names = (stage.home.cluster, stage.twin.cluster)
    with ExitStack() as ended, open_store(f"sqlite:///{folder}/found.db") as found:
        home, twin = (KafkaCluster(cluster, client_id="found") for cluster in names)
        for cluster in (home, twin):
            ended.callback(cluster.close)
        back = Recoverer(Link(names[0].name, names[1].name, TOPICS, ()), found, home, twin).look()
        assert dict(back.left).keys() & set(TOPICS) == set()
        rows = {(one.row.topic, one.row.partition): one for one in back.found if one.row.topic in TOPICS}
        known = {(row.topic, row.partition): row for row in stage.store.twins.of(stage.link) if row.topic in TOPICS}
        assert {place: replace(one.row, created_ms=0) for place, one in rows.items()} == {
            place: replace(row, created_ms=0) for place, row in known.items()
        }
        assert all(one.end >= 0 for one in rows.values()), [one.sentence for one in rows.values()]
        there = LinkClaim(Link(names[1].name, names[0].name), found, home).look(twin.cluster_id())
        assert not there.twins.keys() & {(topic, 0) for topic in TOPICS}


def test_what_never_crossed_stops_its_partition_and_is_left_as_it_was(stage: Stage) -> None:
    fill(stage.home, PLAIN, 10, partition=0)
    fill(stage.home, PLAIN, 10, partition=1)
    stage.rig.process.start()
    until(lambda: stage.level((PLAIN,)), 120, "the first crossing", stage.rig)
    switch = stage.let_go((PLAIN,))
    fill(stage.home, PLAIN, 3, partition=0)
    before = read(stage.home, PLAIN, 0, "read_uncommitted")
    stage.flip((PLAIN,))
    stage.store.topics_in_switch.end(switch)
    east, west = stage.home, stage.twin
    fill(west, PLAIN, 5, partition=0)
    fill(west, PLAIN, 5, partition=1)
    until(lambda: spans(east.cluster, PLAIN, 2)[1] == (0, 16), 60, "its neighbour goes on", stage.rig)
    until(lambda: bool(stage.open_rows()), 60, "it is told", stage.rig)
    (said,) = stage.open_rows().values()
    assert said.startswith("offsets 10 to 12 were written here, at last by ")
    assert said.endswith(" at 10")
    assert read(east, PLAIN, 0, "read_uncommitted") == before
    assert spans(west.cluster, PLAIN, 2) == [(0, 16), (0, 16)]


@pytest.mark.long
def test_an_old_home_that_lost_its_tail_gets_it_again(stage: Stage) -> None:
    timed(stage.home, PLAIN, 20)
    stage.rig.process.start()
    until(lambda: stage.level((PLAIN,)), 120, "the first crossing", stage.rig)
    switch = stage.let_go((PLAIN,))
    # What an unclean election takes away: no log can be cut at its end, so it is written anew up to there.
    delete_topic(stage.home.cluster, PLAIN)
    stage.home.create_topic(PLAIN, partitions=PARTITIONS)
    timed(stage.home, PLAIN, 12)
    stage.flip((PLAIN,))
    stage.store.topics_in_switch.end(switch)
    stage.home, stage.twin = stage.twin, stage.home
    timed(stage.home, PLAIN, 8, since=20)
    until(lambda: stage.level((PLAIN,)), 60, "on from the new home", stage.rig)
    for partition in range(PARTITIONS):
        ours, theirs = (read(lab, PLAIN, partition, "read_uncommitted") for lab in (stage.home, stage.twin))
        assert ours == theirs
    assert len(ours) == 28
    assert stage.open_rows() == {}


def timed(lab: LabCluster, topic: str, records: int, since: int = 0) -> None:
    """The same records at each call: their time stamps too."""
    producer = Producer(client_settings(lab.cluster))
    now_ms = 1_700_000_000_000
    for number in range(since, since + records):
        for partition in range(PARTITIONS):
            producer.produce(topic, b"%d" % number, b"key", partition=partition, timestamp=now_ms + number)
    assert producer.flush(30) == 0
