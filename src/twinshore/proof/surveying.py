"""Which partitions of a link can be compared now, and in which way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from twinshore.fleet import Link, NamedPartition
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.kafka.metadata import TopicMetadata
from twinshore.mirror.plan import admits
from twinshore.proof.planning import Side
from twinshore.proof.values import Way
from twinshore.store import Store

EXTENTS_MAX = 100_000
CLEANED = (
    "{} is compacted: both sides are cleaned each in its own time, and where offsets are not the same on both, what a"
    " cleaner took cannot be told from a difference"
)


@dataclass(frozen=True, slots=True)
class Lack:
    """A topic or partition that cannot be compared, and why."""

    link: str
    topic: str
    partition: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Survey:
    sides: tuple[Side, ...]
    lacks: tuple[Lack, ...]


class Surveyor:
    """Of one link. `way` overrules what the store and the topics' settings say."""

    def __init__(
        self, link: Link, store: Store | None, source: KafkaCluster, target: KafkaCluster, way: Way | None = None
    ) -> None:
        self._link, self._store, self._source, self._target, self._way = link, store, source, target, way

    def look(self, topics: Iterable[str] = ()) -> Survey:
        """Of these topics, or of all that the link carries; of a pair that others mirror, of all on both sides."""
        carried = {row.topic for row in self._store.twins(self._link.name)} if self._store else set()
        asked = set(topics)
        seen = self._source.metadata(sorted(asked) or None, refresh=True).topics
        names = asked or {name for name, topic in seen.items() if not topic.internal and admits(self._link, name)}
        if carried and not asked:
            names &= carried
        twins = self._target.metadata(sorted(self._link.twin_of(name) for name in names), refresh=True).topics
        lacks = list(self._lacks(sorted(names), seen, twins, told=bool(asked or carried)))
        whole = {lack.topic for lack in lacks if lack.partition < 0}
        places = {
            name: min(len(seen[name].partitions), len(twins[self._link.twin_of(name)].partitions))
            for name in sorted(names)
            if name not in whole and not _absent(seen, name) and not _absent(twins, self._link.twin_of(name))
        }
        ways = self._ways(sorted(places), carried)
        told_apart = {name: count for name, count in places.items() if ways[name] is not None}
        lacks += [Lack(self._link.name, name, -1, CLEANED.format(name)) for name in places if name not in told_apart]
        return Survey(tuple(self._sides(told_apart, ways, seen, twins)), tuple(lacks))

    def _lacks(
        self, names: Iterable[str], seen: Mapping[str, TopicMetadata], twins: Mapping[str, TopicMetadata], *, told: bool
    ) -> Iterator[Lack]:
        for name in names:
            twin = self._link.twin_of(name)
            if _absent(seen, name):
                yield Lack(self._link.name, name, -1, f"there is no topic {name} on {self._source.name}")
            elif _absent(twins, twin):
                if told:
                    yield Lack(self._link.name, name, -1, f"there is no topic {twin} on {self._target.name}")
            else:
                for partition in range(len(twins[twin].partitions), len(seen[name].partitions)):
                    sentence = f"{twin} has no partition {partition} on {self._target.name}"
                    yield Lack(self._link.name, name, partition, sentence)

    def _sides(
        self,
        places: Mapping[str, int],
        ways: Mapping[str, Way | None],
        seen: Mapping[str, TopicMetadata],
        twins: Mapping[str, TopicMetadata],
    ) -> Iterator[Side]:
        parts = [NamedPartition(name, number) for name, count in places.items() for number in range(count)]
        if not parts:
            return
        twin_of = {named: NamedPartition(self._link.twin_of(named.topic), named.partition) for named in parts}
        # The target first: a true twin is then never ahead of its source.
        target_ends = self._target.list_offsets(twin_of.values(), OffsetKind.LAST_STABLE)
        ends = self._source.list_offsets(parts, OffsetKind.LAST_STABLE)
        starts = self._source.list_offsets(parts, OffsetKind.EARLIEST)
        target_starts = self._target.list_offsets(twin_of.values(), OffsetKind.EARLIEST)
        rows = self._store.proofs(self._link.name) if self._store else ()
        stored = {NamedPartition(row.topic, row.partition): row for row in rows}
        for named in parts:
            twin, way = twin_of[named], ways[named.topic]
            assert way is not None
            yield Side(
                self._link.name,
                named,
                twin.topic,
                way,
                starts[named],
                ends[named],
                target_ends[twin],
                seen[named.topic].topic_id.hex(),
                twins[twin.topic].topic_id.hex(),
                self._extents(named) if way is Way.EXTENTS else (),
                stored.get(named),
                target_starts[twin],
            )

    def _ways(self, names: list[str], carried: set[str]) -> dict[str, Way | None]:
        if self._way is not None or not names:
            return dict.fromkeys(names, self._way)
        settings = self._source.admin.topic_settings(names)
        policies = {name: ours.get("cleanup.policy") for name, ours in settings.items()}
        compacted = {name for name, policy in policies.items() if policy and "compact" in (policy.value or "")}
        mapped = {topic for topic, _ in self._store.reached(self._link.name)} if self._store else set()
        return {
            name: way_of(is_mapped=name in mapped, is_carried=name in carried, is_compacted=name in compacted)
            for name in names
        }

    def _extents(self, named: NamedPartition) -> tuple[tuple[int, int, int], ...]:
        if self._store is None:
            return ()
        found = self._store.extents(self._link.name, named.topic, named.partition, limit=EXTENTS_MAX)
        return tuple((extent.source, extent.target, extent.length) for extent in found)


def way_of(*, is_mapped: bool, is_carried: bool, is_compacted: bool) -> Way | None:
    """How a topic can be compared. None: not at all. What one side's cleaner took is told from a difference only where
    both sides have the same offsets."""
    if is_carried and not is_mapped:
        return Way.COMPACTED if is_compacted else Way.EXACT
    if is_compacted:
        return None
    return Way.EXTENTS if is_mapped else Way.CONTENT


def _absent(topics: Mapping[str, TopicMetadata], name: str) -> bool:
    return name not in topics or bool(topics[name].error)
