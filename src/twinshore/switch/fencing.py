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
PAGE_BYTES = 1 << 20
FOREIGN_READ_S = 5.0  # time to read foreign writes in one attempt, all partitions together


def switch_points(state: SwitchState) -> dict[TopicPartition, int]:
    return {
        TopicPartition(move.topic, number): point for move in state.topics for number, point in enumerate(move.points)
    }


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """The producer of the old link, which the fence shuts out. `epochs`: producer epoch by topic."""

    producer_id: int
    epochs: Mapping[str, int]

    def epoch(self, partition: TopicPartition) -> int:
        return fence_epoch(self.epochs[partition.topic])


def check_twins_settled(new: KafkaCluster, state: SwitchState, fenced: FencedProducer) -> StepOutcome:
    """Forced switch: done once the link's records have stopped growing, regardless of foreign records after them. A
    fence left by an earlier, forgotten switch is past the point.
    """
    if why := describe_topic_changes(new, state.topics, new=True):
        return StepFailed(why)
    partitions = [TopicPartition(move.topic, number) for move in state.topics for number in range(move.partitions)]
    # The end first: a log that grows between the questions is not behind.
    ends, high = (new.list_offsets(partitions, kind) for kind in (OffsetKind.LOG_END, OffsetKind.HIGH_WATERMARK))
    before = switch_points(state)
    if before.keys() != ends.keys():
        old_fences = _fenced(new, ends, fenced)
        first = _with_points(state, {partition: end - (partition in old_fences) for partition, end in ends.items()})
        return StepPending(f"the twins on {new.name} are checked a second time", first)
    grown = {partition: end for partition, end in ends.items() if end > before[partition]}
    behind = _behind(new, state, grown, fenced) if grown else {}
    points = {partition: behind[partition].point if partition in behind else end for partition, end in ends.items()}
    found = _with_points(state, points, behind.values())
    if points != before:
        return StepPending(f"the twins on {new.name} still grow", found)
    if lagging := [str(partition) for partition, point in points.items() if high[partition] < point]:
        return StepPending(f"replicas on {new.name} are behind their leaders in {join_names(lagging)}", found)
    if unread := [str(partition) for partition, one in behind.items() if one.what is PastPointContent.UNREAD]:
        return StepPending(f"what others write to {join_names(unread)} on {new.name} is read first", found)
    return StepDone(found, f"the twins on {new.name} stand still, but for what others write")


def _fenced(new: KafkaCluster, ends: Mapping[TopicPartition, int], fenced: FencedProducer) -> set[TopicPartition]:
    known = new.describe_producers(ends)
    writers = {partition: {(one.producer_id, one.epoch) for one in states} for partition, states in known.items()}
    return {
        partition
        for partition, end in ends.items()
        if end and (fenced.producer_id, fenced.epoch(partition)) in writers[partition]
        if is_fence(new, partition, end - 1, fenced)
    }


def write_fence(new: KafkaCluster, state: SwitchState, fenced: FencedProducer) -> StepOutcome:
    """Writes a marker to each log that ends at the point, or with only foreign records past it. A marker left by a
    crashed process is not repeated. The points of a forced switch, not announced yet, move past the link's last
    records, which are then below the fence too.
    """
    points = switch_points(state)
    ends = new.list_offsets(points, OffsetKind.LOG_END)
    lacking = [partition for partition, point in points.items() if ends[partition] == point]
    others = [partition for partition, point in points.items() if ends[partition] != point]
    foreign = {
        partition: ends[partition] for partition in others if not is_fence(new, partition, points[partition], fenced)
    }
    unread: list[str] = []
    if foreign:
        # A client that writes there before the topics have moved must not delay all others.
        behind = _behind(new, state, foreign, fenced)
        state = _with_points(state, {partition: one.point for partition, one in behind.items()}, behind.values())
        if lost := [str(partition) for partition, scan in behind.items() if scan.what is PastPointContent.LINK_WRITES]:
            why = f"{join_names(lost)} on {new.name} ends neither at its point nor behind the fence"
            return StepPending(why, state)
        lacking += [partition for partition, one in behind.items() if one.what is PastPointContent.FOREIGN_WRITES]
        unread = [str(partition) for partition, one in behind.items() if one.what is PastPointContent.UNREAD]
    if lacking and (refused := _write(new, lacking, fenced)):
        partition, code = next(iter(refused.items()))
        return StepPending(f"{new.name} does not take the fence of {partition}: {error_kind(code).sentence}", state)
    if unread:
        return StepPending(f"what others write to {join_names(unread)} on {new.name} is read first", state)
    if lacking:
        return StepPending("the fence is written, and its offset is checked", state)
    state = replace(state, foreign_writes=())
    of = count_phrase(len(points), "partition")
    return StepDone(state, f"late requests of {state.link} are shut out of {of} on {new.name}")


def _with_points(
    state: SwitchState, points: Mapping[TopicPartition, int], read: Iterable[PastPointScan] = ()
) -> SwitchState:
    """Sets `points`; the other partitions keep theirs. `read`: scans past the points."""
    known = {**switch_points(state), **points}
    return replace(
        state,
        foreign_writes=tuple(scan.writes for scan in read),
        topics=tuple(
            replace(move, points=tuple(known[TopicPartition(move.topic, number)] for number in range(move.partitions)))
            for move in state.topics
        ),
    )


def _behind(
    cluster: KafkaCluster, state: SwitchState, ends: Mapping[TopicPartition, int], fenced: FencedProducer
) -> dict[TopicPartition, PastPointScan]:
    """Scans past the points. Each partition gets a share of the time, and at least one page, so that the log is read in
    the end however fast clients write. A log that ends below the point counts as LINK_WRITES: the link has to repair
    it.
    """
    points, theirs = switch_points(state), (fenced.producer_id, marker_producer_id(fenced.producer_id))
    known = {TopicPartition(writes.topic, writes.partition): writes for writes in state.foreign_writes}
    starts = cluster.list_offsets(ends, OffsetKind.EARLIEST)
    found: dict[TopicPartition, PastPointScan] = {}
    for partition, end in ends.items():
        writes = next_scan_range(known.get(partition), partition, points[partition], starts[partition], end)
        if end < points[partition]:
            found[partition] = PastPointScan(PastPointContent.LINK_WRITES, writes, points[partition])
            continue
        over_s = steady_s() + FOREIGN_READ_S / len(ends)
        found[partition] = scan_past_point(
            writes,
            points[partition],
            theirs,
            partial(_is_fence, partition=partition, fenced=fenced),
            partial(_page, cluster, partition),
            partial(_is_before, over_s),
            follows=state.kind is SwitchKind.FORCED,
        )
    return found


def _is_before(over_s: float) -> bool:
    return steady_s() < over_s


def _page(cluster: KafkaCluster, partition: TopicPartition, at: int) -> list[BatchHeader]:
    fetched = cluster.read_from(partition, at, bytes_max=PAGE_BYTES, committed=False)
    return [header for _, header in split_batches(fetched.records)]


def is_fence(cluster: KafkaCluster, partition: TopicPartition, point: int, fenced: FencedProducer) -> bool:
    header = cluster.read_tail_batch(partition, point)
    return header is not None and header.base_offset == point and _is_fence(header, partition, fenced)


def _is_fence(header: BatchHeader, partition: TopicPartition, fenced: FencedProducer) -> bool:
    writer = header.producer_id, header.producer_epoch
    return bool(header.attributes & CONTROL_FLAG) and writer == (fenced.producer_id, fenced.epoch(partition))


def _write(
    new: KafkaCluster, partitions: Iterable[TopicPartition], fenced: FencedProducer
) -> dict[TopicPartition, int]:
    by_node: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        by_node.setdefault(new.leader_of(partition), []).append(partition)
    refused: dict[TopicPartition, int] = {}
    for node, led in by_node.items():
        ask = partial(_ask, fences=_fences(new, led, fenced.producer_id), fenced=fenced)
        refused |= new.at(node, "the fence", ask)
    return refused


def _fences(new: KafkaCluster, partitions: Iterable[TopicPartition], producer_id: int) -> dict[TopicPartition, int]:
    known = new.describe_producers(partitions)
    return {
        partition: 1 + max((one.coordinator_epoch for one in states if one.producer_id == producer_id), default=-1)
        for partition, states in known.items()
    }


def _ask(
    connection: Connection, timeout_s: float, *, fences: Mapping[TopicPartition, int], fenced: FencedProducer
) -> dict[TopicPartition, int]:
    connection.handwritten_version(MARKERS_KEY)
    markers = []
    for partition, fence in fences.items():
        where = [(partition.topic, [partition.partition])]
        markers.append((TransactionMarker(fenced.producer_id, fenced.epoch(partition), False, fence, where), 1))
    body, timeout_s = encode_markers(markers), max(timeout_s, FENCE_TIMEOUT_S)
    answers = connection.ask(MARKERS_KEY, MARKERS_VERSION, body, parse_markers, timeout_s=timeout_s)
    return {TopicPartition(one.topic, one.partition): one.error for one in answers if one.error != Code.none}


TRIES_MAX = 10
RETRY_INTERVAL_S = 0.3
APPEND_TIMEOUT_S = 30.0


def append_batch(
    cluster: KafkaCluster, partition: TopicPartition, who: tuple[int, int], sequence: int, records: Sequence[Record]
) -> int:
    """Returns the offset after the batch once all in-sync replicas have it; 0 if the broker reports a duplicate. A
    retry does not write twice. `who`: producer id and epoch.
    """
    batch = encode_batch(records, producer_id=who[0], producer_epoch=who[1], base_sequence=sequence)
    for number in range(TRIES_MAX):
        try:
            tp = cluster.partition_of(partition, refresh=number > 0)
            topic_id = cluster.metadata([partition.topic], refresh=False).topics[partition.topic].topic_id
            connection = cluster.connection_to(tp.leader)
            at = produce_batch(connection, cluster.name, partition, topic_id, batch, timeout_s=APPEND_TIMEOUT_S)
            return at + len(records)
        except KafkaError as error:
            if error.code == Code.duplicate_sequence_number:
                return 0
            if not error.retriable or number == TRIES_MAX - 1:
                raise
            time.sleep(RETRY_INTERVAL_S)
    raise AssertionError("the last try returns or raises")
