"""Reads a live cluster within bounded time: brokers, topics, consumer groups, and links from the store.

Nothing is changed. What cannot be read becomes a blind spot. Groups are read twice, some seconds apart, to see whether
they advance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
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
from twinshore.config.model import Cluster, Link, TopicPartition
from twinshore.config.sentences import count_phrase
from twinshore.config.settings import Settings
from twinshore.kafka.admin import ConfigEntry, read_acls
from twinshore.kafka.brokers import BrokerFeatures, PartitionReassignment, read_features, read_reassignments
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.consumer_groups import CLASSIC_TYPE, ConsumerGroups, GroupListing, read_assigned_partitions
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.metadata import ClusterMetadata, TopicMetadata
from twinshore.kafka.pool import ConnectionPool
from twinshore.kafka.protocol.access_control import Acl
from twinshore.kafka.protocol.error_codes import Code, kafka_error
from twinshore.kafka.protocol.offsets import GroupOffsets
from twinshore.kafka.protocol.record_batch import CONTROL_FLAG, BatchHeader, split_batches
from twinshore.monitoring.link_status import LinkView, read_link_views
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
OnMissed = Callable[[str, Mapping[str, KafkaError]], None]
LogBounds = tuple[dict[TopicPartition, int], dict[TopicPartition, int]]


class GroupCollector:
    """Reads groups' committed offsets and the age of their next records. `missed` and `trying` record what is
    unreadable.
    """

    def __init__(
        self, kafka: KafkaCluster, missed: OnMissed, trying: Callable[[str], AbstractContextManager[None]]
    ) -> None:
        self._kafka, self._missed, self._trying = kafka, missed, trying
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
        by_node: dict[int, list[str]] = {}
        for name, one in groups.items():
            if one.live and one.kind == CLASSIC_TYPE:
                by_node.setdefault(one.coordinator, []).append(name)
        held: dict[str, frozenset[TopicPartition]] = {}
        refused: dict[str, KafkaError] = {}
        for node, names in by_node.items():
            try:
                held |= read_assigned_partitions(self._kafka, node, names)
            except KafkaError as error:
                refused[str(node)] = error
        self._missed("members of groups at broker", refused)
        return held

    def _places(self, groups: Mapping[str, GroupListing]) -> dict[str, GroupOffsets]:
        wanted: dict[int, dict[str, None]] = {}
        for name, one in groups.items():
            wanted.setdefault(one.coordinator, {})[name] = None
        places, away = self._groups.places(wanted, {})
        self._missed("places of groups at broker", {str(node): error for node, error in away.items()})
        refused = {name: self._refused(name, one.error) for name, one in places.items() if one.error}
        self._missed("places of group", refused)
        return {name: one for name, one in places.items() if not one.error}

    def _refused(self, group: str, code: int) -> KafkaError:
        return kafka_error(code, f"{self._kafka.name}: places of group {group}", right=f"Describe on group {group}")

    def _with_ends(
        self,
        groups: Mapping[str, GroupListing],
        places: Mapping[str, GroupOffsets],
        held: Mapping[str, frozenset[TopicPartition]],
        topics: Mapping[str, TopicSnapshot],
    ) -> tuple[ConsumerGroupSnapshot, ...]:
        read = {topic for one in places.values() for topic, _ in one.places if topic in topics}
        read |= {named.topic for some in held.values() for named in some if named.topic in topics}
        parts = {topic: [TopicPartition(topic, one.number) for one in topics[topic].partitions] for topic in read}
        starts, ends = self._ends(named for some in parts.values() for named in some)
        found = []
        for name, one in sorted(places.items()):
            ours = tuple(
                GroupPosition(topic, number, place.offset, starts[named], ends[named])
                for (topic, number), place in sorted(one.places.items())
                if place.offset >= 0 and (named := TopicPartition(topic, number)) in starts and named in ends
            )
            placed = {TopicPartition(place.topic, place.partition) for place in ours}
            wanted = held.get(name, frozenset()).union(*(parts[topic] for topic in {one.topic for one in ours}))
            unplaced = tuple(
                str(named) for named in sorted(wanted - placed) if ends.get(named, 0) > starts.get(named, 0)
            )
            if ours or unplaced:
                found.append(ConsumerGroupSnapshot(name, groups[name].live, ours, unplaced))
        return tuple(found)

    def _ends(self, parts: Iterable[TopicPartition]) -> LogBounds:
        """Log starts and ends of the partitions that answer; deleted topics are no failure."""
        known = list(parts)
        if not known:
            return {}, {}
        starts, away = self._kafka.offsets_of_each(known, OffsetKind.EARLIEST)
        ends, more = self._kafka.offsets_of_each(known, OffsetKind.HIGH_WATERMARK)
        refused = {str(named): error for named, error in (away | more).items()}
        gone = Code.UNKNOWN_TOPIC_OR_PARTITION
        self._missed("the log of", {name: error for name, error in refused.items() if error.code != gone})
        return starts, ends

    def without_markers(self, groups: tuple[ConsumerGroupSnapshot, ...]) -> tuple[ConsumerGroupSnapshot, ...]:
        """Sets `markers` of positions near the log end."""
        ends: dict[tuple[TopicPartition, int], int] = {}
        for group in groups:
            for one in group.places:
                if 0 < one.offsets_left <= TRAILING_MARKERS_MAX and one.offset >= one.log_start:
                    ends[TopicPartition(one.topic, one.partition), one.offset] = one.log_end
        markers: dict[tuple[TopicPartition, int], int] = {}
        refused: dict[str, KafkaError] = {}
        for number, ((named, offset), end) in enumerate(ends.items()):
            if number >= AGED_BATCHES_MAX:
                place = f"{self._kafka.name}: {named} at {offset}"
                refused[str(named)] = KafkaError(f"{place}: more than {AGED_BATCHES_MAX} logs would have to be read")
                continue
            try:
                read = self._kafka.read_from(named, offset, bytes_max=TRAILING_MARKERS_BYTES, committed=False)
                markers[named, offset] = count_trailing_markers(
                    (one for _, one in split_batches(read.records)), offset, end
                )
            except KafkaError as error:
                refused[str(named)] = error
            except WireError:  # Damaged: the group still has to read it.
                continue
        self._missed("whether records or markers are left to a group in", refused)

        def judged(one: GroupPosition) -> GroupPosition:
            return replace(one, markers=markers.get((TopicPartition(one.topic, one.partition), one.offset), 0))

        return replace_positions(groups, judged)

    def waiting(
        self, groups: tuple[ConsumerGroupSnapshot, ...], now_ms: int, waited_ms: int
    ) -> tuple[ConsumerGroupSnapshot, ...]:
        """Sets `waits`: whether each group's next record has waited for `waited_ms`, by timestamps.

        Many clients commit periodically, so younger records may belong to a working group. One request per leader
        suffices. An earlier record with a later timestamp hides one that waits.
        """
        wanted = {
            TopicPartition(place.topic, place.partition)
            for group in groups
            for place in group.places
            if place.lag and place.offset >= place.log_start
        }
        older: dict[TopicPartition, int] = {}
        with self._trying("how long records have waited for groups"):
            older = self._older(wanted, now_ms - waited_ms)

        def judged(one: GroupPosition) -> GroupPosition:
            until = older.get(TopicPartition(one.topic, one.partition))
            return one if until is None or not one.lag else replace(one, waits=one.offset < until)

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
            for place in group.places:
                retention_ms = topics[place.topic].number("retention.ms")
                if place.lag and place.offset >= place.log_start and retention_ms is not None and retention_ms >= 0:
                    named = TopicPartition(place.topic, place.partition)
                    wanted = by_retention.setdefault(retention_ms, {})
                    wanted[named] = min(place.offset, wanted.get(named, place.offset))
        ages: dict[tuple[TopicPartition, int], int] = {}
        with self._trying("how old the records are that groups read next"):
            for retention_ms, lowest in by_retention.items():
                until_ms = now_ms - max(retention_ms - horizon_ms, int(part * retention_ms))
                gone = self._older(lowest, until_ms)
                ages |= self._ages(groups, gone, now_ms, len(ages))

        def judged(one: GroupPosition) -> GroupPosition:
            return replace(one, next_age_ms=ages.get((TopicPartition(one.topic, one.partition), one.offset)))

        return replace_positions(groups, judged)

    def _older(self, parts: Iterable[TopicPartition], than_ms: int) -> dict[TopicPartition, int]:
        """The offset below which all records of each log are older."""
        asked = list(parts)
        first, refused = self._kafka.first_since_each(asked, than_ms) if asked else ({}, {})
        self._missed("times of records in", {str(named): error for named, error in refused.items()})
        return {named: 1 << 62 if offset < 0 else offset for named, offset in first.items()}

    def _ages(
        self, groups: tuple[ConsumerGroupSnapshot, ...], gone: Mapping[TopicPartition, int], now_ms: int, read: int
    ) -> dict[tuple[TopicPartition, int], int]:
        places = ((TopicPartition(one.topic, one.partition), one) for group in groups for one in group.places)
        wanted = {
            (named, one.offset) for named, one in places if one.lag and one.log_start <= one.offset < gone.get(named, 0)
        }
        found: dict[tuple[TopicPartition, int], int] = {}
        refused: dict[str, KafkaError] = {}
        for named, offset in sorted(wanted):
            place = f"{self._kafka.name}: {named} at {offset}"
            if read + len(found) >= AGED_BATCHES_MAX:
                refused[str(named)] = KafkaError(f"{place}: more than {AGED_BATCHES_MAX} batches would have to be read")
                continue
            try:
                batch = self._kafka.read_tail_batch(named, offset)
                if batch is None:
                    refused[str(named)] = KafkaError(f"{place}: no batch has this offset")
                else:
                    found[named, offset] = now_ms - batch.max_timestamp
            except KafkaError as error:
                refused[str(named)] = error
        self._missed("the age of the next record of a group in", refused)
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


@dataclass(slots=True)
class BlindSpotCollector:
    unseen: list[BlindSpot] = field(default_factory=list)

    def note_failure(self, what: str, error: TwinshoreError) -> None:
        self.unseen.append(BlindSpot(what, error.message, error.hint))

    def missed(self, what: str, refused: Mapping[str, KafkaError]) -> None:
        """Notes similar failures as one, with their number and an example."""
        if refused:
            name, error = next(iter(refused.items()))
            these = f"{what} {name}" if len(refused) == 1 else f"{what} {name} and {len(refused) - 1} more"
            self.note_failure(these, error)

    @contextmanager
    def trying(self, what: str) -> Iterator[None]:
        try:
            yield
        except TwinshoreError as error:
            self.note_failure(what, error)


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
    eyes = BlindSpotCollector()
    with _opened(cluster, wanted.within_s) as (kafka, each):
        with kafka.errand():
            seen = kafka.metadata(None)
            told = {name: one for name, one in seen.topics.items() if one.internal or wanted.admits(name)}
            topics = _topics(kafka, told, _moves(each, seen, eyes), eyes)
            brokers, features = _brokers(each, seen, eyes)
        watching = GroupCollector(kafka, eyes.missed, eyes.trying)
        by_name = {one.name: one for one in topics}
        with kafka.errand():
            groups = watching.groups(by_name)
        at_ms = clock()
        if before is None and any(place.lag for group in groups for place in group.places):
            before = record_positions(groups), at_ms
            wait(wanted.apart_s)
            with kafka.errand():
                groups = watching.groups(by_name)
            at_ms = clock()
        with kafka.errand():
            groups = watching.waiting(watching.without_markers(groups), at_ms, wanted.waited_ms)
            groups = watching.aged(groups, by_name, at_ms, wanted.horizon_ms, wanted.part)
        _may_hide(brokers, eyes)
        found = ClusterSnapshot(
            cluster.name,
            cluster.bootstrap,
            at_ms,
            cluster_id=seen.cluster_id,
            secured=cluster.security.protocol != "PLAINTEXT",
            finalized=features.finalized,
            eligible=features.eligible,
            in_part=bool(wanted.topics),
            brokers=brokers,
            topics=topics,
            groups=groups,
            unseen=tuple(dict.fromkeys(eyes.unseen)),
        )
    return add_earlier_positions(found, *before) if before is not None else found


def collect_topic(cluster: Cluster, name: str) -> ClusterSnapshot:
    """Reads one topic and its cluster's election rules, without groups. No topic if the name is unknown."""
    eyes = BlindSpotCollector()
    with _opened(cluster, COLLECT_TIMEOUT_S) as (kafka, each), kafka.errand():
        seen = kafka.metadata([name])
        told = {one: topic for one, topic in seen.topics.items() if topic.error != Code.UNKNOWN_TOPIC_OR_PARTITION}
        topics = _topics(kafka, told, _moves(each, seen, eyes), eyes)
        brokers, features = _brokers(each, seen, eyes)
    return ClusterSnapshot(
        cluster.name,
        cluster.bootstrap,
        0,
        cluster_id=seen.cluster_id,
        finalized=features.finalized,
        eligible=features.eligible,
        in_part=True,
        brokers=brokers,
        topics=topics,
        unseen=tuple(dict.fromkeys(eyes.unseen)),
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


def _moves(
    each: KafkaCluster, seen: ClusterMetadata, eyes: BlindSpotCollector
) -> Mapping[TopicPartition, PartitionReassignment]:
    with eyes.trying("which partitions are on the move"):
        return each.at(seen.controller, "which partitions are on the move", read_reassignments)
    return {}


def _topics(
    kafka: KafkaCluster,
    told: Mapping[str, TopicMetadata],
    moves: Mapping[TopicPartition, PartitionReassignment],
    eyes: BlindSpotCollector,
) -> tuple[TopicSnapshot, ...]:
    settings: dict[str, dict[str, ConfigEntry]] = {}
    with eyes.trying(f"settings of {count_phrase(len(told), 'topic')}"):
        settings, refused = kafka.admin.readable_settings(sorted(told), TOPIC_KEYS)
        # Deleted in the meantime: no topic any more.
        eyes.missed(
            "settings of topic", {n: e for n, e in refused.items() if e.code != Code.UNKNOWN_TOPIC_OR_PARTITION}
        )
    broken = {name: KafkaError(f"{name}: error {one.error}") for name, one in told.items() if _hidden(one)}
    eyes.missed("partitions of topic", broken)
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
            PartitionSnapshot(one.partition, one.leader, one.replicas, one.isr),
            moves.get(TopicPartition(topic.name, one.partition)),
        )
        for one in topic.partitions
    )


def _moving(part: PartitionSnapshot, move: PartitionReassignment | None) -> PartitionSnapshot:
    """Restores the replicas before a reassignment; metadata lists new ones among them."""
    before = tuple(node for node in part.replicas if move is None or node not in move.adding)
    if move is None or not before:
        return part
    return replace(part, replicas=before, adding=move.adding, removing=move.removing)


def _known(settings: Mapping[str, ConfigEntry] | None) -> Mapping[str, ConfigValue] | None:
    if settings is None:
        return None
    return {name: ConfigValue(one.value, one.own) for name, one in settings.items() if one.value is not None}


def _brokers(
    each: KafkaCluster, seen: ClusterMetadata, eyes: BlindSpotCollector
) -> tuple[tuple[BrokerSnapshot, ...], BrokerFeatures]:
    """Reads each broker alone: only the broker knows its settings, and a silent one must not block others.

    Features are those of the highest finalized level, since a new broker may lag.
    """
    found: list[BrokerSnapshot] = []
    told = BrokerFeatures(0, 0)
    refused: dict[str, KafkaError] = {}
    for node, where in sorted(seen.brokers.items()):
        broker = BrokerSnapshot(node, where.rack or "")
        with eyes.trying(f"the version of broker {node}"):
            features = each.at(node, f"versions of broker {node}", read_features)
            broker = replace(broker, supports=features.supports)
            told = max(told, features, key=lambda one: (one.finalized, one.eligible))
        try:
            broker = replace(broker, settings=_known(each.admin.broker_settings(node, BROKER_KEYS)))
        except KafkaError as error:
            refused[str(node)] = error
        found.append(broker)
    eyes.missed("settings of broker", refused)
    return tuple(found), told


def _may_hide(brokers: Sequence[BrokerSnapshot], eyes: BlindSpotCollector) -> None:
    """Kafka silently omits from its lists what a user may not describe."""
    if any(one.says("authorizer.class.name") for one in brokers):
        why = "the cluster has an authorizer, and Kafka leaves out of its lists what a user may not describe"
        hint = "advise as a user with Describe on all topics, on all groups and on the cluster"
        eyes.unseen.append(BlindSpot("whether all topics and groups were told", why, hint))


LINK_TIMEOUT_S = 5.0


def collect_links(
    cluster: str, settings: Settings, store: Store, *, clock: Callable[[], int], eyes: BlindSpotCollector
) -> tuple[LinkSnapshot, ...]:
    """Links whose source is this cluster, without topics whose home is elsewhere."""
    settings = settings.with_links(load_links(settings, store).links)
    found, shared = [], one_shot_connections(ADVISE_CLIENT_ID)
    for link in settings.links:
        if link.source != cluster:
            continue
        (view,) = read_link_views(store, settings, [link.name], clock=clock, topics=True, pool=shared.pool)
        away = homes_elsewhere(link, store.homes.of(pair_name(link)))
        topics = [one.topic for one in view.topics if one.topic not in away]
        compared = _compared(link, settings, store, topics, eyes, shared) if topics else TwinComparison()
        found.append(_seen(link, settings, view, topics, compared, eyes))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class TwinComparison:
    """`differs`: by topic, the twin's settings and the expected ones. The rest as in `LinkSnapshot`."""

    differs: Mapping[str, tuple[tuple[str, str | None, str | None], ...]] = field(default_factory=dict)
    lacks: tuple[Acl, ...] = ()
    left: tuple[Acl, ...] = ()
    open: bool = False


def _compared(
    link: Link, settings: Settings, store: Store, topics: list[str], eyes: BlindSpotCollector, shared: SharedConnections
) -> TwinComparison:
    found = TwinComparison()
    ends = LinkClients(link, settings, patience_s=LINK_TIMEOUT_S, shared=shared)
    with eyes.trying(f"settings of twins of {link.name}"), ends:
        now = effective_link(link, store.controls.of(link.name)).link
        comparing = ClusterComparison(now, ends.source, ends.target, store)
        plan = comparing.settings(topics)
        for name, why in plan.silent.items():
            eyes.unseen.append(BlindSpot(f"settings of {name} for {link.name}", why))
        differs = {
            topic: tuple((name, before, after) for name, (before, after) in changes.items())
            for topic, changes in plan.wanted.items()
        }
        found = TwinComparison(differs)
        with eyes.trying(f"ACLs of twins of {link.name}"):
            found = _with_rights(found, comparing, topics, eyes)
    return found


def _with_rights(
    found: TwinComparison, comparing: ClusterComparison, topics: list[str], eyes: BlindSpotCollector
) -> TwinComparison:
    """Compares ACLs as `mirror plan` does, even if not synced. An ACL that waits for a switch is not missing."""
    name = comparing.link.name
    theirs = read_acls(comparing.source)
    if theirs is None:
        return found
    ours = read_acls(comparing.target)
    if ours is None:
        return replace(found, open=True)
    sight = comparing.acls(theirs, ours, topics, comparing.store.link_states.of(name, ACL_WRITTEN_KIND))
    if sight.reason:
        eyes.unseen.append(BlindSpot(f"whether ACLs of {name} are the same on both sides", sight.reason))
    return replace(found, lacks=sight.plan.create, left=sight.plan.remove)


def _seen(
    link: Link,
    settings: Settings,
    view: LinkView,
    topics: list[str],
    compared: TwinComparison,
    eyes: BlindSpotCollector,
) -> LinkSnapshot:
    if view.says_of_lag:
        eyes.unseen.append(BlindSpot(f"how far {link.name} is behind", view.says_of_lag))
    target = settings.cluster(link.target)
    twins = tuple(
        TwinSnapshot(
            one.topic, link.twin_of(one.topic), one.lag_records, one.stopped, compared.differs.get(one.topic, ())
        )
        for one in view.topics
        if one.topic in topics
    )
    secured = target.security.protocol != "PLAINTEXT"
    incidents = tuple(row.incident.sentence for row in view.incidents)
    return LinkSnapshot(
        link.name,
        target.bootstrap,
        secured,
        view.runs,
        view.says,
        twins,
        incidents,
        compared.lacks,
        compared.left,
        compared.open,
    )
