"""Finds which partitions of a link can be compared now, and in which mode."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from twinshore.config.errors import KafkaError
from twinshore.config.grouping import grouped
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import Link, TopicPartition, is_heartbeats_topic, source_end
from twinshore.kafka.admin import ConfigEntry
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.metadata import NO_LEADER, TopicMetadata
from twinshore.proof.core.model import CompareMode, CompareRange
from twinshore.proof.core.partition_scan import PartitionScan, find_unreplicated_partitions, find_unreplicated_topics
from twinshore.replication.core.filters import admits
from twinshore.replication.ownership_sync import TopicHomes
from twinshore.replication.sync.core.lifecycle import (
    COMPACTED_KIND,
    CompactedTopic,
    compacted_row,
    is_compacted_policy,
    parse_compacted,
)
from twinshore.replication.topic_lineage import TopicLineage
from twinshore.state.core.values import IncidentRow, LinkStateRow, TwinRow, merge_ranges
from twinshore.state.store import Store

OR_NO_DESCRIBE_RIGHT = ", or the right to describe it is lacking"
COMPACTED_NOT_COMPARABLE = (
    "{} is compacted, or was: both sides are cleaned each in its own time, and where offsets are not the same on both,"
    " what a cleaner took cannot be told from a difference"
)


def add_offset_runs(store: Store, link: str, offset_range: CompareRange) -> CompareRange:
    """Adds the range's offset runs. Starts later where the twin's retention has removed records below the first run."""
    if offset_range.mode is not CompareMode.OFFSET_MAP:
        return offset_range
    place = link, offset_range.partition.topic, offset_range.partition.partition
    found = store.offset_runs.between(*place, offset_range.start, offset_range.end)
    start = max(offset_range.start, found[0].source) if found else offset_range.end
    runs = tuple((run.source, run.target, run.length) for run in found if source_end(run) > offset_range.start)
    return replace(offset_range, start=start, offset_runs=runs)


@dataclass(frozen=True, slots=True)
class NotCompared:
    """A topic or partition that cannot be compared, and why; without a topic, the whole link."""

    link: str
    topic: str
    partition: int
    sentence: str

    @property
    def place(self) -> str:
        """The name, for people."""
        name = f"{self.link}: {self.topic}" if self.topic else self.link
        return name if self.partition < 0 else f"{name}-{self.partition}"


@dataclass(frozen=True, slots=True)
class LinkScan:
    """What a scan found. `cleaned`: states to save of topics that are, or were, compacted."""

    looks: tuple[PartitionScan, ...]
    lacks: tuple[NotCompared, ...]
    cleaned: tuple[LinkStateRow, ...] = ()


class LinkScanner:
    """Scans one link. `way` overrides the mode of store and topic settings. `links`: all of the settings, since another
    link's twins are not this one's topics.
    """

    def __init__(
        self,
        link: Link,
        store: Store,
        source: KafkaCluster,
        target: KafkaCluster,
        mode: CompareMode | None = None,
        links: Sequence[Link] = (),
    ) -> None:
        self._link, self._store, self._source, self._target, self._mode = link, store, source, target, mode
        self._links = links or (link,)

    def look(self, topics: Iterable[str] = ()) -> LinkScan:
        """Scans these topics, or all replicated ones; without a mirror of ours, all on both sides. Reports topics that
        are replicated but not visible, or should be replicated and are not.
        """
        carried, begun = self._carried(), self._begun()
        if (its_id := self._source.cluster_id()) == self._target.cluster_id():
            same = f"{self._source.name} and {self._target.name} are the same cluster ({its_id})"
            raise KafkaError(same, hint="check the bootstrap addresses of both clusters")
        asked = set(topics)
        names = asked or {name for name in carried if admits(self._link, name)}
        every = not asked and (begun or not names)
        seen = self._source.metadata(None if every else sorted(names), refresh=True).topics
        if not names and not begun:
            names = {name for name, topic in seen.items() if not topic.internal and admits(self._link, name)}
        twins = self._target.metadata(sorted(self._link.twin_of(name) for name in names), refresh=True).topics
        lacks = list(self._lacks(sorted(names), seen, twins, carried, told=bool(asked or begun)))
        out = {(not_compared.topic, not_compared.partition) for not_compared in lacks}
        there = [name for name in sorted(names) if (name, -1) not in out and name in seen]
        there = [name for name in there if not _absent(seen, name) and not _absent(twins, self._link.twin_of(name))]
        before = self._remembered(seen)
        ways, now, hidden = self._ways(there, set(carried), set(before))
        lacks += [self._lack(name, f"its settings cannot be read: {why}") for name, why in hidden.items()]
        there = [name for name in there if name not in hidden]
        lacks += [self._lack(name, COMPACTED_NOT_COMPARABLE.format(name)) for name in there if ways[name] is None]
        partitions = [
            TopicPartition(name, number)
            for name in there
            if ways[name] is not None
            for number in range(min(len(seen[name].partitions), len(twins[self._link.twin_of(name)].partitions)))
            if (name, number) not in out
        ]
        over = {name: topic for name, topic in before.items() if name not in now and self._mode is None}
        looks = tuple(self._looks(partitions, ways, seen, twins, over))
        lacks += self._unreplicated(looks, seen, asked) if begun else ()
        return LinkScan(looks, tuple(lacks), tuple(self._to_remember(looks, before, now)))

    def _lack(self, topic: str, sentence: str, partition: int = -1) -> NotCompared:
        return NotCompared(self._link.name, topic, partition, sentence)

    def _remembered(self, seen: Mapping[str, TopicMetadata]) -> dict[str, CompactedTopic]:
        """Returns topics that were compacted, unless deleted since."""
        found = parse_compacted(self._store.link_states.of(self._link.name, COMPACTED_KIND))
        ids = {name: topic.topic_id.hex() for name, topic in seen.items()}
        return {name: topic for name, topic in found.items() if ids.get(name) == topic.source_id}

    def _to_remember(
        self, looks: Iterable[PartitionScan], before: Mapping[str, CompactedTopic], now: Collection[str]
    ) -> Iterator[LinkStateRow]:
        """Yields states to save. `now`: topics still compacted on either side. Of others the ends seen afterwards
        count.
        """
        ends: dict[str, dict[int, int]] = {}
        ids: dict[str, str] = {}
        for scan in looks:
            name = scan.partition.topic
            if name in now or name in before:
                ids[name] = scan.source_topic_id
                ends.setdefault(name, {})[scan.partition.partition] = scan.source_end
        for name, source_id in ids.items():
            old = before.get(name)
            known = dict(old.ends) if old else {}
            new = CompactedTopic(source_id, {} if name in now else {**ends[name], **known})
            if new != old:
                yield compacted_row(self._link.name, name, new, wall_ms())

    def _carried(self) -> dict[str, int]:
        """Returns replicated topics, with their known numbers of partitions."""
        found: dict[str, int] = {}
        for row in self._store.twins.active(self._link.name):
            found[row.topic] = max(found.get(row.topic, 0), row.partition + 1)
        return found

    def _begun(self) -> bool:
        """Whether a mirror has run the link: then all admitted topics should be replicated."""
        return self._store.links.identity(self._link.name) is not None or self._store.twins.count(self._link.name) > 0

    def _unreplicated(
        self, looks: Sequence[PartitionScan], seen: Mapping[str, TopicMetadata], asked: Collection[str]
    ) -> Iterator[NotCompared]:
        """Yields admitted topics and partitions that are not replicated on. Of topics asked for by name, only those
        that the link began with.
        """
        rows = self._store.incidents.rows(self._link.name, open_only=True)
        known = {row.topic for row in self._store.twins.of(self._link.name)}
        found = {
            name: (topic.topic_id.hex(), len(topic.partitions))
            for name, topic in seen.items()
            if not topic.error and not topic.internal and admits(self._link, name) and not is_heartbeats_topic(name)
        }
        admitted = known & found.keys()
        fresh = {name: one for name, one in found.items() if name not in known}
        if fresh and not asked:
            sides_of = (self._store, self._source, self._target)
            descents = TopicLineage(lambda: self._link, *sides_of, quiet=True)
            homing = TopicHomes(lambda: self._link, self._links, *sides_of, descents, notes=False)
            admitted |= homing.admitted(fresh).keys() | homing.refused.keys()
        for one in find_unreplicated_topics(self._link, admitted, known, rows):
            yield NotCompared(self._link.name, *one)
        for one in find_unreplicated_partitions(looks, rows):
            yield NotCompared(self._link.name, *one)

    def _lacks(
        self,
        names: Iterable[str],
        seen: Mapping[str, TopicMetadata],
        twins: Mapping[str, TopicMetadata],
        carried: Mapping[str, int],
        *,
        told: bool,
    ) -> Iterator[NotCompared]:
        for name in names:
            looks = ((self._source.name, name, seen), (self._target.name, self._link.twin_of(name), twins))
            away = [(place, topic) for place, topic, topics in looks if _absent(topics, topic)]
            if not away:
                most = max(carried.get(name, 0), *(len(topics[topic].partitions) for _, topic, topics in looks))
                yield from self._partition_lacks(name, most, looks)
            elif told or away[0][0] == self._source.name:
                place, topic = away[0]
                yield self._lack(name, f"there is no topic {topic} on {place}{OR_NO_DESCRIBE_RIGHT}")

    def _partition_lacks(
        self, name: str, most: int, looks: Iterable[tuple[str, str, Mapping[str, TopicMetadata]]]
    ) -> Iterator[NotCompared]:
        for place, topic, topics in looks:
            partitions = topics[topic].partitions
            for number in range(len(partitions), most):
                yield self._lack(name, f"{topic} has no partition {number} on {place}", number)
            for number in (one.partition for one in partitions if one.leader == NO_LEADER):
                yield self._lack(name, f"{topic}-{number} has no leader on {place}", number)

    def _looks(
        self,
        partitions: Sequence[TopicPartition],
        ways: Mapping[str, CompareMode | None],
        seen: Mapping[str, TopicMetadata],
        twins: Mapping[str, TopicMetadata],
        cleaned: Mapping[str, CompactedTopic],
    ) -> Iterator[PartitionScan]:
        if not partitions:
            return
        looked_ms = wall_ms()
        twin_of = {tp: TopicPartition(self._link.twin_of(tp.topic), tp.partition) for tp in partitions}
        # Before the ends: logs grow, and another process may prove more in between.
        stored = {TopicPartition(row.topic, row.partition): row for row in self._store.proofs.of(self._link.name)}
        # The target first: an exact twin is then never ahead of its source, and never starts later.
        target_starts = self._target.list_offsets(twin_of.values(), OffsetKind.EARLIEST)
        target_ends = self._target.list_offsets(twin_of.values(), OffsetKind.LAST_STABLE)
        # The mirror records drops before its progress, so read the incident log after the progress.
        offset_runs = {
            tp: self._offset_runs(tp, target_starts[twin], target_ends[twin])
            for tp, twin in twin_of.items()
            if ways[tp.topic] is CompareMode.OFFSET_MAP
        }
        twin_rows = {TopicPartition(row.topic, row.partition): row for row in self._store.twins.of(self._link.name)}
        told, last_incident_id = self._told()
        ends = self._source.list_offsets(partitions, OffsetKind.LAST_STABLE)
        highs = self._source.list_offsets(partitions, OffsetKind.HIGH_WATERMARK)
        starts = self._source.list_offsets(partitions, OffsetKind.EARLIEST)
        for tp in partitions:
            twin, mode = twin_of[tp], ways[tp.topic]
            assert mode is not None
            before = cleaned.get(tp.topic)
            if mode is CompareMode.COMPACTED and before and not before.below(tp.partition, starts[tp]):
                mode = CompareMode.EXACT  # The cleaned part is gone.
            yield PartitionScan(
                link=self._link.name,
                partition=tp,
                twin=twin.topic,
                mode=mode,
                source_start=starts[tp],
                source_end=ends[tp],
                target_end=target_ends[twin],
                source_topic_id=seen[tp.topic].topic_id.hex(),
                target_topic_id=twins[twin.topic].topic_id.hex(),
                offset_runs=offset_runs.get(tp, ()),
                stored=stored.get(tp),
                target_start=target_starts[twin],
                rows=told.get(tp, ()),
                last_incident_id=last_incident_id,
                looked_ms=looked_ms,
                dropped=find_dropped_ranges(told.get(tp, ()), twin_rows.get(tp)),
                source_high=highs[tp],
                cluster_ids=(self._source.cluster_id(), self._target.cluster_id()),
            )

    def _told(self) -> tuple[dict[TopicPartition, tuple[IncidentRow, ...]], int]:
        """Returns the incidents with offsets of single partitions, and the newest incident's id."""
        rows = self._store.incidents.rows(self._link.name)
        of_one = (row for row in rows if row.incident.partition >= 0 and row.incident.from_offset >= 0)
        found = grouped((TopicPartition(row.incident.topic, row.incident.partition), row) for row in of_one)
        return {tp: tuple(ours) for tp, ours in found.items()}, max((row.id for row in rows), default=0)

    def _ways(
        self, names: list[str], carried: set[str], before: set[str]
    ) -> tuple[dict[str, CompareMode | None], set[str], dict[str, str]]:
        """Returns each topic's mode, the topics compacted on either side now, and why that is unknown of some.
        `before`: topics once compacted.
        """
        if self._mode is not None or not names:
            return dict.fromkeys(names, self._mode), set(), {}
        settings, errors = self._source.admin.readable_settings(names)
        now = {name for name, ours in settings.items() if _compacted(ours)}
        twins = {self._link.twin_of(name): name for name in before & set(settings)}
        if twins:
            theirs, closed = self._target.admin.readable_settings(sorted(twins))
            now |= {twins[twin] for twin in closed} | {twins[twin] for twin, one in theirs.items() if _compacted(one)}
        compacted = now | before
        mapped = {topic for topic, _ in self._store.offset_runs.reached(self._link.name)}
        ways = {name: choose_compare_mode(name in mapped, name in carried, name in compacted) for name in settings}
        return ways, now, {name: error.message for name, error in errors.items()}

    def _offset_runs(self, tp: TopicPartition, start: int, end: int) -> tuple[tuple[int, int, int], ...]:
        found = self._store.offset_runs.borders(self._link.name, tp.topic, tp.partition, start, end)
        return tuple((run.source, run.target, run.length) for run in found)


def find_dropped_ranges(rows: Iterable[IncidentRow], twin: TwinRow | None) -> tuple[tuple[int, int], ...]:
    """Returns what a fresh queue did not send, in order, since the twin was made."""
    return merge_ranges(
        part
        for row in rows
        if row.incident.kind is IncidentKind.STALE_DROPPED and (twin is None or _is_of(twin, row))
        for part in row.ranges
    )


def _is_of(twin: TwinRow, row: IncidentRow) -> bool:
    """Whether the incident concerns this twin, not an earlier one. Compares clocks, which may differ, if ids are
    missing.
    """
    return row.opened_ms >= twin.created_ms if twin.last_incident_id < 0 else row.id > twin.last_incident_id


def choose_compare_mode(is_mapped: bool, is_carried: bool, is_compacted: bool) -> CompareMode | None:
    """Returns the mode; None: not comparable. Only equal offsets tell a cleaner's effect from a difference."""
    if is_carried and not is_mapped:
        return CompareMode.COMPACTED if is_compacted else CompareMode.EXACT
    if is_compacted:
        return None
    return CompareMode.OFFSET_MAP if is_mapped else CompareMode.CONTENT


def _compacted(settings: Mapping[str, ConfigEntry]) -> bool:
    policy = settings.get("cleanup.policy")
    return is_compacted_policy(policy.value if policy else None)


def _absent(topics: Mapping[str, TopicMetadata], name: str) -> bool:
    return name not in topics or bool(topics[name].error)
