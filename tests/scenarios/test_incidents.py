"""Each incident provoked on real brokers: its row, its sentence, its neighbours, and how it goes on. The store is
PostgreSQL, which holds every text to its column's length."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientTopicPartition

from testkit.clients import add_partitions, alter_topic, delete_records
from testkit.databases import PostgresServer
from testkit.errors import mentions
from testkit.raw_writer import RawWriter
from tests.scenarios.incident_stage import IncidentStage, age, cut_to, down_and_up, flip, log_file
from twinshore.config.incident_policy import POLICY_RETRY, POLICY_STOP
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.transactions import make_filler
from twinshore.lab.clients import client_settings, create_admin_client
from twinshore.lab.topic_comparison import compare_topic

THREE = [[b"one", b"two"], [b"three", b"four"], [b"five", b"six"]]
BODY_AT = 64
TWOS = ("cut", "gap", "foreign", "big", "early")  # topics with a neighbour


def spoil(stage: IncidentStage, whole: dict[Path, bytes]) -> None:
    """The second batch of each gets a wrong byte, or an old format; `whole` is for mending."""
    damaged, old = log_file(stage.east, "damaged", 0), log_file(stage.east, "old", 0)
    whole.update({path: path.read_bytes() for path in (damaged, old)})
    flip(damaged, 1, BODY_AT)
    age(old, 1)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[IncidentStage]:
    folder = tmp_path_factory.mktemp("incidents")
    settings = {"away_after_s": 2, "task_run_s": 4, "tasks_per_link": 1, "disk_warn_percent": 0}
    made = IncidentStage(folder, settings, store=postgres.new_database())
    try:
        made.up()
        for topic, partitions in (("damaged", 2), ("old", 1), *((name, 2) for name in TWOS)):
            made.east.create_topic(topic, partitions=partitions)
        made.east.create_topic("lost")
        for topic, partition in (("damaged", 0), ("damaged", 1), ("old", 0), ("cut", 0), ("cut", 1), ("lost", 0)):
            made.put(made.east, topic, partition, THREE)
        down_and_up(made.east.brokers[0], lambda: spoil(made, made.whole))
        made.start()
        yield made
    finally:
        made.close()


@pytest.mark.claim(
    "topics",
    "corrupt-and-old",
    "corrupt batch, format below v2: told apart with their range; what came before crosses, neighbours flow",
)
def test_damaged_and_old_batches_stop_their_partitions_alone(stage: IncidentStage) -> None:
    damaged, old = stage.row("damaged", "corrupt batch"), stage.row("old", "old format")
    assert (damaged.incident.partition, damaged.incident.from_offset, damaged.incident.to_offset) == (0, 2, 4)
    assert "its CRC says" in damaged.incident.sentence
    assert old.incident.from_offset == 2
    assert "message format v1" in old.incident.sentence
    assert damaged.incident.policy == old.incident.policy == POLICY_STOP
    stage.crossed("damaged", 1)
    assert [stage.ends(stage.west, topic, 0) for topic in ("damaged", "old")] == [2, 2], "what came before crossed"
    print(f"told: a neighbour's record took {stage.calm_s():.2f} s")
    code, said = stage.resume("damaged")
    assert code != 0
    assert "damaged-0: corrupt batch at offset 2" in said
    code, said = stage.resume("old")
    assert code != 0
    assert "message format v1" in said
    assert stage.row("damaged", "corrupt batch").closed_ms is None, "one row, over several task runs"


@pytest.mark.long
@pytest.mark.claim(
    "topics",
    "truncation",
    "truncation on the source names the range; source away opens and closes; what was mended is resumed",
)
def test_what_the_source_lost_is_named_and_what_was_mended_goes_on(stage: IncidentStage) -> None:
    for partition in (0, 1):
        stage.crossed("cut", partition)

    def accident() -> None:
        cut_to(log_file(stage.east, "cut", 0), 4)
        for path, data in stage.whole.items():
            path.write_bytes(data)

    down_and_up(stage.east.brokers[0], accident, away_s=4.0)
    lost = stage.row("cut", "truncation")
    assert (lost.incident.partition, lost.incident.from_offset, lost.incident.to_offset) == (0, 4, 6)
    away = stage.row("", "source away", closed=True)
    assert "east does not answer" in away.incident.sentence
    assert "back after" in away.incident.sentence
    assert "records behind" in away.incident.sentence
    stage.put(stage.east, "cut", 1, [[b"seven"]])
    stage.crossed("cut", 1)
    print(f"told: a neighbour's record took {stage.calm_s():.2f} s")
    code, said = stage.resume("cut")
    assert code != 0
    assert "cut-0: the source ends at 4, the twin already at 6" in said
    # As long again, and longer: no end says any more what was lost.
    stage.put(stage.east, "cut", 0, [[b"another", b"history"], [b"goes on"]])
    code, said = stage.resume("cut")
    assert code != 0
    assert mentions(said, "cut-0", "offsets 4 to 5")
    for topic in ("damaged", "old"):
        code, said = stage.resume(topic)
        assert code == 0, said
        took_s = stage.crossed(topic, 0, within_s=15)
        print(f"told: {topic} went on after {took_s:.1f} s")
        assert compare_topic(stage.east.cluster, stage.west.cluster, topic).identical
    assert stage.row("damaged", "corrupt batch").closed_ms


@pytest.mark.claim(
    "topics",
    "retention-gap",
    "retention gap: told with its range, crossed, and a reader of the twin sees no record there",
)
def test_a_retention_gap_is_told_and_crossed(stage: IncidentStage) -> None:
    stage.put(stage.east, "gap", 0, THREE)
    stage.crossed("gap", 0)
    stage.twinshore("link", "pause", "east->west", "--topic", "gap")
    stage.rig.until_said("topic gap is paused")
    with closing(KafkaCluster(stage.east.cluster)) as east:
        made = make_filler(25_000)
        writer = RawWriter(east, "gap")
        assert writer.send([made.encode_header(writer.producer_id, writer.epoch, 0) + made.body]).error == 0
    for partition in (0, 1):
        stage.put(stage.east, "gap", partition, THREE)
    stage.delete_records("gap", 0, 25_010)
    with closing(
        Consumer({**client_settings(stage.west.cluster), "group.id": "at the end", "auto.offset.reset": "earliest"})
    ) as reader:
        reader.assign([ClientTopicPartition("gap", 0, 6)])
        assert not reader.consume(1, 1.0)
        stage.twinshore("link", "resume", "east->west", "--topic", "gap")
        print(f"told: a neighbour's record took {stage.calm_s():.2f} s")
        for partition in (0, 1):
            stage.crossed("gap", partition)
        assert [seen.offset() for seen in reader.consume(2, 10.0)] == [25_010, 25_011]
    row = stage.row("gap", "retention gap", closed=True)
    assert (row.incident.partition, row.incident.from_offset, row.incident.to_offset) == (0, 6, 25_010)


@pytest.mark.long
@pytest.mark.claim(
    "topics",
    "lost-beginning",
    "records that somebody deletes at a twin's beginning are told by their range, until the source has passed them",
)
def test_a_beginning_that_the_target_lost_is_told(stage: IncidentStage) -> None:
    for partition in (0, 1):
        stage.put(stage.east, "early", partition, THREE)
        stage.crossed("early", partition)
    stage.delete_records("early", 1, 2)  # what the twin follows is no loss
    delete_records(stage.west.cluster, {TopicPartition("early", 0): 4})
    row = stage.row("early", "lost beginning", within_s=40)
    assert (row.incident.partition, row.incident.from_offset, row.incident.to_offset) == (0, 0, 4)
    stage.put(stage.east, "early", 0, [[b"it goes on"]])
    stage.crossed("early", 0)
    stage.delete_records("early", 0, 4)
    stage.row("early", "lost beginning", closed=True)


@pytest.mark.claim(
    "topics",
    "foreign-write",
    "foreign write on a twin: stops that partition, its neighbours flow, resuming is refused",
)
def test_a_foreign_write_stops_the_twin_it_was_made_on(stage: IncidentStage) -> None:
    """Also while the source writes nothing that would meet it."""
    for partition in (0, 1):
        stage.put(stage.east, "foreign", partition, THREE)
        stage.crossed("foreign", partition)
    stage.put(stage.west, "foreign", 0, [[b"a stranger's"]])
    row = stage.row("foreign", "foreign write", within_s=10)
    assert (row.incident.partition, row.incident.from_offset, row.incident.to_offset) == (0, 6, 7)
    assert "not by this link" in row.incident.sentence
    for partition in (0, 1):
        stage.put(stage.east, "foreign", partition, [[b"seven"]])
    stage.crossed("foreign", 1)
    print(f"told: a neighbour's record took {stage.calm_s():.2f} s")
    stage.put(stage.east, "foreign", 0, [[b"eight", b"nine", b"ten"]])
    code, said = stage.resume("foreign")
    assert code != 0
    assert mentions(said, "foreign-0", "offsets 6 to 6", "producer id")
    assert stage.ends(stage.west, "foreign", 0) == 7, "nothing follows"


@pytest.mark.claim("topics", "oversize", "oversize batch: rests until the twin takes it, goes on by itself")
@pytest.mark.long
def test_an_oversize_batch_rests_until_the_twin_takes_it(stage: IncidentStage) -> None:
    stage.until(
        lambda: "big" in create_admin_client(stage.west.cluster).list_topics(timeout=5).topics, 20, "the twin is there"
    )
    # The mirror mends the setting when it looks by, which may be before the batch has come.
    tries = 0
    while not stage.rows("big", "oversize batch"):
        alter_topic(stage.west.cluster, "big", {"max.message.bytes": "20000"})
        stage.put(stage.east, "big", 0, [[b"x" * 60_000]])
        tries += 1
        stage.until(
            lambda: (
                bool(stage.rows("big", "oversize batch"))
                or stage.ends(stage.west, "big", 0) == stage.ends(stage.east, "big", 0)
            ),
            60,
            "it rests, or it has crossed",
        )
        assert tries < 5, "it never rested"
    stage.put(stage.east, "big", 1, THREE)
    print(f"told: a neighbour's record took {stage.calm_s():.2f} s")
    stage.crossed("big", 1)
    stage.crossed("big", 0)
    row = stage.row("big", "oversize batch", closed=True)
    assert (row.incident.partition, row.incident.from_offset, row.incident.to_offset) == (0, tries - 1, tries)
    assert "exceeds the twin's limit" in row.incident.sentence
    assert row.incident.policy == POLICY_RETRY


@pytest.mark.long
@pytest.mark.claim(
    "topics",
    "lost-by-target",
    "a target that lost acknowledged data heals by itself and says so; target away opens and closes",
)
def test_what_the_target_lost_is_carried_again(stage: IncidentStage) -> None:
    stage.crossed("lost", 0)
    stage.put(stage.east, "lost", 0, [[b"seven", b"eight"]])
    stage.crossed("lost", 0)
    stage.until(lambda: stage.rig.told("east->west").get(("lost", 0)) == 8, 10, "it is receipted")
    down_and_up(stage.west.brokers[0], lambda: cut_to(log_file(stage.west, "lost", 0), 6), away_s=4.0)
    row = stage.row("lost", "lost by target", closed=True)
    assert (row.incident.partition, row.incident.from_offset, row.incident.to_offset) == (0, 6, 8)
    assert "which it had acknowledged" in row.incident.sentence
    found = compare_topic(stage.east.cluster, stage.west.cluster, "lost")
    assert (found.identical, found.records) == (True, 8)
    away = stage.row("", "target away", closed=True)
    assert "west does not answer" in away.incident.sentence
    print(f"told: a neighbour's record took {stage.calm_s():.2f} s")


@pytest.mark.claim("topics", "partition-added", "added partitions: carried, and a row")
@pytest.mark.long
def test_added_partitions_are_told_and_carried(stage: IncidentStage) -> None:
    add_partitions(stage.east.cluster, "lost", 2)
    stage.put(stage.east, "lost", 1, THREE)
    print(f"told: a neighbour's record took {stage.calm_s():.2f} s")
    stage.crossed("lost", 1)
    row = stage.row("lost", "partition added", closed=True)
    assert row.incident.partition == -1
    assert mentions(row.incident.sentence, "lost", "2 partitions")
