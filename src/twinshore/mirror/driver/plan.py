"""What should be mirrored, onto which twins, on which lanes. Pure: both clusters' topics in, a plan out.

A topic that cannot be carried exactly is refused by name with the reason and the remedy; nothing of it is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from zlib import crc32

from twinshore.fleet import Link, Mode, NamedPartition, is_heartbeats
from twinshore.fleet.incidents import IncidentKind
from twinshore.mirror.follow.topic_settings import followed
from twinshore.mirror.planned import CarryTopic, Create, Grow, Refuse, Settle, Step
from twinshore.wire.batch import MESSAGE_BYTES_DEFAULT

MAX_LONG = "9223372036854775807"
LANES_MAX = 8
# What a twin needs for itself, whatever the source says: bytes as they are, any time stamp, nothing lost by age.
TWINS_OWN: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": MAX_LONG,
    "message.timestamp.after.max.ms": MAX_LONG,
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
RETENTION = ("retention.ms", "retention.bytes")
# A compacted source's twin is compacted too; "delete" lets its log start follow, since retention is off.
COMPACTED = "compact,delete"


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """`starts`: the log start of each partition."""

    name: str
    topic_id: str
    replication: int
    starts: tuple[int, ...]
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def partitions(self) -> int:
        return len(self.starts)

    @property
    def compacted(self) -> bool:
        return "compact" in dict(self.settings).get("cleanup.policy", "delete")


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """`spans`: log start and log end of each partition."""

    name: str
    topic_id: str
    spans: tuple[tuple[int, int], ...]
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def partitions(self) -> int:
        return len(self.spans)


@dataclass(frozen=True, slots=True)
class KnownTwin:
    """What the store remembers of a topic's twin."""

    source_topic_id: str
    target_topic_id: str
    mapped: bool = False


def twin_settings(link: Link, source: SourceTopic, replication: int) -> tuple[tuple[str, str], ...]:
    """Settings of the twin while it is one: the source's that matter, the link's, and the twin's own above all."""
    theirs = dict(source.settings)
    wanted = followed(theirs, link, replication)
    wanted.update(TWINS_OWN)
    if link.queue.fresh and not is_heartbeats(source.name):
        # A mapped twin's log begins where its own settings say: nobody cuts it.
        for name in RETENTION:
            wanted.pop(name)
            wanted.update({name: theirs[name]} if name in theirs else {})
    if source.compacted:
        wanted["cleanup.policy"] = COMPACTED
    largest = int(theirs.get("max.message.bytes", MESSAGE_BYTES_DEFAULT))
    wanted["max.message.bytes"] = str(max(largest, MESSAGE_BYTES_DEFAULT))
    return tuple(sorted(wanted.items()))


def _lacks(name: str, wanted: str, now: str | None) -> bool:
    """Whether a twin lacks the setting. Its limit is only ever raised: it may hold larger batches by now."""
    return int(now or 0) < int(wanted) if name == "max.message.bytes" else now != wanted


def plan_topic(
    link: Link,
    source: SourceTopic,
    target: TargetTopic | None,
    known: KnownTwin | None,
    *,
    target_brokers: int,
) -> list[Step]:
    """The steps for one topic; a single Refuse when it must not be touched."""
    mapped = is_mapped(link, target, known)
    refusal = _unfresh(link, source, known) or _refusal(source, target, known, mapped=mapped)
    if refusal:
        return [refusal]
    replication = min(link.replication_factor or source.replication, target_brokers)
    settings = twin_settings(link, source, replication)
    twin = "" if link.twin_of(source.name) == source.name else link.twin_of(source.name)
    if target is None:
        return [Create(source.name, source.partitions, replication, settings, twin)]
    steps: list[Step] = []
    # A topic cannot be made smaller again: somebody else's grows only once it has been adopted.
    ours = bool(known) or not mapped
    if target.partitions < source.partitions and ours:
        steps.append(Grow(source.name, source.partitions, target.topic_id, twin))
    have = dict(target.settings)
    lacking = tuple((name, value) for name, value in settings if _lacks(name, value, have.get(name)))
    if lacking and not mapped:
        steps.append(Settle(source.name, lacking, target.topic_id, twin))
    partitions = min(source.partitions, target.partitions)
    if mapped:
        return [*steps, CarryTopic(source.name, partitions, source.topic_id, target.topic_id, twin, mapped=True)]
    starts = source.starts if any(source.starts) and not known else ()
    steps.append(CarryTopic(source.name, partitions, source.topic_id, target.topic_id, twin, starts))
    return steps


def is_mapped(link: Link, target: TargetTopic | None, known: KnownTwin | None) -> bool:
    """Whether the twin has offsets of its own: it was adopted so, or it holds data and the link may adopt it."""
    if known:
        return known.mapped
    holds = target is not None and any(end > 0 for _, end in target.spans)
    if target is not None and not holds and link.queue.fresh and not is_heartbeats(target.name):
        return True  # What is dropped takes no offset there.
    return holds and link.mode is Mode.MAPPED


def _unfresh(link: Link, source: SourceTopic, known: KnownTwin | None) -> Refuse | None:
    """Why a fresh queue, which drops what is old, may not carry the topic."""
    if not link.queue.fresh or is_heartbeats(source.name):
        return None
    if source.compacted:
        sentence = (
            f"topic {source.name} is compacted: its old records are the newest of their keys, and a fresh queue drops "
            "what is old"
        )
        hint = 'exclude the topic, or give the link\'s queue policy = "keep"'
        return Refuse(source.name, IncidentKind.REFUSED, sentence, hint)
    if known and not known.mapped:
        sentence = (
            f"the twin of topic {source.name} is exact, and stays so: what a fresh queue drops would be missing there"
        )
        hint = (
            'give the link\'s queue policy = "keep"; or stop the mirror, type `twinshore mirror forget '
            f"{source.name}`, delete the twin on {link.target}, and start the mirror: the new twin is mapped"
        )
        return Refuse(source.name, IncidentKind.REFUSED, sentence, hint)
    return None


def _refusal(
    source: SourceTopic, target: TargetTopic | None, known: KnownTwin | None, *, mapped: bool
) -> Refuse | None:
    name = source.name
    if known and known.source_topic_id != source.topic_id:
        sentence = f"topic {name} was deleted and made again on the source: its offsets begin anew"
        return Refuse(name, IncidentKind.RECREATED_TOPIC, sentence, f"{_anew(known)}, or exclude the topic")
    if target is None:
        if known:
            sentence = f"the twin of topic {name} has been deleted on the target"
            return Refuse(name, IncidentKind.RECREATED_TOPIC, sentence, _anew(known))
        return None
    if known and known.target_topic_id != target.topic_id:
        sentence = f"the twin of topic {name} was deleted and made again by someone else"
        there = "" if known.mapped else "delete it on the target, then "
        return Refuse(name, IncidentKind.RECREATED_TOPIC, sentence, f"{there}{_anew(known)}")
    if mapped:
        return None
    if not known and any(end > start for start, end in target.spans):
        sentence = f"topic {target.name} on the target holds data that this link did not write"
        hint = (
            "where the store was lost, or an older one restored: `twinshore link recover`; else delete it on"
            ' the target, exclude the topic, or let the link carry it on with mode = "mapped"'
        )
        return Refuse(name, IncidentKind.FOREIGN_WRITE, sentence, hint)
    counts = f"{target.partitions} partitions on the target, {source.partitions} on the source"
    if target.partitions > source.partitions:
        sentence = f"topic {target.name} has {counts}"
        again = f" and {_anew(known)}" if known else ""
        return Refuse(
            name, IncidentKind.PARTITION_REMOVED, sentence, f"delete the target's topic{again}, or exclude it"
        )
    if not known and target.partitions < source.partitions:
        sentence = f"topic {target.name} has {counts}"
        hint = f"give it {source.partitions} partitions, or delete it on the target so that its twin can be made"
        return Refuse(name, IncidentKind.PARTITION_REMOVED, sentence, hint)
    if not known and any(start > theirs for (start, _), theirs in zip(target.spans, source.starts, strict=False)):
        sentence = f"topic {target.name} on the target begins at later offsets than the source's"
        return Refuse(
            name, IncidentKind.POSITION_DISAGREEMENT, sentence, "delete it on the target so that its twin can be made"
        )
    return None


def _anew(known: KnownTwin) -> str:
    """How an operator lets the topic begin again."""
    if known.mapped:
        return "stop the mirror, `twinshore mirror forget` it, start the mirror"
    return "let it begin again with `twinshore mirror begin-again` while the mirror runs"


def lanes_for(cores: int) -> int:
    """How many lanes a link has by itself: one full lane costs less than two half-empty ones."""
    return max(1, min(LANES_MAX, cores // 2))


def spread(
    partitions: Iterable[NamedPartition],
    lanes: int,
    *,
    now: Mapping[NamedPartition, int] | None = None,
    rate: Mapping[NamedPartition, float] | None = None,
    fixed: bool = False,
) -> dict[NamedPartition, int]:
    """A lane for each partition: those that have one keep it, the heaviest others go first to the lightest lane.
    `fixed`: by name alone, so that each link of a broadcast has it on the same lane."""
    if fixed:
        return {named: (crc32(named.topic.encode()) + named.partition) % lanes for named in partitions}
    now, rate = now or {}, rate or {}
    found: dict[NamedPartition, int] = {}
    # A partition nobody has measured yet weighs a little, so that many quiet ones still spread evenly.
    weight = {named: rate.get(named, 0.0) + 1.0 for named in partitions}
    load = [0.0] * lanes
    for named in weight:
        lane = now.get(named, -1)
        if 0 <= lane < lanes:
            found[named] = lane
            load[lane] += weight[named]
    for named in sorted((n for n in weight if n not in found), key=lambda n: (-weight[n], n)):
        lane = min(range(lanes), key=load.__getitem__)
        found[named] = lane
        load[lane] += weight[named]
    return found


def moves(
    placed: Mapping[NamedPartition, int], rate: Mapping[NamedPartition, float], lanes: int, *, unfair: float = 1.5
) -> list[tuple[NamedPartition, int]]:
    """Which partitions should change lanes so that none carries much more than its share; empty when it is fair."""
    load = [0.0] * lanes
    for named, lane in placed.items():
        load[lane] += rate.get(named, 0.0)
    share = sum(load) / lanes if lanes else 0.0
    found: list[tuple[NamedPartition, int]] = []
    heavy = max(range(lanes), key=load.__getitem__)
    if share <= 0 or load[heavy] < unfair * share:
        return found
    for named in sorted((n for n, lane in placed.items() if lane == heavy), key=lambda n: rate.get(n, 0.0)):
        light = min(range(lanes), key=load.__getitem__)
        weight = rate.get(named, 0.0)
        if weight <= 0 or load[light] + weight >= load[heavy]:
            continue
        found.append((named, light))
        load[heavy] -= weight
        load[light] += weight
        if load[heavy] <= share * 1.1:
            break
    return found
