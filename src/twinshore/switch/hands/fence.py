"""The fence: the first append on the new home is a marker of the old link's producer with its next epoch, one for each
partition. From then on brokers refuse whatever of the old link's requests is still on its way.

The marker takes one offset, the point itself, which no consumer sees; it crosses back as any other. Where somebody
writes there before the topics have moved, it lies behind his records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from twinshore.fleet import NamedPartition
from twinshore.fleet.sentences import listed
from twinshore.fleet.terms import fence_epoch
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.kafka.connection import Connection
from twinshore.kafka.errors import Code, describe
from twinshore.mirror.lane.marking import marker_id
from twinshore.switch.decision import Cannot, Done, Outcome, Wait
from twinshore.switch.deeds import Kind
from twinshore.switch.hands.standing import changed, stands
from twinshore.switch.record import Record
from twinshore.wire.batch import CONTROL, BatchHeader, split_batches
from twinshore.wire.markers import MARKERS_KEY, MARKERS_VERSION, Marker, encode_markers, parse_markers

ASK_S = 10.0
NAMED_MAX = 5
PAGE_BYTES = 1 << 20
STRAYS_MAX = 1_000_000  # offsets; nobody was told yet that the topics move there


def points_of(record: Record) -> dict[NamedPartition, int]:
    """Where each partition changes homes."""
    return {
        NamedPartition(one.topic, number): point for one in record.topics for number, point in enumerate(one.points)
    }


class Behind(StrEnum):
    """What lies from the point on: the fence, perhaps behind records of others; these alone; or what the link wrote."""

    FENCED = "fenced"
    STRAYS = "strays"
    THE_LINKS = "the link's"


@dataclass(frozen=True, slots=True)
class Shut:
    """Whom the fence shuts out: the old link's producer. `epochs`: that in which it writes each topic."""

    producer_id: int
    epochs: Mapping[str, int]

    def epoch(self, named: NamedPartition) -> int:
        """The fence's own."""
        return fence_epoch(self.epochs[named.topic])


def level_as_it_is(new: KafkaCluster, record: Record, shut: Shut) -> Outcome:
    """Of a forced switch: done once the twins stand still, wherever they end; a fence that another switch has put up
    there, and of which nobody may know any more, lies behind the point."""
    if why := changed(new, record.topics, new=True):
        return Cannot(why)
    seen = stands(new, record.topics)
    if seen.unsettled:
        return Wait(seen.unsettled)
    ends = {NamedPartition(topic, number): end for topic, some in seen.ends.items() for number, end in enumerate(some)}
    fenced = _fenced(new, ends, shut)
    points = {named: end - (named in fenced) for named, end in ends.items()}
    found = replace(
        record,
        topics=tuple(
            replace(one, points=tuple(points[NamedPartition(one.topic, number)] for number in range(one.partitions)))
            for one in record.topics
        ),
    )
    if found != record:
        return Wait(f"the twins on {new.name} still grow, or were looked at once only", found)
    return Done(record, f"the twins on {new.name} stand still")


def _fenced(new: KafkaCluster, ends: Mapping[NamedPartition, int], shut: Shut) -> set[NamedPartition]:
    """Partitions whose last batch is the fence already."""
    known = new.describe_producers(ends)
    may_be = [
        named
        for named, states in known.items()
        if ends[named] and any((one.producer_id, one.epoch) == (shut.producer_id, shut.epoch(named)) for one in states)
    ]
    return {named for named in may_be if is_fence(new, named, ends[named] - 1, shut)}


def put_up(new: KafkaCluster, record: Record, shut: Shut) -> Outcome:
    """A marker goes only to a log that ends at its point; where the point
    holds the marker already, as of a process that was killed, none is written."""
    points = points_of(record)
    ends = new.list_offsets(points, OffsetKind.LOG_END)
    lacking = [named for named, point in points.items() if ends[named] == point]
    others = [named for named, point in points.items() if ends[named] != point]
    foreign = [named for named in others if not is_fence(new, named, points[named], shut)]
    if foreign and record.kind is Kind.FORCED and all(ends[named] > points[named] for named in others):
        # Nobody has heard the points yet: what a mirror sent at last lies below the fence as well.
        grown = {named: ends[named] for named in foreign}
        return Wait("the twins have grown at last: their points are theirs now", _with_points(record, grown))
    if foreign:
        # Whoever writes there already, though the topics have not moved yet, must not keep all others waiting.
        behind = {named: _behind(new, named, points[named], ends[named], shut) for named in foreign}
        lost = [str(named) for named, what in behind.items() if what is Behind.THE_LINKS]
        if lost:
            return Wait(f"{listed(lost, NAMED_MAX)} on {new.name} ends neither at its point nor behind the fence")
        lacking += [named for named, what in behind.items() if what is Behind.STRAYS]
    if lacking:
        refused = _write(new, lacking, shut)
        if refused:
            named, code = next(iter(refused.items()))
            return Wait(f"{new.name} does not take the fence of {named}: {describe(code).sentence}")
        return Wait("the fence is looked at once more")
    return Done(record, f"late requests of {record.link} are shut out of {len(points)} partitions on {new.name}")


def _with_points(record: Record, ends: Mapping[NamedPartition, int]) -> Record:
    return replace(
        record,
        topics=tuple(
            replace(
                one,
                points=tuple(
                    max(point, ends.get(NamedPartition(one.topic, number), point))
                    for number, point in enumerate(one.points)
                ),
            )
            for one in record.topics
        ),
    )


def _behind(cluster: KafkaCluster, named: NamedPartition, point: int, end: int, shut: Shut) -> Behind:
    """A log that ends before the point, or that cannot be read up to its end, is the link's to mend."""
    at, theirs = point, (shut.producer_id, marker_id(shut.producer_id))
    while at < end:
        fetched = cluster.read_from(named, at, bytes_max=PAGE_BYTES, committed=False)
        batches = [header for _, header in split_batches(fetched.records) if header.last_offset >= at]
        if not batches or at - point > STRAYS_MAX:
            return Behind.THE_LINKS
        for header in batches:
            if _is_fence(header, named, shut):
                return Behind.FENCED
            if header.producer_id in theirs or header.base_offset < point:
                return Behind.THE_LINKS
            at = header.last_offset + 1
    return Behind.STRAYS if end > point else Behind.THE_LINKS


def is_fence(cluster: KafkaCluster, named: NamedPartition, point: int, shut: Shut) -> bool:
    """Whether the batch at the point is the fence."""
    header = cluster.read_tail_batch(named, point)
    return header is not None and header.base_offset == point and _is_fence(header, named, shut)


def _is_fence(header: BatchHeader, named: NamedPartition, shut: Shut) -> bool:
    writer = header.producer_id, header.producer_epoch
    return bool(header.attributes & CONTROL) and writer == (shut.producer_id, shut.epoch(named))


def _write(new: KafkaCluster, parts: Iterable[NamedPartition], shut: Shut) -> dict[NamedPartition, int]:
    """One marker for each partition, at its leader; the codes of those that were refused."""
    by_node: dict[int, list[NamedPartition]] = {}
    for named in parts:
        by_node.setdefault(new.leader_of(named), []).append(named)
    refused: dict[NamedPartition, int] = {}
    for node, ours in by_node.items():
        refused |= new.at(node, "the fence", partial(_ask, fences=_fences(new, ours, shut.producer_id), shut=shut))
    return refused


def _fences(new: KafkaCluster, parts: Iterable[NamedPartition], producer_id: int) -> dict[NamedPartition, int]:
    """A coordinator epoch for each partition that its leader does not take for an old one."""
    known = new.describe_producers(parts)
    return {
        named: 1 + max((one.coordinator_epoch for one in states if one.producer_id == producer_id), default=-1)
        for named, states in known.items()
    }


def _ask(
    connection: Connection, timeout_s: float, *, fences: Mapping[NamedPartition, int], shut: Shut
) -> dict[NamedPartition, int]:
    connection.spoken(MARKERS_KEY)
    markers = [
        (Marker(shut.producer_id, shut.epoch(named), False, fence, [(named.topic, [named.partition])]), 1)
        for named, fence in fences.items()
    ]
    answered = connection.ask(
        MARKERS_KEY, MARKERS_VERSION, encode_markers(markers), parse_markers, timeout_s=max(timeout_s, ASK_S)
    )
    return {NamedPartition(one.topic, one.partition): one.error for one in answered if one.error != Code.NONE}
