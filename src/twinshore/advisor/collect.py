"""Reads a live cluster within bounded time: brokers, topics, consumer groups, and links from the store.

Nothing is changed. What cannot be read becomes a blind spot. Groups are read twice, some seconds apart, to see whether
they advance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

from twinshore.advisor.core.advice_report import RecordedPosition, add_earlier_positions, record_positions
from twinshore.advisor.core.model import (
    BlindSpot,
    BrokerSnapshot,
    ClusterSnapshot,
    ConfigValue,
    ConsumerGroupSnapshot,
    GroupPosition,
    LinkSnapshot,
    PartitionSnapshot,
    TopicSnapshot,
    TwinSnapshot,
    replace_positions,
)
from twinshore.config.errors import KafkaError, TwinshoreError, WireError
from twinshore.config.frozen import ADVISE_CLIENT_ID
from twinshore.config.grouping import grouped
from twinshore.config.model import Cluster, Link, TopicPartition
from twinshore.config.sentences import count_phrase
from twinshore.config.settings import Settings
from twinshore.kafka.admin import ConfigEntry, read_acls
from twinshore.kafka.brokers import BrokerFeatures, PartitionReassignment, read_features, read_reassignments
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.consumer_groups import (
    CLASSIC_TYPE,
    ConsumerGroups,
    GroupListing,
    group_by_coordinator,
    read_assigned_partitions,
)
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.metadata import ClusterMetadata, TopicMetadata
from twinshore.kafka.pool import ConnectionPool
from twinshore.kafka.protocol.error_codes import Code, kafka_error
from twinshore.kafka.protocol.offsets import GroupOffsets
from twinshore.kafka.protocol.record_batch import CONTROL_FLAG, BatchHeader, split_batches
from twinshore.monitoring.link_status import read_link_views
from twinshore.replication.core.link_config import effective_link
from twinshore.replication.core.ownership import homes_elsewhere, pair_name
from twinshore.replication.links import load_links
from twinshore.replication.sync.cluster_comparison import ClusterComparison
from twinshore.replication.sync.core.decisions import ACL_WRITTEN_KIND
from twinshore.runtime.endpoints import LinkClients, SharedConnections, one_shot_connections
from twinshore.state.store import Store

# At most so many batches are read for their age. Few records are close to retention.
AGED_BATCHES_MAX = 500
# A log's end of so few offsets may hold only markers, as exactly-once applications leave them.
TRAILING_MARKERS_MAX, TRAILING_MARKERS_BYTES = 100, 64 * 1024
LogBounds = tuple[dict[TopicPartition, int], dict[TopicPartition, int]]


@dataclass(slots=True)
class BlindSpotCollector:
    blind_spots: list[BlindSpot] = field(default_factory=list)

    def missed(self, what: str, refused: Mapping[str, KafkaError]) -> None:
        """Notes similar failures as one, with their number and an example."""
        if refused:
            name, error = next(iter(refused.items()))
            these = f"{what} {name}" if len(refused) == 1 else f"{what} {name} and {len(refused) - 1} more"
            self.blind_spots.append(BlindSpot(these, error.message, error.hint))

    @contextmanager
    def trying(self, what: str) -> Iterator[None]:
        try:
            yield
        except TwinshoreError as error:
            self.blind_spots.append(BlindSpot(what, error.message, error.hint))

    def distinct(self) -> tuple[BlindSpot, ...]:
        return tuple(dict.fromkeys(self.blind_spots))


class GroupCollector:
    """Reads groups' committed offsets and the age of their next records."""

    def __init__(self, kafka: KafkaCluster, blind_spots: BlindSpotCollector) -> None:
        self._kafka, self._missed, self._trying = kafka, blind_spots.missed, blind_spots.trying
        self._groups = ConsumerGroups(kafka)

    def groups(self, topics: Mapping[str, TopicSnapshot]) -> tuple[ConsumerGroupSnapshot, ...]:
        with self._trying("consumer groups"):
            listed = self._groups.listed()
            self._missed("groups of broker", {str(node): error for node, error in listed.away.items()})
            groups = {name: one for name, one in listed.groups.items() if one.reads_by_offsets}
            return self._with_ends(groups, self._places(groups), self._held(groups), topics)
        return ()

    def _held(self, groups: Mapping[str, GroupListing]) -> dict[str, frozenset[TopicPartition]]:
        """Partitions assigned to members, which also reveals groups that have committed nothing yet."""
        classic = (item for item in groups.items() if item[1].live and item[1].kind == CLASSIC_TYPE)
        by_node = grouped((one.coordinator, name) for name, one in classic)
        held: dict[str, frozenset[TopicPartition]] = {}
        errors: dict[str, KafkaError] = {}
        for node, names in by_node.items():
            try:
                held |= read_assigned_partitions(self._kafka, node, names)
            except KafkaError as error:
                errors[str(node)] = error
        self._missed("members of groups at broker", errors)
        return held

    def _places(self, groups: Mapping[str, GroupListing]) -> dict[str, GroupOffsets]:
        coordinators = {name: one.coordinator for name, one in groups.items()}
        places, away = self._groups.places(group_by_coordinator(coordinators), {})
        self._missed("committed offsets of groups at broker", {str(node): error for node, error in away.items()})
        errors = {name: self._refused(name, one.error) for name, one in places.items() if one.error}
        self._missed("committed offsets of group", errors)
        return {name: one for name, one in places.items() if not one.error}

    def _refused(self, group: str, code: int) -> KafkaError:
        return kafka_error(
            code, f"{self._kafka.name}: committed offsets of group {group}", right=f"Describe on group {group}"
        )

    def _with_ends(
        self,
        groups: Mapping[str, GroupListing],
        places: Mapping[str, GroupOffsets],
        held: Mapping[str, frozenset[TopicPartition]],
        topics: Mapping[str, TopicSnapshot],
    ) -> tuple[ConsumerGroupSnapshot, ...]:
        read = {topic for one in places.values() for topic, _ in one.places if topic in topics}
        read |= {partition.topic for some in held.values() for partition in some if partition.topic in topics}
        parts = {topic: [TopicPartition(topic, tp.number) for tp in topics[topic].partitions] for topic in read}
        starts, ends = self._ends(partition for some in parts.values() for partition in some)
        found = []
        for name, one in sorted(places.items()):
            ours = tuple(
                GroupPosition(topic, number, place.offset, starts[partition], ends[partition])
                for (topic, number), place in sorted(one.places.items())
                if place.offset >= 0 and (partition := TopicPartition(topic, number)) in starts and partition in ends
            )
            placed = {position.topic_partition for position in ours}
            partitions = held.get(name, frozenset()).union(
                *(parts[topic] for topic in {position.topic for position in ours})
            )
            unplaced = tuple(
                str(partition)
                for partition in sorted(partitions - placed)
                if ends.get(partition, 0) > starts.get(partition, 0)
            )
            if ours or unplaced:
                found.append(ConsumerGroupSnapshot(name, groups[name].live, ours, unplaced))
        return tuple(found)

    def _ends(self, parts: Iterable[TopicPartition]) -> LogBounds:
        """Log starts and ends of the partitions that answer; deleted topics are no failure."""
        partitions = list(parts)
        if not partitions:
            return {}, {}
        starts, away = self._kafka.offsets_of_each(partitions, OffsetKind.EARLIEST)
        ends, more = self._kafka.offsets_of_each(partitions, OffsetKind.HIGH_WATERMARK)
        errors = {str(partition): error for partition, error in (away | more).items()}
        gone = Code.unknown_topic_or_partition
        self._missed("the log of", {name: error for name, error in errors.items() if error.code != gone})
        return starts, ends

    def without_markers(self, groups: tuple[ConsumerGroupSnapshot, ...]) -> tuple[ConsumerGroupSnapshot, ...]:
        """Sets `markers` of positions near the log end."""
        ends: dict[tuple[TopicPartition, int], int] = {}
        for group in groups:
            for position in group.places:
                if 0 < position.offsets_left <= TRAILING_MARKERS_MAX and position.offset >= position.log_start:
                    ends[position.topic_partition, position.offset] = position.log_end
        markers: dict[tuple[TopicPartition, int], int] = {}
        errors: dict[str, KafkaError] = {}
        for number, ((partition, offset), end) in enumerate(ends.items()):
            if number >= AGED_BATCHES_MAX:
                place = f"{self._kafka.name}: {partition} at {offset}"
                errors[str(partition)] = KafkaError(f"{place}: more than {AGED_BATCHES_MAX} logs would have to be read")
                continue
            try:
                read = self._kafka.read_from(partition, offset, bytes_max=TRAILING_MARKERS_BYTES, committed=False)
                markers[partition, offset] = count_trailing_markers(
                    (one for _, one in split_batches(read.records)), offset, end
                )
            except KafkaError as error:
                errors[str(partition)] = error
            except WireError:  # Damaged: the group still has to read it.
                continue
        self._missed("whether records or markers are left to a group in", errors)

        def judged(position: GroupPosition) -> GroupPosition:
            return replace(position, markers=markers.get((position.topic_partition, position.offset), 0))

        return replace_positions(groups, judged)

    def waiting(
        self, groups: tuple[ConsumerGroupSnapshot, ...], now_ms: int, waited_ms: int
    ) -> tuple[ConsumerGroupSnapshot, ...]:
        """Sets `waits`: whether each group's next record has waited for `waited_ms`, by timestamps.

        Many clients commit periodically, so younger records may belong to a working group. One request per leader
        suffices. An earlier record with a later timestamp hides one that waits.
        """
        partitions = {
            position.topic_partition
            for group in groups
            for position in group.places
            if position.lag and position.offset >= position.log_start
        }
        older: dict[TopicPartition, int] = {}
        with self._trying("how long records have waited for groups"):
            older = self._older(partitions, now_ms - waited_ms)

        def judged(position: GroupPosition) -> GroupPosition:
            until = older.get(position.topic_partition)
            return position if until is None or not position.lag else replace(position, waits=position.offset < until)

        return replace_positions(groups, judged)

    def aged(
        self,
        groups: tuple[ConsumerGroupSnapshot, ...],
        topics: Mapping[str, TopicSnapshot],
        now_ms: int,
        horizon_ms: int,
        part: float,
    ) -> tuple[ConsumerGroupSnapshot, ...]:
        """Sets `next_age_ms` of unread records that retention reaches within the horizon and that are past `part` of
        retention.

        One request per leader finds them; then each batch is read.
        """
        by_retention: dict[int, dict[TopicPartition, int]] = {}
        for group in groups:
            for position in group.places:
                retention_ms = topics[position.topic].number("retention.ms")
                if (
                    position.lag
                    and position.offset >= position.log_start
                    and retention_ms is not None
                    and retention_ms >= 0
                ):
                    partition = position.topic_partition
                    wanted = by_retention.setdefault(retention_ms, {})
                    wanted[partition] = min(position.offset, wanted.get(partition, position.offset))
        ages: dict[tuple[TopicPartition, int], int] = {}
        with self._trying("how old the records are that groups read next"):
            for retention_ms, lowest in by_retention.items():
                until_ms = now_ms - max(retention_ms - horizon_ms, int(part * retention_ms))
                gone = self._older(lowest, until_ms)
                ages |= self._ages(groups, gone, now_ms, len(ages))

        def judged(position: GroupPosition) -> GroupPosition:
            return replace(position, next_age_ms=ages.get((position.topic_partition, position.offset)))

        return replace_positions(groups, judged)

    def _older(self, parts: Iterable[TopicPartition], than_ms: int) -> dict[TopicPartition, int]:
        """The offset below which all records of each log are older."""
        partitions = list(parts)
        first, refused = self._kafka.first_since_each(partitions, than_ms) if partitions else ({}, {})
        self._missed("times of records in", {str(partition): error for partition, error in refused.items()})
        return {partition: 1 << 62 if offset < 0 else offset for partition, offset in first.items()}

    def _ages(
        self, groups: tuple[ConsumerGroupSnapshot, ...], gone: Mapping[TopicPartition, int], now_ms: int, read: int
    ) -> dict[tuple[TopicPartition, int], int]:
        places = ((position.topic_partition, position) for group in groups for position in group.places)
        wanted = {
            (partition, position.offset)
            for partition, position in places
            if position.lag and position.log_start <= position.offset < gone.get(partition, 0)
        }
        found: dict[tuple[TopicPartition, int], int] = {}
        errors: dict[str, KafkaError] = {}
        for partition, offset in sorted(wanted):
            place = f"{self._kafka.name}: {partition} at {offset}"
            if read + len(found) >= AGED_BATCHES_MAX:
                errors[str(partition)] = KafkaError(
                    f"{place}: more than {AGED_BATCHES_MAX} batches would have to be read"
                )
                continue
            try:
                batch = self._kafka.read_tail_batch(partition, offset)
                if batch is None:
                    errors[str(partition)] = KafkaError(f"{place}: no batch has this offset")
                else:
                    found[partition, offset] = now_ms - batch.max_timestamp
            except KafkaError as error:
                errors[str(partition)] = error
        self._missed("the age of the next record of a group in", errors)
        return found


def count_trailing_markers(headers: Iterable[BatchHeader], offset: int, end: int) -> int:
    """Counts transaction markers' offsets from `offset` to the log's end."""
    return sum(
        min(one.last_offset + 1, end) - max(one.base_offset, offset)
        for one in headers
        if one.attributes & CONTROL_FLAG and one.last_offset >= offset and one.base_offset < end
    )


# A broker that hangs takes no longer than this.
BROKER_TIMEOUT_S = 3.0
REQUEST_TIMEOUT_S = 5.0
COLLECT_TIMEOUT_S = 60.0
TOPIC_KEYS = (
    "cleanup.policy",
    "flush.messages",
    "flush.ms",
    "max.message.bytes",
    "min.insync.replicas",
    "retention.ms",
    "unclean.leader.election.enable",
)
BROKER_KEYS = (
    "authorizer.class.name",
    "auto.create.topics.enable",
    "default.replication.factor",
    "min.insync.replicas",
    "offsets.retention.minutes",
    "offsets.topic.replication.factor",
    "producer.id.expiration.ms",
    "replica.fetch.max.bytes",
    "transaction.max.timeout.ms",
    "transaction.state.log.replication.factor",
    "transactional.id.expiration.ms",
)


@dataclass(frozen=True, slots=True)
class CollectScope:
    """`topics`: regular expressions, none for all. `apart_s`: time between both readings of groups. `horizon_ms`: how
    far ahead retention counts, for records that have used `part` of retention. `waited_ms`: how long a stuck group's
    next record has waited. `within_s`: limit of the whole collection.
    """

    topics: tuple[str, ...] = ()
    apart_s: float = 10.0
    horizon_ms: int = 24 * 3_600_000
    part: float = 0.25
    waited_ms: int = 120_000
    within_s: float = COLLECT_TIMEOUT_S

    def admits(self, topic: str) -> bool:
        return not self.topics or any(re.fullmatch(one, topic) for one in self.topics)


def collect_cluster(
    cluster: Cluster,
    wanted: CollectScope,
    *,
    clock: Callable[[], int],
    wait: Callable[[float], None],
    before: tuple[Sequence[RecordedPosition], int] | None = None,
) -> ClusterSnapshot:
    """Reads the cluster now. Raises KafkaError if no broker answers.

    `clock` returns ms; `wait` sleeps between both readings of groups. `before`: positions and time of an earlier
    reading, which replaces the first of the two.
    """
    blind_spots = BlindSpotCollector()
    with _opened(cluster, wanted.within_s) as (kafka, each):
        with kafka.errand():
            metadata = kafka.metadata(None)
            told = {name: topic for name, topic in metadata.topics.items() if topic.internal or wanted.admits(name)}
            snapshot = _without_groups(cluster, kafka, each, metadata, told, blind_spots)
        watching = GroupCollector(kafka, blind_spots)
        by_name = {topic.name: topic for topic in snapshot.topics}
        with kafka.errand():
            groups = watching.groups(by_name)
        at_ms = clock()
        if before is None and any(position.lag for group in groups for position in group.places):
            before = record_positions(groups), at_ms
            wait(wanted.apart_s)
            with kafka.errand():
                groups = watching.groups(by_name)
            at_ms = clock()
        with kafka.errand():
            groups = watching.waiting(watching.without_markers(groups), at_ms, wanted.waited_ms)
            groups = watching.aged(groups, by_name, at_ms, wanted.horizon_ms, wanted.part)
        _may_hide(snapshot.brokers, blind_spots)
    found = replace(snapshot, at_ms=at_ms, in_part=bool(wanted.topics), groups=groups, unseen=blind_spots.distinct())
    return add_earlier_positions(found, *before) if before is not None else found


def collect_topic(cluster: Cluster, name: str) -> ClusterSnapshot:
    """Reads one topic and its cluster's election rules, without groups. No topic if the name is unknown."""
    blind_spots = BlindSpotCollector()
    with _opened(cluster, COLLECT_TIMEOUT_S) as (kafka, each), kafka.errand():
        metadata = kafka.metadata([name])
        told = {one: topic for one, topic in metadata.topics.items() if topic.error != Code.unknown_topic_or_partition}
        snapshot = _without_groups(cluster, kafka, each, metadata, told, blind_spots)
    return replace(snapshot, unseen=blind_spots.distinct())


def _without_groups(
    cluster: Cluster,
    kafka: KafkaCluster,
    each: KafkaCluster,
    metadata: ClusterMetadata,
    told: Mapping[str, TopicMetadata],
    blind_spots: BlindSpotCollector,
) -> ClusterSnapshot:
    """The brokers and these topics, without a time."""
    moves: Mapping[TopicPartition, PartitionReassignment] = {}
    with blind_spots.trying("which partitions are on the move"):
        moves = each.at(metadata.controller, "which partitions are on the move", read_reassignments)
    topics = _topics(kafka, told, moves, blind_spots)
    brokers, features = _brokers(each, metadata, blind_spots)
    return ClusterSnapshot(
        cluster.name,
        cluster.bootstrap,
        0,
        cluster_id=metadata.cluster_id,
        secured=cluster.security.protocol != "PLAINTEXT",
        finalized=features.finalized,
        eligible=features.eligible,
        in_part=True,
        brokers=brokers,
        topics=topics,
    )


@contextmanager
def _opened(cluster: Cluster, patience_s: float) -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    """For what the whole cluster tells, and for what each broker tells by itself."""
    ways = {"client_id": ADVISE_CLIENT_ID, "pool": ConnectionPool()}
    with (
        closing(KafkaCluster(cluster, patience_s=patience_s, call_s=REQUEST_TIMEOUT_S, **ways)) as kafka,  # type: ignore[arg-type]
        closing(KafkaCluster(cluster, patience_s=BROKER_TIMEOUT_S, call_s=BROKER_TIMEOUT_S, **ways)) as each,  # type: ignore[arg-type]
    ):
        yield kafka, each


def _topics(
    kafka: KafkaCluster,
    told: Mapping[str, TopicMetadata],
    moves: Mapping[TopicPartition, PartitionReassignment],
    blind_spots: BlindSpotCollector,
) -> tuple[TopicSnapshot, ...]:
    settings: dict[str, dict[str, ConfigEntry]] = {}
    with blind_spots.trying(f"settings of {count_phrase(len(told), 'topic')}"):
        settings, errors = kafka.admin.readable_settings(sorted(told), TOPIC_KEYS)
        # Deleted in the meantime: no topic any more.
        blind_spots.missed(
            "settings of topic", {n: e for n, e in errors.items() if e.code != Code.unknown_topic_or_partition}
        )
    broken = {name: KafkaError(f"{name}: error {topic.error}") for name, topic in told.items() if _hidden(topic)}
    blind_spots.missed("partitions of topic", broken)
    return tuple(
        TopicSnapshot(name, _partitions(told[name], moves), _known(settings.get(name)), told[name].internal)
        for name in sorted(told)
        if name not in broken
    )


def _hidden(topic: TopicMetadata) -> bool:
    return bool(topic.error) and not topic.partitions


def _partitions(
    topic: TopicMetadata, moves: Mapping[TopicPartition, PartitionReassignment]
) -> tuple[PartitionSnapshot, ...]:
    return tuple(
        _moving(
            PartitionSnapshot(partition.partition, partition.leader, partition.replicas, partition.isr),
            moves.get(TopicPartition(topic.name, partition.partition)),
        )
        for partition in topic.partitions
    )


def _moving(partition: PartitionSnapshot, move: PartitionReassignment | None) -> PartitionSnapshot:
    """Restores the replicas before a reassignment; metadata lists new ones among them."""
    before = tuple(node for node in partition.replicas if move is None or node not in move.adding)
    if move is None or not before:
        return partition
    return replace(partition, replicas=before, adding=move.adding, removing=move.removing)


def _known(settings: Mapping[str, ConfigEntry] | None) -> Mapping[str, ConfigValue] | None:
    if settings is None:
        return None
    return {name: ConfigValue(entry.value, entry.own) for name, entry in settings.items() if entry.value is not None}


def _brokers(
    each: KafkaCluster, metadata: ClusterMetadata, blind_spots: BlindSpotCollector
) -> tuple[tuple[BrokerSnapshot, ...], BrokerFeatures]:
    """Reads each broker alone: only the broker knows its settings, and a silent one must not block others.

    Features are those of the highest finalized level, since a new broker may lag.
    """
    found: list[BrokerSnapshot] = []
    told = BrokerFeatures(0, 0)
    errors: dict[str, KafkaError] = {}
    for node, where in sorted(metadata.brokers.items()):
        broker = BrokerSnapshot(node, where.rack or "")
        with blind_spots.trying(f"the version of broker {node}"):
            features = each.at(node, f"versions of broker {node}", read_features)
            broker = replace(broker, supports=features.supports)
            told = max(told, features, key=lambda one: (one.finalized, one.eligible))
        try:
            broker = replace(broker, settings=_known(each.admin.broker_settings(node, BROKER_KEYS)))
        except KafkaError as error:
            errors[str(node)] = error
        found.append(broker)
    blind_spots.missed("settings of broker", errors)
    return tuple(found), told


def _may_hide(brokers: Sequence[BrokerSnapshot], blind_spots: BlindSpotCollector) -> None:
    """Kafka silently omits from its lists what a user may not describe."""
    if any(broker.says("authorizer.class.name") for broker in brokers):
        why = "the cluster has an authorizer, and Kafka leaves out of its lists what a user may not describe"
        hint = "advise as a user with Describe on all topics, on all groups and on the cluster"
        blind_spots.blind_spots.append(BlindSpot("whether all topics and groups were told", why, hint))


LINK_TIMEOUT_S = 5.0


def collect_links(
    cluster: str, settings: Settings, store: Store, *, clock: Callable[[], int], blind_spots: BlindSpotCollector
) -> tuple[LinkSnapshot, ...]:
    """Links whose source is this cluster, without topics whose home is elsewhere."""
    settings = settings.with_links(load_links(settings, store).links)
    found, shared = [], one_shot_connections(ADVISE_CLIENT_ID)
    for link in settings.links:
        if link.source != cluster:
            continue
        (view,) = read_link_views(store, settings, [link.name], clock=clock, topics=True, pool=shared.pool)
        away = homes_elsewhere(link, store.homes.of(pair_name(link)))
        topics = [topic for topic in view.topics if topic.topic not in away]
        target = settings.cluster(link.target)
        snapshot = LinkSnapshot(
            link.name,
            target.bootstrap,
            target.security.protocol != "PLAINTEXT",
            view.runs,
            view.says,
            tuple(
                TwinSnapshot(topic.topic, link.twin_of(topic.topic), topic.lag_records, topic.stopped)
                for topic in topics
            ),
            tuple(row.incident.sentence for row in view.incidents),
        )
        found.append(_compared(snapshot, link, settings, store, blind_spots, shared) if topics else snapshot)
        if view.says_of_lag:
            blind_spots.blind_spots.append(BlindSpot(f"how far {link.name} is behind", view.says_of_lag))
    return tuple(found)


def _compared(
    snapshot: LinkSnapshot,
    link: Link,
    settings: Settings,
    store: Store,
    blind_spots: BlindSpotCollector,
    shared: SharedConnections,
) -> LinkSnapshot:
    """Adds what differs between the topics and their twins, as far as both clusters answer."""
    topics = [twin.topic for twin in snapshot.twins]
    clients = LinkClients(link, settings, patience_s=LINK_TIMEOUT_S, shared=shared)
    with blind_spots.trying(f"settings of twins of {link.name}"), clients:
        now = effective_link(link, store.controls.of(link.name)).link
        comparison = ClusterComparison(now, clients.source, clients.target, store)
        plan = comparison.settings(topics)
        for name, why in plan.silent.items():
            blind_spots.blind_spots.append(BlindSpot(f"settings of {name} for {link.name}", why))
        twins = [
            replace(twin, differs=tuple((name, *change) for name, change in plan.wanted.get(twin.topic, {}).items()))
            for twin in snapshot.twins
        ]
        snapshot = replace(snapshot, twins=tuple(twins))
        with blind_spots.trying(f"ACLs of twins of {link.name}"):
            snapshot = _with_rights(snapshot, comparison, topics, blind_spots)
    return snapshot


def _with_rights(
    snapshot: LinkSnapshot, comparison: ClusterComparison, topics: list[str], blind_spots: BlindSpotCollector
) -> LinkSnapshot:
    """Compares ACLs as `mirror plan` does, even if not synced. An ACL that waits for a switch is not missing."""
    name = comparison.link.name
    theirs = read_acls(comparison.source)
    if theirs is None:
        return snapshot
    ours = read_acls(comparison.target)
    if ours is None:
        return replace(snapshot, open=True)
    sight = comparison.acls(theirs, ours, topics, comparison.store.link_states.of(name, ACL_WRITTEN_KIND))
    if sight.reason:
        blind_spots.blind_spots.append(BlindSpot(f"whether ACLs of {name} are the same on both sides", sight.reason))
    return replace(snapshot, lacks=sight.plan.create, left=sight.plan.remove)
