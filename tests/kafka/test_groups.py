"""Groups of a real cluster: listed, asked and committed many at once; those with members are not to be moved."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.consumer_groups import GROUPS_PER_OFFSET_FETCH, ConsumerGroups
from twinshore.kafka.protocol.offsets import CommittedOffset, TopicPartitionTuple
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster

UNKNOWN_TOPIC, UNKNOWN_MEMBER = 3, 25
LOADING = {14, 15, 16}


@pytest.fixture
def groups(east: LabCluster) -> Iterator[ConsumerGroups]:
    kafka = KafkaCluster(east.cluster)
    found = ConsumerGroups(kafka)
    yield found
    found.close()
    kafka.close()


def coordinator(groups: ConsumerGroups, name: str) -> int:
    """A cluster makes the topic of its groups when it is first asked."""
    deadline = time.monotonic() + 30
    while not (found := groups.coordinators([name])):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found[name]


def settled(
    groups: ConsumerGroups, node: int, places: dict[str, dict[TopicPartitionTuple, CommittedOffset]]
) -> dict[str, dict[TopicPartitionTuple, int]]:
    """The answer, once no part of a new cluster's topic of groups is still being loaded."""
    deadline = time.monotonic() + 30
    while True:
        answers = groups.commit({node: places})
        codes = {code for ours in answers.values() for code in ours.values()}
        if not codes & LOADING or time.monotonic() > deadline:
            return answers
        time.sleep(0.1)


def test_hundreds_of_groups_are_committed_and_asked_in_few_requests(
    groups: ConsumerGroups, east: LabCluster, unique_topic: str
) -> None:
    east.create_topic(unique_topic, partitions=2)
    node = coordinator(groups, "crowd-0")
    places = {
        f"crowd-{number}": {(unique_topic, 0): CommittedOffset(number, "note"), (unique_topic, 1): CommittedOffset(0)}
        for number in range(GROUPS_PER_OFFSET_FETCH + 7)
    }
    answers = settled(groups, node, places)
    assert {name: set(codes.values()) for name, codes in answers.items()} == {name: {0} for name in places}
    groups.asked.clear()
    wanted: dict[int, dict[str, None]] = {node: dict.fromkeys(places)}
    first, away = groups.places(wanted, {})
    assert ({name: said.places for name, said in first.items()}, away) == (places, {})
    assert groups.asked["OffsetFetch"] == 2
    groups.commit({node: {"crowd-3": {(unique_topic, 1): CommittedOffset(9)}}})
    second, _ = groups.places(wanted, first)
    changed = [name for name, said in second.items() if said is not first[name]]
    assert changed == ["crowd-3"]
    assert second["crowd-3"].places[unique_topic, 1] == CommittedOffset(9)
    some, _ = groups.places({node: {"crowd-5": [(unique_topic, 1)]}}, {})
    assert some["crowd-5"].places == {(unique_topic, 1): CommittedOffset(0)}


def test_a_group_with_members_is_live_and_its_coordinator_refuses_a_commit_from_outside(
    groups: ConsumerGroups, east: LabCluster, unique_topic: str
) -> None:
    east.create_topic(unique_topic)
    name = f"group-of-{unique_topic}"
    node = coordinator(groups, name)
    places: dict[TopicPartitionTuple, CommittedOffset] = {(unique_topic, 0): CommittedOffset(0)}
    consumer = Consumer({**client_settings(east.cluster), "group.id": name})
    try:
        consumer.subscribe([unique_topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        listing = groups.listed().groups[name]
        assert (listing.live, listing.reads_by_offsets, listing.coordinator) == (True, True, node)
        assert groups.commit({node: {name: places}}) == {name: {(unique_topic, 0): UNKNOWN_MEMBER}}
    finally:
        consumer.close()
    assert groups.commit({node: {name: places}}) == {name: {(unique_topic, 0): 0}}
    assert not groups.listed().groups[name].live


def test_a_place_in_a_topic_that_is_not_there_is_refused_alone(
    groups: ConsumerGroups, east: LabCluster, unique_topic: str
) -> None:
    east.create_topic(unique_topic)
    node = coordinator(groups, "halves")
    places: dict[TopicPartitionTuple, CommittedOffset] = {
        (unique_topic, 0): CommittedOffset(0),
        ("nowhere", 0): CommittedOffset(0),
    }
    assert settled(groups, node, {"halves": places}) == {
        "halves": {(unique_topic, 0): 0, ("nowhere", 0): UNKNOWN_TOPIC}
    }
