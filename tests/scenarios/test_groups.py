"""Consumer groups move across between real clusters and read on: nothing again, nothing left out, nobody overtaken."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from testkit.errors import mentions, raises
from testkit.log_kinds import COMPACTED, SOURCE_SETTINGS, Seen, compacted, seen, transactional
from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, spans, until
from tests.scenarios.test_mirror_basic import fill
from twinshore.config.errors import ConfigError
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.consumer_groups import ConsumerGroups, ShareGroups
from twinshore.kafka.protocol.offsets import CommittedOffset
from twinshore.lab.clients import client_settings
from twinshore.lab.clients import read_group_offsets as places_of_group
from twinshore.lab.cluster import LabCluster

TOPICS = {"grp-plain": 2, "grp-tx": 2, "grp-compact": 1}
MAPPED = "grp-mapped"
PARTITIONS = {**TOPICS, MAPPED: 2}
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
    for lab in clusters:
        lab.create_topic(MAPPED, partitions=2)
    for partition, strangers in enumerate((7, 1000)):
        fill(west, MAPPED, strangers, partition)
    transactional(east, MAPPED, seed=6, steps=40)
    west.create_topic("home-orders")
    fill(west, "home-orders", 100)
    folder = tmp_path_factory.mktemp("groups")
    links = {"east->west": "grp-.*", "west->east": "home-.*"}
    text = settings_text(folder, [east.cluster, west.cluster], links, mirror={"tasks_per_link": 1, "refresh_s": 0.5})
    quick = "every_s = 0.3\nverify_s = 2\n"
    text = text.replace("['grp-.*']", '[\'grp-.*\']\nmode = "mapped"\nmapped_from = "start"')
    rules = f'[links."east->west".groups]\n{quick}[links."west->east".groups]\n{quick}back = true\n[mirror]'
    text = text.replace("[mirror]", rules, 1).replace("['home-.*']", "['home-.*']\nnaming = \"prefix\"")
    found = Rig(folder, text)
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
    (offset,) = places_of_group(cluster.cluster, group, topic, [partition])
    return offset


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
        while len(ended) < PARTITIONS[topic]:
            assert time.monotonic() < deadline, f"{group} of {topic} came to the end of {ended} only"
            if (message := consumer.poll(1.0)) is None:
                continue
            partition = message.partition() or 0
            if (error := message.error()) is not None:
                assert error.name() == "_PARTITION_EOF", error
                ended.add(partition)
                continue
            what = message.offset(), message.key(), message.value(), message.headers(), message.timestamp()[1]
            found.setdefault(partition, []).append(what)
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
            found = read.get(number, [])
            if topic == "grp-compact":  # each broker takes tombstones away by itself, after a while
                found, expected = ([one for one in some if one[2] is not None] for some in (found, expected))
            assert found == expected, f"{group}, partition {number}, from {offset} on"


def test_on_a_mapped_topic_a_group_at_any_lag_reads_on_at_the_very_next_record(
    rig: Rig, clusters: tuple[LabCluster, LabCluster]
) -> None:
    """The target held records of others before, and offsets without records are left out: no two offsets are equal."""
    east, west = clusters
    logs = {number: seen(east, MAPPED, number, committed=True) for number in range(2)}
    ends = [end for _, end in spans(east.cluster, MAPPED, 2)]
    groups = {f"mapped-{int(part * 100)}": [int(end * part) for end in ends] for part in PARTS.values()}
    groups["mapped-one-behind"] = [end - 1 for end in ends]
    for group, offsets in groups.items():
        commit(east, group, {(MAPPED, number): offset for number, offset in enumerate(offsets)})

    def stand() -> bool:
        views = json.loads(rig.verb("groups", "--group", "mapped-.*", "--json", "--link", "east->west"))["groups"]
        return len(views) == len(groups) and all(view["state"] == "same" for view in views)

    until(stand, 60, "groups of the mapped topic on west", rig)
    for group, offsets in groups.items():
        read = read_on(west, group, MAPPED, committed_only=True)
        for number, offset in enumerate(offsets):
            expected = [one[1:] for one in logs[number] if isinstance(one[0], int) and one[0] >= offset]
            assert [one[1:] for one in read.get(number, [])] == expected, f"{group}, partition {number}, from {offset}"


@pytest.mark.claim(
    "groups",
    "live-group",
    "a group with members on the target is left alone, and so is where they have read on, until asked for",
)
def test_a_group_with_members_on_the_target_is_left_alone_and_so_is_where_they_have_read_on(
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
            read.append(message.partition() or 0)
        consumer.commit(asynchronous=False)
        stood = committed(west, "lives", "grp-plain"), committed(west, "lives", "grp-plain", 1)
        commit(east, "lives", {("grp-plain", 0): 399, ("grp-plain", 1): 399})
        time.sleep(2.0)
        assert (committed(west, "lives", "grp-plain"), committed(west, "lives", "grp-plain", 1)) == stood
        assert '"state": "has members"' in rig.verb("groups", "--group", "lives", "--json")
    finally:
        consumer.close()
    # They have gone; what they have read is theirs until somebody says otherwise, the rest follows.
    time.sleep(2.0)
    assert all(committed(west, "lives", "grp-plain", number) == stood[number] for number in set(read))
    rig.verb("groups", "move", "lives")
    for number in range(2):
        follows(west, rig, "lives", "grp-plain", 399, number)


@pytest.mark.claim(
    "groups",
    "resets",
    "a reset on the source is followed; who has read on at the target is not set back",
)
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


@pytest.mark.claim(
    "groups",
    "reads-on-its-own",
    "a reader without membership on the target (as Flink and Spark) is left alone, by a restarted "
    "mirror too, until an operator asks for it",
)
def test_a_reader_without_membership_on_the_target_is_left_alone_until_it_is_asked_for(
    rig: Rig, clusters: tuple[LabCluster, LabCluster]
) -> None:
    """As Flink and Spark do: it assigns its partition itself and commits, so that no coordinator keeps us off."""
    east, west = clusters
    commit(east, "assigns", {("grp-plain", 0): 90, ("grp-plain", 1): 90})
    follows(west, rig, "assigns", "grp-plain", 90)
    for at, on_source in ((11, 95), (20, 96), (42, 97)):
        commit(west, "assigns", {("grp-plain", 0): at})
        commit(east, "assigns", {("grp-plain", 0): on_source, ("grp-plain", 1): on_source})
        # The other partition, which nobody reads at the target, says that a round has come by.
        follows(west, rig, "assigns", "grp-plain", on_source, 1)
        assert committed(west, "assigns", "grp-plain") == at
    shown = rig.verb("groups", "--group", "assigns")
    assert mentions(shown, "assigns", "west", "left alone")
    (view,) = json.loads(rig.verb("groups", "--group", "assigns", "--json"))["groups"]
    assert view["state"] == "on its own"

    # Another process takes the link over: it knows the link's own places by what they say on the target.
    rig.process.end()
    commit(east, "assigns", {("grp-plain", 0): 98, ("grp-plain", 1): 98})
    rig.process.start()
    until(lambda: committed(west, "assigns", "grp-plain", 1) == 98, 120, "the mirror follows again", rig)
    assert committed(west, "assigns", "grp-plain") == 42

    rig.verb("groups", "move", "assigns")
    commit(east, "assigns", {("grp-plain", 0): 120})
    follows(west, rig, "assigns", "grp-plain", 120)


@pytest.mark.claim(
    "groups",
    "new-protocol",
    "a group of the new protocol (KIP-848) moves, and its consumers take over on the target",
)
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


@pytest.mark.claim("groups", "both-ways", "with prefixed names a group finds its place on the other side, both ways")
def test_with_prefixed_names_a_group_finds_its_place_both_ways(
    rig: Rig, clusters: tuple[LabCluster, LabCluster]
) -> None:
    """It reads home-orders on west; then west.home-orders on east; then it comes home."""
    east, west = clusters
    until(lambda: spans(east.cluster, "west.home-orders", 1) == [(0, 100)], 60, "west's orders on east", rig)
    commit(west, "travels", {("home-orders", 0): 30})
    follows(east, rig, "travels", "west.home-orders", 30)
    commit(east, "travels", {("west.home-orders", 0): 70})
    follows(west, rig, "travels", "home-orders", 70)
    said = json.loads(rig.verb("groups", "translate", "travels", "--link", "west->east", "--back", "--json"))
    assert [(one["topic"], one["offset"], one["to_topic"], one["to"]) for one in said["offsets"]] == [
        ("west.home-orders", 70, "home-orders", 70)
    ]
    commit(west, "stays", {("home-orders", 0): 10})
    follows(east, rig, "stays", "west.home-orders", 10)
    commit(west, "stays", {("home-orders", 0): 5})
    follows(east, rig, "stays", "west.home-orders", 5)
    assert committed(west, "stays", "home-orders") == 5, "a reset was undone from the other side"


def test_operators_translate_offsets_and_move_groups_by_hand(rig: Rig, clusters: tuple[LabCluster, LabCluster]) -> None:
    east, west = clusters
    words = ("groups", "translate", "81", "--topic", "home-orders", "--link", "west->east")
    assert rig.verb(*words) == "west->east: home-orders-0 offset 81 is west.home-orders-0 offset 81\n"
    commit(east, "by-hand", {("grp-plain", 0): 60})
    follows(west, rig, "by-hand", "grp-plain", 60)
    commit(west, "by-hand", {("grp-plain", 0): 90})
    with pytest.raises(AssertionError, match=r"west .* east.* 30 offsets .*`--backwards`"):
        rig.verb("groups", "move", "by-hand", "--link", "east->west")
    with raises(ConfigError, "groups.no-offsets", group="by-hnad") as caught:
        rig.verb("groups", "move", "by-hnad")
    assert caught.value.hint == "did you mean by-hand?"
    move = ("groups", "move", "by-hand", "--link", "east->west", "--backwards")
    assert "90 -> 60 (not done)" in rig.verb(*move, "--dry-run")
    assert committed(west, "by-hand", "grp-plain") == 90
    assert "grp-plain-0 on west: 90 -> 60 (done)" in rig.verb(*move)
    assert committed(west, "by-hand", "grp-plain") == 60


def test_share_groups_begin_on_the_target_where_the_source_still_delivers(
    rig: Rig, clusters: tuple[LabCluster, LabCluster]
) -> None:
    kafkas = [KafkaCluster(lab.cluster) for lab in clusters]
    groups = [ConsumerGroups(kafka) for kafka in kafkas]
    (source, target) = (ShareGroups(kafka, known) for kafka, known in zip(kafkas, groups, strict=True))
    try:
        node = source.located(["shares"]).nodes["shares"]
        starts = {("grp-plain", 0): CommittedOffset(120), ("grp-plain", 1): CommittedOffset(0)}
        assert set(source.commit({node: {"shares": starts}})["shares"].values()) == {0}

        def there() -> object:
            known = target.located(["shares"]).nodes
            found, _ = target.places({one: {"shares": None} for one in known.values()}, {})
            return found["shares"].places if "shares" in found else None

        until(lambda: there() == starts, 30, "the share group on west", rig)
    finally:
        for listing, kafka in zip(groups, kafkas, strict=True):
            listing.close()
            kafka.close()


def test_when_the_source_is_lost_its_groups_are_shown_as_they_were(
    rig: Rig, clusters: tuple[LabCluster, LabCluster]
) -> None:
    """The last test here: it takes the source away."""
    east, west = clusters
    commit(east, "left-behind", {("grp-plain", 0): 33, ("grp-plain", 1): 44})
    follows(west, rig, "left-behind", "grp-plain", 33)
    follows(west, rig, "left-behind", "grp-plain", 44, partition=1)
    time.sleep(3.0)
    for broker in east.brokers:
        broker.kill()
    said = rig.verb("groups", "--group", "left-behind", "--link", "east->west", "--json", "--partitions")
    (view,) = json.loads(said)["groups"]
    assert (view["source_state"], view["target_state"], view["state"]) == ("away", "Empty", "same")
    assert 0 <= view["said_s_ago"] < 60
    assert [place["target"] for place in view["offsets"]] == [33, 44]
    read = read_on(west, "left-behind", "grp-plain", committed_only=False)
    assert [read[number][0][0] for number in range(2)] == [33, 44]
    rig.process.kill()  # Without its source it would take its time to stop.
