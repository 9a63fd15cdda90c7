"""The fence: the first append on the new home is a marker of the old link's producer with its next epoch, one for each
partition. From then on brokers refuse whatever of the old link's requests is still on its way.

The marker takes one offset, the point itself, which no consumer sees; it crosses back as any other. Where somebody
writes there before the topics have moved, it lies behind his records, however many these are: they are the new home's
own.

Appends batches of our own to a topic, each under its sequence: what a broker has already it takes for written.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from twinshore.config.errors import KafkaError
from twinshore.config.model import NamedPartition, fence_epoch
from twinshore.config.sentences import counted, listed
from twinshore.kafka.clock import steady_s
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.protocol.errors import Code, describe, kafka_error
from twinshore.kafka.protocol.produce import PRODUCE_KEY, encode_produce, parse_produce
from twinshore.kafka.protocol.record_batch import (
    CONTROL,
    HEADER_BYTES,
    BatchHeader,
    Record,
    encode_batch,
    split_batches,
)
from twinshore.kafka.protocol.transactions import MARKERS_KEY, MARKERS_VERSION, Marker, encode_markers, parse_markers
from twinshore.kafka.questions import OffsetKind
from twinshore.replication.task.core.position import marker_id
from twinshore.switch.core.steps import Cannot, Done, Kind, Outcome, SwitchState, Wait
from twinshore.switch.core.unreplicated import Behind, Seen, stretch, walk
from twinshore.switch.drain import changed

FENCE_ASK_S = 10.0
NAMED_MAX = 5
PAGE_BYTES = 1 << 20
LOOK_S = 5.0  # so long what others wrote is read at one try, in all partitions together


def points_of(record: SwitchState) -> dict[NamedPartition, int]:
    """Where each partition changes homes."""
    return {
        NamedPartition(one.topic, number): point for one in record.topics for number, point in enumerate(one.points)
    }


@dataclass(frozen=True, slots=True)
class Shut:
    """Whom the fence shuts out: the old link's producer. `epochs`: that in which it writes each topic."""

    producer_id: int
    epochs: Mapping[str, int]

    def epoch(self, named: NamedPartition) -> int:
        """The fence's own."""
        return fence_epoch(self.epochs[named.topic])


def level_as_it_is(
    new: KafkaCluster, record: SwitchState, shut: Shut, *, look_s: float = LOOK_S, page_bytes: int = PAGE_BYTES
) -> Outcome:
    """Of a forced switch: done once what the link wrote stands still, wherever it ends and whatever others write behind
    it; a fence that another switch has put up there, and of which nobody may know any more, lies behind the point."""
    if why := changed(new, record.topics, new=True):
        return Cannot(why)
    parts = [NamedPartition(one.topic, number) for one in record.topics for number in range(one.partitions)]
    # The end first: a log that grows between the questions is not behind.
    ends, high = (new.list_offsets(parts, kind) for kind in (OffsetKind.LOG_END, OffsetKind.HIGH_WATERMARK))
    before = points_of(record)
    if before.keys() != ends.keys():
        fenced = _fenced(new, ends, shut)
        first = _with_points(record, {named: end - (named in fenced) for named, end in ends.items()})
        return Wait(f"the twins on {new.name} are looked at a second time", first)
    grown = {named: end for named, end in ends.items() if end > before[named]}
    behind = _behind(new, record, grown, shut, look_s, page_bytes) if grown else {}
    points = {named: behind[named].point if named in behind else end for named, end in ends.items()}
    found = _with_points(record, points, behind.values())
    if points != before:
        return Wait(f"the twins on {new.name} still grow", found)
    if lagging := [str(named) for named, point in points.items() if high[named] < point]:
        return Wait(f"replicas on {new.name} are behind their leaders in {listed(lagging, NAMED_MAX)}", found)
    if unread := [str(named) for named, one in behind.items() if one.what is Behind.UNREAD]:
        return Wait(f"what others write to {listed(unread, NAMED_MAX)} on {new.name} is read first", found)
    return Done(found, f"the twins on {new.name} stand still, but for what others write")


def _fenced(new: KafkaCluster, ends: Mapping[NamedPartition, int], shut: Shut) -> set[NamedPartition]:
    """Partitions whose last batch is the fence already."""
    known = new.describe_producers(ends)
    may_be = [
        named
        for named, states in known.items()
        if ends[named] and any((one.producer_id, one.epoch) == (shut.producer_id, shut.epoch(named)) for one in states)
    ]
    return {named for named in may_be if is_fence(new, named, ends[named] - 1, shut)}


def put_up(
    new: KafkaCluster, record: SwitchState, shut: Shut, *, look_s: float = LOOK_S, page_bytes: int = PAGE_BYTES
) -> Outcome:
    """A marker goes only to a log that ends at its point, or where others alone wrote behind it; where it is there
    already, as of a process that was killed, none is written. The points of a forced switch, which nobody has heard
    yet, move behind what the link sent at last: that lies below the fence as well."""
    points = points_of(record)
    ends = new.list_offsets(points, OffsetKind.LOG_END)
    lacking = [named for named, point in points.items() if ends[named] == point]
    others = [named for named, point in points.items() if ends[named] != point]
    foreign = {named: ends[named] for named in others if not is_fence(new, named, points[named], shut)}
    unread: list[str] = []
    if foreign:
        # Whoever writes there already, though the topics have not moved yet, must not keep all others waiting.
        behind = _behind(new, record, foreign, shut, look_s, page_bytes)
        record = _with_points(record, {named: one.point for named, one in behind.items()}, behind.values())
        lost = [str(named) for named, one in behind.items() if one.what is Behind.THE_LINKS]
        if lost:
            why = f"{listed(lost, NAMED_MAX)} on {new.name} ends neither at its point nor behind the fence"
            return Wait(why, record)
        lacking += [named for named, one in behind.items() if one.what is Behind.STRAYS]
        unread = [str(named) for named, one in behind.items() if one.what is Behind.UNREAD]
    if lacking:
        refused = _write(new, lacking, shut)
        if refused:
            named, code = next(iter(refused.items()))
            return Wait(f"{new.name} does not take the fence of {named}: {describe(code).sentence}", record)
    if unread:
        return Wait(f"what others write to {listed(unread, NAMED_MAX)} on {new.name} is read first", record)
    if lacking:
        return Wait("the fence is written, and its place is looked at again", record)
    record = replace(record, strays=())
    of = counted(len(points), "partition")
    return Done(record, f"late requests of {record.link} are shut out of {of} on {new.name}")


def _with_points(record: SwitchState, points: Mapping[NamedPartition, int], read: Iterable[Seen] = ()) -> SwitchState:
    """Where `points` names no other, a partition keeps its own. `read`: what was read behind them."""
    known = {**points_of(record), **points}
    return replace(
        record,
        strays=tuple(one.stray for one in read),
        topics=tuple(
            replace(one, points=tuple(known[NamedPartition(one.topic, number)] for number in range(one.partitions)))
            for one in record.topics
        ),
    )


def _behind(
    cluster: KafkaCluster,
    record: SwitchState,
    ends: Mapping[NamedPartition, int],
    shut: Shut,
    look_s: float,
    page_bytes: int,
) -> dict[NamedPartition, Seen]:
    """Each of these partitions gets its share of the time, and is read by a page at least: no writer is so fast that a
    log is not read in the end. A log that ends before the point is the link's to mend."""
    points, theirs = points_of(record), (shut.producer_id, marker_id(shut.producer_id))
    known = {NamedPartition(one.topic, one.partition): one for one in record.strays}
    starts = cluster.list_offsets(ends, OffsetKind.EARLIEST)
    found: dict[NamedPartition, Seen] = {}
    for named, end in ends.items():
        stray = stretch(known.get(named), named, points[named], starts[named], end)
        if end < points[named]:
            found[named] = Seen(Behind.THE_LINKS, stray, points[named])
            continue
        over_s = steady_s() + look_s / len(ends)
        found[named] = walk(
            stray,
            points[named],
            theirs,
            partial(_is_fence, named=named, shut=shut),
            partial(_page, cluster, named, page_bytes),
            partial(_is_before, over_s),
            follows=record.kind is Kind.FORCED,
        )
    return found


def _is_before(over_s: float) -> bool:
    return steady_s() < over_s


def _page(cluster: KafkaCluster, named: NamedPartition, page_bytes: int, at: int) -> list[BatchHeader]:
    fetched = cluster.read_from(named, at, bytes_max=page_bytes, committed=False)
    return [header for _, header in split_batches(fetched.records)]


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
        MARKERS_KEY, MARKERS_VERSION, encode_markers(markers), parse_markers, timeout_s=max(timeout_s, FENCE_ASK_S)
    )
    return {NamedPartition(one.topic, one.partition): one.error for one in answered if one.error != Code.NONE}


TRIES_MAX = 10
PAUSE_S = 0.3
ASK_S = 30.0


def append(
    cluster: KafkaCluster, named: NamedPartition, who: tuple[int, int], sequence: int, records: Sequence[Record]
) -> int:
    """Returns the offset behind the batch once that is on all replicas in sync; 0 where the broker knows no more than
    that it has it. Asked again it is not written again. `who`: the producer's id and epoch."""
    batch = encode_batch(records, producer_id=who[0], producer_epoch=who[1], base_sequence=sequence)
    for number in range(TRIES_MAX):
        try:
            part = cluster.partition_of(named, refresh=number > 0)
            topic_id = cluster.metadata([named.topic], refresh=False).topics[named.topic].topic_id
            line = cluster.connection_to(part.leader)
            return _append_once(line, cluster.name, named, topic_id, batch) + len(records)
        except KafkaError as error:
            if error.code == Code.DUPLICATE_SEQUENCE_NUMBER:
                return 0
            if not error.retriable or number == TRIES_MAX - 1:
                raise
            time.sleep(PAUSE_S)
    raise AssertionError("the last try returns or raises")


def _append_once(line: Connection, name: str, named: NamedPartition, topic_id: bytes, batch: bytes) -> int:
    version = line.spoken(PRODUCE_KEY)
    topic = (named.topic, topic_id, [(named.partition, batch[:HEADER_BYTES], batch[HEADER_BYTES:])])
    body = b"".join(encode_produce(version, [topic]))
    (answer,) = line.ask(PRODUCE_KEY, version, body, lambda view: parse_produce(view, 0, version), timeout_s=ASK_S)
    if answer.error:
        raise kafka_error(answer.error, f"{name}: append to {named}", right=f"Write on topic {named.topic}")
    return answer.base_offset
