"""Twins that others have written to: MirrorMaker's copies go on at the very next record, and the map is true."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from testkit.clients import topic_id
from testkit.mapped import PARTITIONS, Move, read
from tests.scenarios.mirror_rig import Rig, until
from twinshore.cli.app import app, register_verbs
from twinshore.config.model import SourceOffset
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster
from twinshore.replication.core.mapping import translate_to_target
from twinshore.state.store import Store, open_store

OWNERS = {"min.insync.replicas": "1", "segment.ms": "3600000"}


@pytest.mark.long
@pytest.mark.parametrize("killed", [False, True], ids=["MirrorMaker stopped", "MirrorMaker killed"])
def test_a_copy_of_mirror_maker_is_carried_on(
    east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path, killed: bool
) -> None:
    moved = Move(east.cluster, west.cluster, unique_topic.replace(" ", "-"), tmp_path, killed=killed).run()
    assert (moved.lost, moved.doubled, moved.reordered, moved.wrong) == (0, 0, 0, 0), moved
    assert moved.looked_up == moved.records - moved.by_mirror_maker
    assert len(moved.sentences) == 2
    assert all("behind MirrorMaker's offset sync of" in sentence for sentence in moved.sentences)


@pytest.mark.claim(
    "topics",
    "mapped-settings",
    "a mapped topic keeps the settings of its owner while it is carried, and nothing is there twice",
)
@pytest.mark.long
def test_a_topic_that_others_write_to_takes_transactions_without_their_markers(
    east: LabCluster, west: LabCluster, unique_topic: str, tmp_path: Path
) -> None:
    topic = "merged-" + unique_topic[-8:]
    for cluster in (east, west):
        cluster.create_topic(topic, partitions=PARTITIONS)
    foreign = Producer(client_settings(west.cluster))
    with closing(KafkaCluster(west.cluster)) as owner:
        owner.admin.alter_topic_settings(topic, OWNERS, topic_id=topic_id(west.cluster, topic))

    def by_others(number: int) -> None:
        foreign.produce(topic, b"foreign %d" % number, partition=number % PARTITIONS)
        foreign.flush(10)

    for number in range(7):
        by_others(number)
    transactions(east, topic, 0)
    move = Move(east.cluster, west.cluster, topic, tmp_path)
    text = move.settings().replace(f"{east.cluster.name}0", east.cluster.name).replace("naming = 'prefix'", "")
    register_verbs()
    plan = CliRunner().invoke(
        app, ["mirror", "plan", "--settings", str(written(tmp_path, text))], catch_exceptions=False
    )
    assert f"refuse: where MirrorMaker stopped with {topic}-0 cannot be proven" in plan.output
    rig = Rig(tmp_path / "mirror", text.replace("mode = 'mapped'", "mode = 'mapped'\nmapped_from = 'start'"))
    mirror = rig.process
    link = f"{east.cluster.name}->{west.cluster.name}"
    try:
        mirror.start()
        for turn in (1, 2):
            until(lambda: ours(west, topic) == theirs(east, topic), 180.0, "all of the source is there", rig)
            transactions(east, topic, turn)
            by_others(100 + turn)
            if turn == 1:
                mirror.kill()
                transactions(east, topic, 9)
                mirror.start()
        until(lambda: ours(west, topic) == theirs(east, topic), 180.0, "all of the source is there", rig)
        count = sum(len(one) for one in theirs(east, topic))
        with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
            until(lambda: sum(mapped(store, link, topic)) == count, 90.0, "the map has all", rig)
            for number in range(PARTITIONS):
                there = dict(read(west.cluster, topic)[number])
                for offset, value in read(east.cluster, topic)[number]:
                    place = translate_to_target(
                        SourceOffset(offset), *store.offset_runs.around(link, topic, number, offset)
                    )
                    assert place is not None
                    assert (place.exact, there[place.offset]) == (True, value)
            assert not store.incidents.rows(link, open_only=True)
    finally:
        mirror.end()
    with closing(KafkaCluster(west.cluster)) as owner:
        kept = owner.admin.topic_settings([topic])[topic]
    assert {name: kept[name].value for name in OWNERS if name in kept and kept[name].own} == OWNERS, "it is the owner's"
    assert all(len(set(one)) == len(one) for one in ours(west, topic)), "nothing is there twice"


def transactions(cluster: LabCluster, topic: str, turn: int) -> None:
    """Committed and aborted ones by turns, with plain records between."""
    producer = Producer({**client_settings(cluster.cluster), "transactional.id": f"{topic}-{turn}"})
    plain = Producer(client_settings(cluster.cluster))
    producer.init_transactions(30)
    for number in range(20):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            for part in range(3):
                producer.produce(topic, b"source %d %d %d %d" % (turn, number, partition, part), partition=partition)
        producer.flush(10)
        if number % 3 == 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
        plain.produce(topic, b"source %d plain %d" % (turn, number), partition=number % PARTITIONS)
        plain.flush(10)


def ours(cluster: LabCluster, topic: str) -> list[list[bytes]]:
    """What came from the source, of all that the twin holds."""
    return [[value for _, value in one if value.startswith(b"source")] for one in read(cluster.cluster, topic)]


def theirs(cluster: LabCluster, topic: str) -> list[list[bytes]]:
    return [[value for _, value in one] for one in read(cluster.cluster, topic)]


def mapped(store: Store, link: str, topic: str) -> list[int]:
    """How many records of each partition the map knows."""
    return [sum(one.length for one in store.offset_runs.of(link, topic, number)) for number in range(PARTITIONS)]


def written(folder: Path, text: str) -> Path:
    file = folder / "plan.toml"
    file.write_text(text, encoding="utf-8")
    return file
