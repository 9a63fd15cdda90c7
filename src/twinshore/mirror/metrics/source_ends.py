"""Where logs end, or begin, now, as far as their cluster says."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from twinshore.fleet import KafkaError, Link, NamedPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.errors import Code
from twinshore.kafka.questions import OffsetKind
from twinshore.links.filters import admits
from twinshore.mirror.incidents.kinds import rests
from twinshore.store import IncidentKind, Store

# So long topics are asked for one by one after all together could not be answered for; the others stay unseen.
ONE_BY_ONE_S = 6.0


@dataclass(frozen=True, slots=True)
class Ends:
    """`gone`: topics that the source does not have. `mute`: those that it does not answer for now."""

    of: dict[NamedPartition, int]
    gone: frozenset[str] = frozenset()
    mute: frozenset[str] = frozenset()

    def without(self, topics: Collection[str]) -> Ends:
        """These topics count as mute: what they end at says nothing of their twins."""
        found = {named: end for named, end in self.of.items() if named.topic not in topics}
        return Ends(found, self.gone, self.mute | {named.topic for named in self.of if named.topic in topics})


def made_again(store: Store, link: str) -> frozenset[str]:
    """Topics of which the ledger says that they are others now than their twins were made of."""
    rows = store.ledger.rows(link, open_only=True)
    return frozenset(row.incident.topic for row in rows if row.incident.kind is IncidentKind.RECREATED_TOPIC)


def refused_topics(store: Store, link: str) -> frozenset[str]:
    """Topics of which the ledger says that the link refuses them, and that it never began with."""
    rows = [row.incident for row in store.ledger.rows(link, open_only=True)]
    found = {one.topic for one in rows if one.topic and one.partition < 0 and rests(one.kind, one.policy)}
    return frozenset(found - store.twins.begun(link, found)) if found else frozenset()


def starts_of(source: KafkaCluster, topics: Collection[str]) -> dict[NamedPartition, int]:
    """Where the logs of these topics begin: nothing of them has crossed."""
    if not topics:
        return {}
    seen = source.metadata(sorted(topics), refresh=True).topics
    parts = [NamedPartition(name, part.partition) for name, topic in seen.items() for part in topic.partitions]
    found, _ = source.offsets_of_each(parts, OffsetKind.EARLIEST)
    return {named: found.get(named, 0) for named in parts}


def admitted(link: Link, reached: Mapping[NamedPartition, int]) -> dict[NamedPartition, int]:
    """The partitions of topics that the link's filters admit; each topic is asked about once."""
    topics = {topic for topic in {named.topic for named in reached} if admits(link, topic)}
    return {named: at for named, at in reached.items() if named.topic in topics}


def still_there(source: KafkaCluster, parts: Collection[NamedPartition]) -> tuple[NamedPartition, ...]:
    """Those whose topic the source has: about one that is deleted every other question takes seconds."""
    topics = sorted({named.topic for named in parts})
    seen = source.metadata(topics, refresh=True).topics
    gone = {one for one in topics if one not in seen or seen[one].error == Code.UNKNOWN_TOPIC_OR_PARTITION}
    return tuple(named for named in parts if named.topic not in gone)


def source_ends(
    source: KafkaCluster, parts: Collection[NamedPartition], which: OffsetKind = OffsetKind.HIGH_WATERMARK
) -> Ends:
    """This end of each log; KafkaError where nobody answers. One topic's trouble leaves it out, and no other."""
    if not parts:
        # Whether it is there at all.
        source.metadata([], refresh=True)
        return Ends({})
    found, failed = source.offsets_of_each(parts, which)
    unknown = {named for named, error in failed.items() if error.code == Code.UNKNOWN_TOPIC_OR_PARTITION}
    mute = frozenset(named.topic for named in failed.keys() - unknown)
    doubtful = _one_by_one(source, [named for named in unknown if named.topic not in mute], which)
    return Ends(found | doubtful.of, doubtful.gone, doubtful.mute | mute)


def _one_by_one(source: KafkaCluster, parts: Iterable[NamedPartition], which: OffsetKind) -> Ends:
    by_topic: dict[str, list[NamedPartition]] = {}
    for named in parts:
        by_topic.setdefault(named.topic, []).append(named)
    found: dict[NamedPartition, int] = {}
    gone: set[str] = set()
    mute: set[str] = set()
    until_s = time.monotonic() + ONE_BY_ONE_S
    for topic, ours in by_topic.items():
        if time.monotonic() >= until_s:
            mute.add(topic)
            continue
        try:
            found |= source.list_offsets(ours, which)
        except KafkaError as error:
            (gone if error.code == Code.UNKNOWN_TOPIC_OR_PARTITION else mute).add(topic)
    return Ends(found, frozenset(gone), frozenset(mute))
