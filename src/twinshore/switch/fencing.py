"""The fence against late requests of the old link, and idempotent appends.

The fence is the first append on the new home: in each partition, a transaction marker of the old link's producer with
the next epoch. From then on brokers refuse all late requests of the old link.

The marker takes one offset, the point. Consumers do not see the marker; the reverse link replicates it like any other.
If clients write there before the topics have moved, the marker follows their records, which belong to the new home.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from twinshore.config.errors import KafkaError
from twinshore.config.model import TopicPartition, fence_epoch
from twinshore.config.sentences import count_phrase, join_names
from twinshore.kafka.clock import steady_s
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.leader_queries import OffsetKind, produce_batch
from twinshore.kafka.protocol.error_codes import Code, error_kind
from twinshore.kafka.protocol.record_batch import (
    CONTROL_FLAG,
    BatchHeader,
    Record,
    encode_batch,
    split_batches,
)
from twinshore.kafka.protocol.transactions import (
    MARKERS_KEY,
    MARKERS_VERSION,
    TransactionMarker,
    encode_markers,
    parse_markers,
)
from twinshore.replication.task.core.markers import marker_producer_id
from twinshore.switch.core.steps import StepDone, StepFailed, StepOutcome, StepPending, SwitchKind, SwitchState
from twinshore.switch.core.unreplicated import PastPointContent, PastPointScan, next_scan_range, scan_past_point
from twinshore.switch.drain import describe_topic_changes

FENCE_TIMEOUT_S = 10.0
NAMED_MAX = 5
PAGE_BYTES = 1 << 20
FOREIGN_READ_S = 5.0  # time to read foreign writes in one attempt, all partitions together


def switch_points(record: SwitchState) -> dict[TopicPartition, int]:
    return {
        TopicPartition(one.topic, number): point for one in record.topics for number, point in enumerate(one.points)
    }


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """The producer of the old link, which the fence shuts out. `epochs`: producer epoch by topic."""

    producer_id: int
    epochs: Mapping[str, int]

    def epoch(self, named: TopicPartition) -> int:
        return fence_epoch(self.epochs[named.topic])


def check_twins_settled(
    new: KafkaCluster,
    record: SwitchState,
    shut: FencedProducer,
    *,
    look_s: float = FOREIGN_READ_S,
    page_bytes: int = PAGE_BYTES,
) -> StepOutcome:
    """Forced switch: done once the link's records have stopped growing, regardless of foreign records after them. A
    fence left by an earlier, forgotten switch is past the point.
    """
    if why := describe_topic_changes(new, record.topics, new=True):
        return StepFailed(why)
    parts = [TopicPartition(one.topic, number) for one in record.topics for number in range(one.partitions)]
    # The end first: a log that grows between the questions is not behind.
    ends, high = (new.list_offsets(parts, kind) for kind in (OffsetKind.LOG_END, OffsetKind.HIGH_WATERMARK))
    before = switch_points(record)
    if before.keys() != ends.keys():
        fenced = _fenced(new, ends, shut)
        first = _with_points(record, {named: end - (named in fenced) for named, end in ends.items()})
        return StepPending(f"the twins on {new.name} are looked at a second time", first)
    grown = {named: end for named, end in ends.items() if end > before[named]}
    behind = _behind(new, record, grown, shut, look_s, page_bytes) if grown else {}
    points = {named: behind[named].point if named in behind else end for named, end in ends.items()}
    found = _with_points(record, points, behind.values())
    if points != before:
        return StepPending(f"the twins on {new.name} still grow", found)
    if lagging := [str(named) for named, point in points.items() if high[named] < point]:
        return StepPending(
            f"replicas on {new.name} are behind their leaders in {join_names(lagging, NAMED_MAX)}", found
        )
    if unread := [str(named) for named, one in behind.items() if one.what is PastPointContent.UNREAD]:
        return StepPending(f"what others write to {join_names(unread, NAMED_MAX)} on {new.name} is read first", found)
    return StepDone(found, f"the twins on {new.name} stand still, but for what others write")


def _fenced(new: KafkaCluster, ends: Mapping[TopicPartition, int], shut: FencedProducer) -> set[TopicPartition]:
    known = new.describe_producers(ends)
    may_be = [
        named
        for named, states in known.items()
        if ends[named] and any((one.producer_id, one.epoch) == (shut.producer_id, shut.epoch(named)) for one in states)
    ]
    return {named for named in may_be if is_fence(new, named, ends[named] - 1, shut)}


def write_fence(
    new: KafkaCluster,
    record: SwitchState,
    shut: FencedProducer,
    *,
    look_s: float = FOREIGN_READ_S,
    page_bytes: int = PAGE_BYTES,
) -> StepOutcome:
    """Writes a marker to each log that ends at the point, or with only foreign records past it. A marker left by a
    crashed process is not repeated. The points of a forced switch, not announced yet, move past the link's last
    records, which are then below the fence too.
    """
    points = switch_points(record)
    ends = new.list_offsets(points, OffsetKind.LOG_END)
    lacking = [named for named, point in points.items() if ends[named] == point]
    others = [named for named, point in points.items() if ends[named] != point]
    foreign = {named: ends[named] for named in others if not is_fence(new, named, points[named], shut)}
    unread: list[str] = []
    if foreign:
        # A client that writes there before the topics have moved must not delay all others.
        behind = _behind(new, record, foreign, shut, look_s, page_bytes)
        record = _with_points(record, {named: one.point for named, one in behind.items()}, behind.values())
        lost = [str(named) for named, one in behind.items() if one.what is PastPointContent.LINK_WRITES]
        if lost:
            why = f"{join_names(lost, NAMED_MAX)} on {new.name} ends neither at its point nor behind the fence"
            return StepPending(why, record)
        lacking += [named for named, one in behind.items() if one.what is PastPointContent.FOREIGN_WRITES]
        unread = [str(named) for named, one in behind.items() if one.what is PastPointContent.UNREAD]
    if lacking:
        refused = _write(new, lacking, shut)
        if refused:
            named, code = next(iter(refused.items()))
            return StepPending(f"{new.name} does not take the fence of {named}: {error_kind(code).sentence}", record)
    if unread:
        return StepPending(f"what others write to {join_names(unread, NAMED_MAX)} on {new.name} is read first", record)
    if lacking:
        return StepPending("the fence is written, and its place is looked at again", record)
    record = replace(record, strays=())
    of = count_phrase(len(points), "partition")
    return StepDone(record, f"late requests of {record.link} are shut out of {of} on {new.name}")


def _with_points(
    record: SwitchState, points: Mapping[TopicPartition, int], read: Iterable[PastPointScan] = ()
) -> SwitchState:
    """Sets `points`; the other partitions keep theirs. `read`: scans past the points."""
    known = {**switch_points(record), **points}
    return replace(
        record,
        strays=tuple(one.stray for one in read),
        topics=tuple(
            replace(one, points=tuple(known[TopicPartition(one.topic, number)] for number in range(one.partitions)))
            for one in record.topics
        ),
    )


def _behind(
    cluster: KafkaCluster,
    record: SwitchState,
    ends: Mapping[TopicPartition, int],
    shut: FencedProducer,
    look_s: float,
    page_bytes: int,
) -> dict[TopicPartition, PastPointScan]:
    """Scans past the points. Each partition gets a share of the time, and at least one page, so that the log is read in
    the end however fast clients write. A log that ends below the point counts as LINK_WRITES: the link has to repair
    it.
    """
    points, theirs = switch_points(record), (shut.producer_id, marker_producer_id(shut.producer_id))
    known = {TopicPartition(one.topic, one.partition): one for one in record.strays}
    starts = cluster.list_offsets(ends, OffsetKind.EARLIEST)
    found: dict[TopicPartition, PastPointScan] = {}
    for named, end in ends.items():
        stray = next_scan_range(known.get(named), named, points[named], starts[named], end)
        if end < points[named]:
            found[named] = PastPointScan(PastPointContent.LINK_WRITES, stray, points[named])
            continue
        over_s = steady_s() + look_s / len(ends)
        found[named] = scan_past_point(
            stray,
            points[named],
            theirs,
            partial(_is_fence, named=named, shut=shut),
            partial(_page, cluster, named, page_bytes),
            partial(_is_before, over_s),
            follows=record.kind is SwitchKind.FORCED,
        )
    return found


def _is_before(over_s: float) -> bool:
    return steady_s() < over_s


def _page(cluster: KafkaCluster, named: TopicPartition, page_bytes: int, at: int) -> list[BatchHeader]:
    fetched = cluster.read_from(named, at, bytes_max=page_bytes, committed=False)
    return [header for _, header in split_batches(fetched.records)]


def is_fence(cluster: KafkaCluster, named: TopicPartition, point: int, shut: FencedProducer) -> bool:
    header = cluster.read_tail_batch(named, point)
    return header is not None and header.base_offset == point and _is_fence(header, named, shut)


def _is_fence(header: BatchHeader, named: TopicPartition, shut: FencedProducer) -> bool:
    writer = header.producer_id, header.producer_epoch
    return bool(header.attributes & CONTROL_FLAG) and writer == (shut.producer_id, shut.epoch(named))


def _write(new: KafkaCluster, parts: Iterable[TopicPartition], shut: FencedProducer) -> dict[TopicPartition, int]:
    by_node: dict[int, list[TopicPartition]] = {}
    for named in parts:
        by_node.setdefault(new.leader_of(named), []).append(named)
    refused: dict[TopicPartition, int] = {}
    for node, ours in by_node.items():
        refused |= new.at(node, "the fence", partial(_ask, fences=_fences(new, ours, shut.producer_id), shut=shut))
    return refused


def _fences(new: KafkaCluster, parts: Iterable[TopicPartition], producer_id: int) -> dict[TopicPartition, int]:
    known = new.describe_producers(parts)
    return {
        named: 1 + max((one.coordinator_epoch for one in states if one.producer_id == producer_id), default=-1)
        for named, states in known.items()
    }


def _ask(
    connection: Connection, timeout_s: float, *, fences: Mapping[TopicPartition, int], shut: FencedProducer
) -> dict[TopicPartition, int]:
    connection.handwritten_version(MARKERS_KEY)
    markers = [
        (TransactionMarker(shut.producer_id, shut.epoch(named), False, fence, [(named.topic, [named.partition])]), 1)
        for named, fence in fences.items()
    ]
    answered = connection.ask(
        MARKERS_KEY, MARKERS_VERSION, encode_markers(markers), parse_markers, timeout_s=max(timeout_s, FENCE_TIMEOUT_S)
    )
    return {TopicPartition(one.topic, one.partition): one.error for one in answered if one.error != Code.NONE}


TRIES_MAX = 10
RETRY_INTERVAL_S = 0.3
APPEND_TIMEOUT_S = 30.0


def append_batch(
    cluster: KafkaCluster, named: TopicPartition, who: tuple[int, int], sequence: int, records: Sequence[Record]
) -> int:
    """Returns the offset after the batch once all in-sync replicas have it; 0 if the broker reports a duplicate. A
    retry does not write twice. `who`: producer id and epoch.
    """
    batch = encode_batch(records, producer_id=who[0], producer_epoch=who[1], base_sequence=sequence)
    for number in range(TRIES_MAX):
        try:
            part = cluster.partition_of(named, refresh=number > 0)
            topic_id = cluster.metadata([named.topic], refresh=False).topics[named.topic].topic_id
            line = cluster.connection_to(part.leader)
            at = produce_batch(line, cluster.name, named, topic_id, batch, timeout_s=APPEND_TIMEOUT_S)
            return at + len(records)
        except KafkaError as error:
            if error.code == Code.DUPLICATE_SEQUENCE_NUMBER:
                return 0
            if not error.retriable or number == TRIES_MAX - 1:
                raise
            time.sleep(RETRY_INTERVAL_S)
    raise AssertionError("the last try returns or raises")
