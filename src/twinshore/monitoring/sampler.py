"""Reads both clusters of a link: log ends, topic ids, committed offsets of groups and the newest heartbeat.

No Twinshore mirror is needed. Offsets of an exact twin in the store are the source's; otherwise only differences count.
A topic that was never on the target is not monitored: its mirror reports why. A known topic is requested by name if the
list of all topics omits it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from twinshore.config.errors import KafkaError, StoreError
from twinshore.config.frozen import HEARTBEATS
from twinshore.config.incident_policy import IncidentEffect, IncidentKind, stops_replication
from twinshore.config.model import Link, OffsetRun, TopicPartition, is_heartbeats_topic
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.consumer_groups import ConsumerGroups, group_by_coordinator
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.metadata import ClusterMetadata
from twinshore.kafka.protocol.offsets import GroupOffsets
from twinshore.kafka.state_topic import StateTopic
from twinshore.monitoring.core.partition_lag import (
    DIGEST_SEPARATOR,
    GROUPS_PART,
    HEARTBEATS_PART,
    LagReading,
    MissingTopic,
    MonitoredPartition,
    OffsetRelation,
    explain_missing_topic,
    get_mapped_end,
    shorten_group_id,
)
from twinshore.replication.core.filters import admits
from twinshore.replication.core.link_config import effective_link
from twinshore.replication.core.ownership import explain_homed_elsewhere, homes_elsewhere, pair_name
from twinshore.replication.core.topology_view import beat_ms
from twinshore.runtime.endpoints import pin_cluster_ids
from twinshore.state.core.values import HomeRow, IncidentRow
from twinshore.state.store import Store

METADATA_REFRESH_S = 2.0
# A store that is away may take ten seconds to fail, and readings do not wait for that each time.
STORE_RETRY_INTERVAL_S = 30.0
MIRRORMAKER_HEARTBEATS_TOPIC = "heartbeats"
PartitionEnds = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class LastHeartbeat:
    """The newest heartbeat on the target: its offset, and its write time by the writer's clock."""

    offset: int
    written_ms: int


@dataclass(frozen=True, slots=True)
class LinkSample:
    """`tick` is -1 between the windows' periods. `failures`: topics and parts that could not be read; "" is the whole
    link. `over`: topics whose replication is no longer expected, and why. `deleted`: those that the source lacks, with
    the replicated offset of each partition. `away`: clusters that do not answer, and why. `stopped`: topics with a
    stopped partition, by the incident log. `resting`: those partitions, -1 for all.
    """

    link: str
    at_ms: int
    tick: int
    readings: tuple[LagReading, ...]
    heartbeat: LastHeartbeat | None = None
    failures: Mapping[str, str] = field(default_factory=dict)
    over: Mapping[str, str] = field(default_factory=dict)
    deleted: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    away: Mapping[str, str] = field(default_factory=dict)
    stopped: Mapping[str, str] = field(default_factory=dict)
    resting: Mapping[str, frozenset[int]] = field(default_factory=dict)
    paused: bool = False


class ExpectedNames(NamedTuple):
    """Topics that were monitored before or are late, and groups that are late."""

    topics: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _StoreView:
    """What the store knows of the link. `old`: the store no longer answers, and this is the last known state."""

    link: Link
    twins: Mapping[tuple[str, int], str]
    reached: Mapping[tuple[str, int], OffsetRun]
    replicated: Mapping[tuple[str, int], int]  # offset on the source
    stopped: Mapping[str, str] = field(default_factory=dict)
    resting: Mapping[str, frozenset[int]] = field(default_factory=dict)
    # Topics that are written on the target: the reverse link replicates them.
    elsewhere: Mapping[str, HomeRow] = field(default_factory=dict)
    old: bool = False


class Sampler:
    """Reads one link, from one thread. Errors of clusters and store are reported in the sample, not raised.

    `expected`: names that a topic or group list must not omit silently.
    """

    def __init__(
        self,
        link: Link,
        source: KafkaCluster,
        target: KafkaCluster,
        store: Store,
        *,
        groups: bool,
        expected: Callable[[], ExpectedNames] = ExpectedNames,
    ) -> None:
        self._link, self._source, self._target, self._store = link, source, target, store
        self._groups = (ConsumerGroups(source), ConsumerGroups(target)) if groups and link.groups.enabled else None
        self._view = _StoreView(link, {}, {}, {}, old=True)
        self._expected = expected
        self._unseen: dict[str, str] = {}
        self._over: dict[str, str] = {}
        self._deleted: frozenset[str] = frozenset()
        self._away: dict[str, str] = {}
        self._topics: dict[str, tuple[str, str, str, int, bool]] = {}  # twin, both ids, partitions, all of them
        self._refresh_again_s = self._store_again_s = 0.0
        self._store_was_read = False
        self._heartbeats: StateTopic | None = None

    def close(self) -> None:
        for groups in self._groups or ():
            groups.close()
        self._source.close()
        self._target.close()

    def sample(self, now_ms: Callable[[], int], tick: int) -> LinkSample:
        """Reads the link now. Groups and the heartbeat are read only if `tick` >= 0."""
        failures: dict[str, str] = {}
        readings: list[LagReading] = []
        heartbeat = None
        try:
            if time.monotonic() >= self._refresh_again_s:
                self._refresh()
            failures |= self._unseen
            readings = self._ends(now_ms, failures)
        except (KafkaError, StoreError) as error:
            failures[""] = error.message
        if tick >= 0 and "" not in failures:
            # Separately: without rights on groups, ends and heartbeats are still read.
            with _noting(failures, GROUPS_PART):
                readings += self._group_offsets(readings, failures)
            with _noting(failures, HEARTBEATS_PART):
                heartbeat = self._heartbeat()
        return LinkSample(
            self._link.name,
            now_ms(),
            tick,
            tuple(readings),
            heartbeat,
            failures,
            dict(self._over),
            {topic: self._replicated_offsets(topic) for topic in self._deleted},
            dict(self._away),
            self._view.stopped,
            self._view.resting,
            self._view.link.control.paused,
        )

    def _refresh(self) -> None:
        self._read_store()
        link = self._view.link
        source, target = self._read_metadata()
        shared = _shared(link, source, target)
        self._topics = {name: one for name, one in shared if name not in self._view.elsewhere}
        self._explain_missing()
        names = (f"{link.source}.{HEARTBEATS}", f"{link.source}.{MIRRORMAKER_HEARTBEATS_TOPIC}")
        there = next((name for name in names if name in target.topics and not target.topics[name].error), None)
        self._heartbeats = StateTopic(self._target, there, call_s=2.0) if there else None
        self._refresh_again_s = time.monotonic() + METADATA_REFRESH_S

    def _read_metadata(self) -> tuple[ClusterMetadata, ClusterMetadata]:
        """Metadata of source and target. Both are always requested, to know of each whether it is away."""
        found: list[ClusterMetadata] = []
        failed: KafkaError | None = None
        for cluster in (self._source, self._target):
            try:
                with self._noting_silence(cluster):
                    found.append(cluster.metadata(None, refresh=True))
            except KafkaError as error:
                failed = failed or error
        if failed:
            raise failed
        source, target = found
        return source, target

    @contextmanager
    def _noting_silence(self, cluster: KafkaCluster) -> Iterator[None]:
        """Records whether any broker of the cluster answers; any error code from a broker proves that."""
        try:
            yield
        except KafkaError as error:
            if error.code == 0:
                self._away[cluster.name] = error.message
            raise
        self._away.pop(cluster.name, None)

    def _explain_missing(self) -> None:
        """Finds out why expected topics are missing on a side, or lack partitions."""
        link = self._view.link
        known = {topic for topic, _ in self._view.twins} | self._expected().topics
        names = sorted(known - {name for name, (*_, whole) in self._topics.items() if whole})
        admitted = [name for name in names if admits(link, name)]
        topics = self._source.metadata(admitted).topics if admitted else {}
        twins = self._target.metadata([link.twin_of(name) for name in admitted]).topics if admitted else {}
        found = {}
        for name in names:
            topic, twin = topics.get(name), twins.get(link.twin_of(name))
            source, target = topic.error if topic else None, twin.error if twin else None
            found[name] = explain_missing_topic(link, name, source, target)
            if name in self._view.elsewhere:
                found[name] = MissingTopic(True, explain_homed_elsewhere(name, self._view.elsewhere[name], link))
        self._unseen = {name: one.why for name, one in found.items() if not one.over}
        self._over = {name: one.why for name, one in found.items() if one.over}
        self._deleted = frozenset(name for name, one in found.items() if one.deleted)

    def _replicated_offsets(self, topic: str) -> dict[int, int]:
        """Replicated source offset of each partition, by progress reports."""
        return {partition: to for (name, partition), to in self._view.replicated.items() if name == topic}

    def _read_store(self) -> None:
        """Reads the store. While the store is away, the last state is kept; raises StoreError if there is none."""
        if time.monotonic() < self._store_again_s:
            return
        name = self._link.name
        try:
            pin_cluster_ids(self._link, self._store, self._source, self._target)
            link = effective_link(self._link, self._store.controls.of(name)).link
            twins = {(row.topic, row.partition): row.target_topic_id for row in self._store.twins.of(name)}
            replicated = {
                (position.topic, position.partition): position.to_offset
                for position in self._store.progress.positions(name)
            }
            rows = self._store.incidents.rows(name, open_only=True)
            away = find_reversed_topics(link, self._store, rows)
            stopped, resting = find_stopped_partitions(link, (row for row in rows if row.incident.topic not in away))
            reached = self._store.offset_runs.reached(name)
            self._view = _StoreView(link, twins, reached, replicated, stopped, resting, away)
        except StoreError:
            if not self._store_was_read:
                raise
            self._view = replace(self._view, old=True)
            self._store_again_s = time.monotonic() + STORE_RETRY_INTERVAL_S
        self._store_was_read = True

    def _ends(self, now_ms: Callable[[], int], failures: dict[str, str]) -> list[LagReading]:
        topics = self._topics
        partitions = [TopicPartition(name, n) for name, (*_, count, _) in topics.items() for n in range(count)]
        twins = [TopicPartition(topics[partition.topic][0], partition.partition) for partition in partitions]
        # The target first: a record replicated in between makes the lag too large, never negative.
        target_ends = _read(self._target, twins, failures, {topics[name][0]: name for name in topics})
        source_ends = _read(self._source, partitions, failures, {name: name for name in topics})
        at_ms = now_ms()
        return [
            self._reading(partition, at_ms, source_ends[partition], target_ends[twin])
            for partition, twin in zip(partitions, twins, strict=True)
            if partition in source_ends and twin in target_ends
        ]

    def _reading(self, partition: TopicPartition, at_ms: int, source_end: int, target_end: int) -> LagReading:
        _, source_id, target_id, *_ = self._topics[partition.topic]
        where, told = (partition.topic, partition.partition), self._view
        axis, carried = OffsetRelation.FOREIGN, -1
        if where in told.reached:
            # An old offset run says nothing of later replication.
            if not told.old:
                axis = OffsetRelation.MAPPED
                carried = get_mapped_end(told.reached[where], target_end, told.replicated.get(where, 0))
        elif told.twins.get(where) == target_id:
            axis = OffsetRelation.EXACT
        place = MonitoredPartition(self._link.name, partition.topic, partition.partition)
        paused = self._view.link.control.pauses(partition.topic)
        return LagReading(
            place, at_ms, source_end, target_end, source_id, target_id, axis=axis, carried=carried, paused=paused
        )

    def _group_offsets(self, readings: Iterable[LagReading], failures: dict[str, str]) -> list[LagReading]:
        if self._groups is None:
            return []
        ours, theirs = self._groups
        control = self._view.link.control
        listed, silent = ours.listed()
        wanted = {
            one.group: one.coordinator
            for one in listed.values()
            if one.reads_by_offsets and control.admits_group(one.group)
        }
        if silent:
            failures[GROUPS_PART] = next(iter(silent.values())).message
        expected = self._expected().groups - {shorten_group_id(group) for group in listed}
        unlisted = sorted(
            group for group in expected if DIGEST_SEPARATOR not in group
        )  # Only whole ids can be requested.
        # A list silently omits groups that the client may not describe; a request by name is refused.
        for why in list(ours.located(unlisted)[1].values())[:1] if unlisted else ():
            failures[GROUPS_PART] = why.message
        if not wanted:
            return []
        found, away = ours.places(group_by_coordinator(wanted), {})
        nodes, errors = theirs.located(sorted(wanted))
        there, away_there = theirs.places(group_by_coordinator(nodes), {})
        for name, told in ((self._source.name, found), (self._target.name, there)):
            untold = sorted(group for group in wanted if group not in told or told[group].error)
            if untold:
                more = f" and {len(untold) - 1} more" if untold[1:] else ""
                failures.setdefault(GROUPS_PART, f"{name} does not tell the committed offsets of {untold[0]}{more}")
        for why in [*errors.values(), *away.values(), *away_there.values()][:1]:
            failures[GROUPS_PART] = why.message
        return list(self._group_readings(readings, found, there))

    def _group_readings(
        self, readings: Iterable[LagReading], found: Mapping[str, GroupOffsets], there: Mapping[str, GroupOffsets]
    ) -> Iterable[LagReading]:
        ends = {(reading.place.topic, reading.place.partition): reading for reading in readings}
        for group, places in found.items():
            # An unreadable offset must not look like a group that does not advance.
            if group not in there or there[group].error:
                continue
            for (topic, partition), mine in places.places.items():
                reading = ends.get((topic, partition))
                if reading is None:
                    continue
                twin = (self._topics[topic][0], partition)
                if twin in there[group].failed:
                    continue
                other = there[group].places.get(twin)
                yield reading._replace(
                    place=reading.place._replace(group=shorten_group_id(group)),
                    source_commit=mine.offset,
                    target_commit=other.offset if other else None,
                )

    def _heartbeat(self) -> LastHeartbeat | None:
        last = self._heartbeats.last() if self._heartbeats else None
        if last is None:
            return None
        at_ms = beat_ms(last.value)
        return LastHeartbeat(last.offset, last.timestamp if at_ms is None else at_ms)


def find_reversed_topics(link: Link, store: Store, rows: Iterable[IncidentRow]) -> dict[str, HomeRow]:
    """Topics that the reverse link replicates and monitors. `rows`: open incidents of this link.

    A topic recreated away from its home is replicated by neither link, and this link shows it. Older incidents of a
    reversed topic date from before the move.
    """
    away = homes_elsewhere(link, store.homes.of(pair_name(link)))
    strayed = {row.incident.topic for row in rows if row.incident.kind is IncidentKind.HOME_UNDECIDED}
    return {topic: row for topic, row in away.items() if topic not in strayed}


def find_stopped_partitions(
    link: Link, rows: Iterable[IncidentRow]
) -> tuple[dict[str, str], dict[str, frozenset[int]]]:
    """Topics with stopped partitions, each with a sentence, and those partitions; -1 stands for the whole topic."""
    said: dict[str, str] = {}
    resting: dict[str, frozenset[int]] = {}
    for incident in (row.incident for row in rows):
        if incident.topic and stops_replication(incident.kind, incident.policy) and admits(link, incident.topic):
            said[incident.topic] = incident.sentence
            number = -1 if incident.policy.effect is IncidentEffect.TOPIC else incident.partition
            resting[incident.topic] = resting.get(incident.topic, frozenset()) | {number}
    return said, resting


@contextmanager
def _noting(failures: dict[str, str], part: str) -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        failures[part] = error.message


def _shared(
    link: Link, source: ClusterMetadata, target: ClusterMetadata
) -> Iterable[tuple[str, tuple[str, str, str, int, bool]]]:
    for name, topic in sorted(source.topics.items()):
        if topic.error or topic.internal or is_heartbeats_topic(name) or not admits(link, name):
            continue
        twin = target.topics.get(link.twin_of(name))
        if twin is not None and not twin.error:
            count = min(len(topic.partitions), len(twin.partitions))
            whole = len(topic.partitions) <= len(twin.partitions)
            yield name, (twin.name, topic.topic_id.hex(), twin.topic_id.hex(), count, whole)


def _read(
    cluster: KafkaCluster, partitions: list[TopicPartition], failures: dict[str, str], named: Mapping[str, str]
) -> PartitionEnds:
    """Reads all ends, or those of each readable topic. `named`: the source's name of a topic."""
    try:
        found, failed = cluster.offsets_of_each(partitions, OffsetKind.HIGH_WATERMARK)
    except KafkaError as error:
        failures.update((named[partition.topic], error.message) for partition in partitions)
        return {}
    failures.update((named[partition.topic], error.message) for partition, error in failed.items())
    return {partition: end for partition, end in found.items() if named[partition.topic] not in failures}
