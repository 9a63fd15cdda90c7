"""Consumer groups move across between real clusters and read on: nothing again, nothing left out, nobody overtaken."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.scenarios.log_kinds import COMPACTED, SOURCE_SETTINGS, Seen, compacted, seen, transactional
from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, spans, until
from tests.scenarios.test_mirror_basic import fill
from twinshore.lab import LabCluster
from twinshore.lab.clients import client_settings

TOPICS = {"grp-plain": 2, "grp-tx": 2, "grp-compact": 1}
PARTS = {"at the end": 1.0, "10 % behind": 0.9, "90 % behind": 0.1, "at the start": 0.0}
FOLLOWS_S = 15.0


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[LabCluster, LabCluster]]:
    """A source whose logs are compacted within seconds, and a target."""
    flags = ("-XX:TieredStopAtLevel=1",)
    with (
        LabCluster("east", jvm_flags=flags, settings=SOURCE_SETTINGS) as east,
        LabCluster("west", jvm_flags=flags) as west,
    ):
        yield east, west


@pytest.fixture(scope="module")
def rig(clusters: tuple[LabCluster, LabCluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A running mirror whose topics have crossed."""
    east, west = clusters
    for topic, partitions in TOPICS.items():
        east.create_topic(topic, partitions=partitions, settings=COMPACTED if topic == "grp-compact" else {})
    for partition in range(2):
        fill(east, "grp-plain", 400, partition)
    transactional(east, "grp-tx", seed=5, steps=40)
    compacted(east, "grp-compact")
    folder = tmp_path_factory.mktemp("groups")
    text = settings_text(
        folder, [east.cluster, west.cluster], {"east->west": "grp-.*"}, mirror={"lanes": 1, "refresh_s": 0.5}
    )
    found = Rig(
        folder, text.replace("[mirror]", '[links."east->west".groups]\nevery_s = 0.3\nverify_s = 2\n[mirror]', 1)
    )
    found.process.start()
    try:
        for topic, partitions in TOPICS.items():
            until(
                lambda topic=topic, count=partitions: same_ends(east.cluster, west.cluster, topic, count),  # type: ignore[misc]
                90,
                f"{topic} on west",
                found,
            )
        yield found
    finally:
        found.process.end()


def commit(cluster: LabCluster, group: str, offsets: dict[tuple[str, int], int], metadata: str = "") -> None:
    """As a consumer without a subscription does."""
    consumer = Consumer({**client_settings(cluster.cluster), "group.id": group})
    places = [TopicPartition(topic, part, offset, metadata) for (topic, part), offset in offsets.items()]
    try:
        for done in consumer.commit(offsets=places, asynchronous=False) or []:
            assert done.error is None, done
    finally:
        consumer.close()


def committed(cluster: LabCluster, group: str, topic: str, partition: int = 0) -> int:
    consumer = Consumer({**client_settings(cluster.cluster), "group.id": group})
    try:
        (place,) = consumer.committed([TopicPartition(topic, partition)], timeout=20)
        return place.offset
    finally:
        consumer.close()


def follows(west: LabCluster, rig: Rig, group: str, topic: str, offset: int, partition: int = 0) -> float:
    return until(
        lambda: committed(west, group, topic, partition) == offset, FOLLOWS_S, f"{group} at {offset} of {topic}", rig
    )


def member(cluster: LabCluster, group: str, topic: str, **settings: str) -> Consumer:
    """A consumer that is a member of its group; no place means that its poll fails."""
    consumer = Consumer(
        {
            **client_settings(cluster.cluster),
            "group.id": group,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **settings,
        }
    )
    consumer.subscribe([topic])
    return consumer


def read_on(cluster: LabCluster, group: str, topic: str, *, committed_only: bool) -> dict[int, list[Seen]]:
    """All that a consumer of this group reads from where it stands to the end of each partition."""
    level = "read_committed" if committed_only else "read_uncommitted"
    consumer = member(cluster, group, topic, **{"isolation.level": level})
    found: dict[int, list[Seen]] = {}
    ended: set[int] = set()
    try:
        deadline = time.monotonic() + 30
        while len(ended) < TOPICS[topic]:
            assert time.monotonic() < deadline, f"{group} of {topic} came to the end of {ended} only"
            message = consumer.poll(1.0)
            if message is None:
                continue
            partition = message.partition() or 0
            error = message.error()
            if error is not None:
                assert error.name() == "_PARTITION_EOF", error
                ended.add(partition)
                continue
            found.setdefault(partition, []).append(
                (message.offset(), message.key(), message.value(), message.headers(), message.timestamp()[1])
            )
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("topic", TOPICS)
def test_a_group_at_any_lag_reads_on_at_the_very_next_record(
    rig: Rig, clusters: tuple[LabCluster, LabCluster], topic: str
) -> None:
    east, west = clusters
    isolated = topic == "grp-tx"
    spanned = spans(east.cluster, topic, TOPICS[topic])
    logs = {number: seen(east, topic, number, committed=isolated) for number in range(TOPICS[topic])}
    groups: dict[str, dict[tuple[str, int], int]] = {}
    for name, part in PARTS.items():
        groups[f"{topic} {name}"] = {
            (topic, number): start + int((end - start) * part) for number, (start, end) in enumerate(spanned)
        }
    groups[f"{topic} one behind"] = {(topic, number): end - 1 for number, (_, end) in enumerate(spanned)}
    for group, places in groups.items():
        commit(east, group, places, "note of its consumer")
    for group, places in groups.items():
        for (_, number), offset in places.items():
            follows(west, rig, group, topic, offset, number)
    for group, places in groups.items():
        read = read_on(west, group, topic, committed_only=isolated)
        for (_, number), offset in places.items():
            expected = [one for one in logs[number] if isinstance(one[0], int) and one[0] >= offset]
            assert read.get(number, []) == expected, f"{group}, partition {number}, from {offset} on"


def test_a_group_with_members_on_the_target_is_left_alone_until_they_have_gone(
    rig: Rig, clusters: tuple[LabCluster, LabCluster]
) -> None:
    east, west = clusters
    commit(east, "lives", {("grp-plain", 0): 10, ("grp-plain", 1): 10})
    follows(west, rig, "lives", "grp-plain", 10)
    consumer = member(west, "lives", "grp-plain")
    try:
        read: list[int] = []
        while len(read) < 20:
            message = consumer.poll(10)
            assert message is not None
            read.append(message.offset() or 0)
        consumer.commit(asynchronous=False)
        stood = committed(west, "lives", "grp-plain"), committed(west, "lives", "grp-plain", 1)
        commit(east, "lives", {("grp-plain", 0): 399, ("grp-plain", 1): 399})
        time.sleep(2.0)
        assert (committed(west, "lives", "grp-plain"), committed(west, "lives", "grp-plain", 1)) == stood
        assert '"state": "has members"' in rig.verb("groups", "--group", "lives", "--json")
    finally:
        consumer.close()
    follows(west, rig, "lives", "grp-plain", 399)


def test_a_reset_on_the_source_is_followed_and_one_that_read_on_at_the_target_is_not_set_back(
    rig: Rig, clusters: tuple[LabCluster, LabCluster]
) -> None:
    east, west = clusters
    for group in ("resets", "reads-on"):
        commit(east, group, {("grp-plain", 0): 300})
        follows(west, rig, group, "grp-plain", 300)
    commit(west, "reads-on", {("grp-plain", 0): 350})
    commit(east, "reads-on", {("grp-plain", 0): 100})
    commit(east, "resets", {("grp-plain", 0): 100})
    follows(west, rig, "resets", "grp-plain", 100)
    time.sleep(1.0)
    assert committed(west, "reads-on", "grp-plain") == 350
    assert '"state": "ahead"' in rig.verb("groups", "--group", "reads-on", "--json")


def test_groups_of_the_new_protocol_move_and_take_over(rig: Rig, clusters: tuple[LabCluster, LabCluster]) -> None:
    east, west = clusters
    modern = {"group.protocol": "consumer"}
    first = member(east, "modern", "grp-plain", **modern, **{"auto.offset.reset": "earliest"})
    try:
        while (message := first.poll(10)) is not None and (message.error() or (message.offset() or 0) < 50):
            continue
        assert message is not None
        first.commit(message=message, asynchronous=False)
    finally:
        first.close()
    number = message.partition() or 0
    follows(west, rig, "modern", "grp-plain", 51, number)
    other = 1 - number
    if committed(west, "modern", "grp-plain", other) < 0:
        commit(west, "modern", {("grp-plain", other): 400})
    second = member(west, "modern", "grp-plain", **modern)
    try:
        deadline = time.monotonic() + 20
        while (taken := second.poll(1)) is None or taken.error() or taken.partition() != number:
            assert time.monotonic() < deadline
        assert taken.offset() == 51
    finally:
        second.close()
