"""Where logs end, or begin, now, as far as their cluster says."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from twinshore.fleet import KafkaError, NamedPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.errors import Code
from twinshore.kafka.questions import OffsetKind

# So long topics are asked for one by one after all together could not be answered for; the others stay unseen.
ONE_BY_ONE_S = 6.0


@dataclass(frozen=True, slots=True)
class LogEnds:
    """`gone`: topics that the cluster does not have. `mute`: those that it does not answer for now."""

    of: dict[NamedPartition, int]
    gone: frozenset[str] = frozenset()
    mute: frozenset[str] = frozenset()

    def without(self, topics: Collection[str]) -> LogEnds:
        """These topics count as mute: what they end at says nothing of their twins."""
        found = {named: end for named, end in self.of.items() if named.topic not in topics}
        return LogEnds(found, self.gone, self.mute | {named.topic for named in self.of if named.topic in topics})


def starts_of(cluster: KafkaCluster, topics: Collection[str]) -> dict[NamedPartition, int]:
    """Where the logs of these topics begin: nothing of them has crossed."""
    if not topics:
        return {}
    seen = cluster.metadata(sorted(topics), refresh=True).topics
    parts = [NamedPartition(name, part.partition) for name, topic in seen.items() for part in topic.partitions]
    found, _ = cluster.offsets_of_each(parts, OffsetKind.EARLIEST)
    return {named: found.get(named, 0) for named in parts}


def still_there(cluster: KafkaCluster, parts: Collection[NamedPartition]) -> tuple[NamedPartition, ...]:
    """Those whose topic the cluster has: about one that is deleted every other question takes seconds."""
    topics = sorted({named.topic for named in parts})
    seen = cluster.metadata(topics, refresh=True).topics
    gone = {one for one in topics if one not in seen or seen[one].error == Code.UNKNOWN_TOPIC_OR_PARTITION}
    return tuple(named for named in parts if named.topic not in gone)


def log_ends(
    cluster: KafkaCluster, parts: Collection[NamedPartition], which: OffsetKind = OffsetKind.HIGH_WATERMARK
) -> LogEnds:
    """This end of each log; KafkaError where nobody answers. One topic's trouble leaves it out, and no other."""
    if not parts:
        # Whether it is there at all.
        cluster.metadata([], refresh=True)
        return LogEnds({})
    found, failed = cluster.offsets_of_each(parts, which)
    unknown = {named for named, error in failed.items() if error.code == Code.UNKNOWN_TOPIC_OR_PARTITION}
    mute = frozenset(named.topic for named in failed.keys() - unknown)
    doubtful = _one_by_one(cluster, [named for named in unknown if named.topic not in mute], which)
    return LogEnds(found | doubtful.of, doubtful.gone, doubtful.mute | mute)


def _one_by_one(cluster: KafkaCluster, parts: Iterable[NamedPartition], which: OffsetKind) -> LogEnds:
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
            found |= cluster.list_offsets(ours, which)
        except KafkaError as error:
            (gone if error.code == Code.UNKNOWN_TOPIC_OR_PARTITION else mute).add(topic)
    return LogEnds(found, frozenset(gone), frozenset(mute))
