"""Groups whose places are too large for one commit, on real brokers of two versions; and a place that is refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from testkit.errors import mentions
from tests.conftest import ClusterFactory
from tests.scenarios.test_groups import commit, committed
from tests.scenarios.test_groups_kept import link_between
from twinshore.config.incident_policy import IncidentKind
from twinshore.groups import sync
from twinshore.groups.core import sync_state
from twinshore.groups.sync import start_group_sync
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.consumer_groups import ConsumerGroups
from twinshore.kafka.protocol.apis import OFFSET_COMMIT
from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.offsets import (
    OFFSET_FETCH_VERSION,
    CommittedOffset,
    TopicPartitionTuple,
    encode_offset_commit,
    parse_offset_commit,
)
from twinshore.lab.clients import read_group_offsets as places_of_group
from twinshore.lab.cluster import LabCluster
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST
from twinshore.runtime.endpoints import LinkContext
from twinshore.runtime.logging import OutageLog
from twinshore.state.store import Store

pytestmark = pytest.mark.claim(
    "groups",
    "wide-groups",
    "a group too large for one commit (300 places with long texts, to a broker of batches of 100 KB) "
    "follows, to Kafka 3 and 4; what is refused again and again is told on the ledger, until it is "
    "taken",
)

PARTITIONS = 300
TOLD_AFTER_S = 5.0  # instead of half a minute


class Stage(NamedTuple):
    east: LabCluster
    west: LabCluster
    topic: str
    store: Store


NOTE = "n" * 4000  # within offset.metadata.max.bytes
PLACES: dict[TopicPartitionTuple, CommittedOffset] = {
    ("wide", number): CommittedOffset(1, NOTE) for number in range(PARTITIONS)
}
LOADING = (Code.coordinator_load_in_progress, Code.coordinator_not_available, Code.not_coordinator)


@pytest.fixture(params=[KAFKA_NEWEST, KAFKA_3])
def groups(request: pytest.FixtureRequest, cluster_factory: ClusterFactory) -> Iterator[ConsumerGroups]:
    """Of a cluster that takes batches of a tenth of the usual size."""
    lab = cluster_factory("west", version=request.param, settings={"message.max.bytes": "100000"})
    lab.create_topic("wide", partitions=PARTITIONS)
    with closing(KafkaCluster(lab.cluster)) as kafka, closing(ConsumerGroups(kafka)) as found:
        yield found


def settled(groups: ConsumerGroups, ask: Callable[[int], dict[TopicPartitionTuple, int]]) -> set[int]:
    """The codes that are answered once the cluster has a coordinator that is ready."""
    deadline = time.monotonic() + 60
    codes: set[int] = set(LOADING)
    while codes & set(LOADING) or not codes:
        assert time.monotonic() < deadline, f"the coordinator still answers {codes}"
        time.sleep(0.2)
        nodes = groups.coordinators(["wide"])
        codes = set(ask(nodes["wide"]).values()) if nodes else set()
    return codes


def test_a_commit_beyond_what_a_broker_takes_is_refused_whole_and_goes_in_parts(groups: ConsumerGroups) -> None:
    def at_once(node: int) -> dict[TopicPartitionTuple, int]:
        line = groups.cluster.connection_to(node)
        body = encode_offset_commit("wide", PLACES)
        return line.ask(OFFSET_COMMIT, OFFSET_FETCH_VERSION, body, lambda said: parse_offset_commit(bytes(said)))

    # Newer coordinators have no name for it.
    assert settled(groups, at_once) <= {Code.invalid_commit_offset_size, Code.unknown_server_error}
    assert settled(groups, lambda node: groups.commit({node: {"wide": PLACES}})["wide"]) == {Code.none}
    nodes = groups.coordinators(["wide"])
    found, _ = groups.places({nodes["wide"]: {"wide": None}}, {})
    assert found["wide"].places == PLACES


@pytest.fixture
def beside(
    tmp_path: Path,
    east: LabCluster,
    cluster_factory: ClusterFactory,
    unique_topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stage]:
    """What runs beside a link's mirror, to a target that takes notes of 2,000 bytes only."""
    for module in (sync_state, sync):
        monkeypatch.setattr(module, "REPORT_REFUSAL_AFTER_S", TOLD_AFTER_S)
    west = cluster_factory("west", settings={"offset.metadata.max.bytes": "2000", "message.max.bytes": "100000"})
    rules = "every_s = 0.5\nverify_s = 2\n"
    with link_between(tmp_path, east, west, unique_topic, partitions=PARTITIONS, rules=rules) as (settings, store):
        companion = start_group_sync(LinkContext(settings.links[0], settings, store, lambda: True, OutageLog()))
        yield Stage(east, west, unique_topic, store)
        companion.close()


def places_of(lab: LabCluster, group: str, topic: str) -> list[int]:
    return [offset for offset in places_of_group(lab.cluster, group, topic, range(PARTITIONS)) if offset >= 0]


def commit_in_parts(lab: LabCluster, group: str, topic: str, note: str) -> None:
    for start in range(0, PARTITIONS, 50):
        commit(lab, group, {(topic, number): 0 for number in range(start, start + 50)}, note)


def until(holds: Callable[[], bool], within_s: float, saw: Callable[[], object]) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, saw()
        time.sleep(0.5)


@pytest.mark.long
def test_a_group_too_large_for_one_commit_follows_and_what_is_refused_again_and_again_is_told(beside: Stage) -> None:
    east, west, topic = beside.east, beside.west, beside.topic
    commit_in_parts(east, "wide", topic, "n" * 1900)
    commit(east, "notes", {(topic, 0): 5}, "n" * 3000)
    until(lambda: len(places_of(west, "wide", topic)) == PARTITIONS, 90, lambda: places_of(west, "wide", topic))

    def told() -> list[str]:
        rows = beside.store.incidents.rows("east->west", open_only=True)
        return [row.incident.sentence for row in rows if row.incident.kind is IncidentKind.GROUP_REFUSED]

    until(lambda: bool(told()), TOLD_AFTER_S + 60, lambda: "it is told")
    (sentence,) = told()
    assert mentions(sentence, "1 group", "group notes", "west")
    assert "offset.metadata.max.bytes" in sentence
    commit(east, "notes", {(topic, 0): 6}, "short")
    until(lambda: not told(), 60, told)
    assert committed(west, "notes", topic) == 6
