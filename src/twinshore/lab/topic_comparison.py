"""Compares two topics record by record, with a stock client that is independent of the mirror."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import Message, TopicPartition

from twinshore.config.model import Cluster
from twinshore.lab.clients import create_log_consumer, read_to_end
from twinshore.lab.processes import LabError

_FETCH_BYTES = 4 * 1024 * 1024
_QUEUED_KB = 32 * 1024


class SeenRecord(NamedTuple):
    offset: int | None
    timestamp: tuple[int, int]
    """Type (1: set by the producer, 2: by the broker) and milliseconds."""
    key: bytes | str | None
    value: bytes | str | None
    headers: object


@dataclass(frozen=True, slots=True)
class TopicDifference:
    """The first difference of a partition. The side without the record has None; `what` describes the difference."""

    partition: int
    offset: int
    what: str
    source: SeenRecord | None = None
    target: SeenRecord | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was compared, and the first difference of the lowest partition with one."""

    topic: str
    partitions: int
    records: int
    first_difference: TopicDifference | None = None

    @property
    def identical(self) -> bool:
        return self.first_difference is None

    def __str__(self) -> str:
        counted = f"{self.topic}: {self.records} records, {self.partitions} partitions"
        found = self.first_difference
        if found is None:
            return f"identical, {counted}"
        return (
            f"different, {counted}; partition {found.partition} offset {found.offset}: {found.what};"
            f" source {found.source}, target {found.target}"
        )


def compare_topic(
    source: Cluster,
    target: Cluster,
    topic: str,
    *,
    target_topic: str = "",
    heard: Callable[[Message], None] = lambda _message: None,
) -> Comparison:
    """Reads both topics from start to the present end and compares every visible byte, in order.

    `heard` gets each record that is equal on both sides. Aborted records are compared too; control records are
    invisible, but shift offsets. Call only after all writers have stopped.
    """
    target_topic = target_topic or topic
    records = 0
    with closing(_Reader(source, topic)) as left, closing(_Reader(target, target_topic)) as right:
        count = len(left.partitions)
        if left.partitions != right.partitions:
            what = f"source has {count} partitions, target has {len(right.partitions)}"
            return Comparison(topic, count, 0, TopicDifference(-1, -1, what))
        for partition in left.partitions:
            left_ends, right_ends = left.ends(partition), right.ends(partition)
            records_of = left.records(partition, left_ends), right.records(partition, right_ends)
            read, found = _compare(partition, *records_of, heard)
            records += read
            if found is None and left_ends != right_ends:
                what = f"source's log goes from {left_ends[0]} to {left_ends[1]}, target's from {right_ends[0]} to"
                found = TopicDifference(partition, min(left_ends[1], right_ends[1]), f"{what} {right_ends[1]}")
            if found is not None:
                return Comparison(topic, count, records, found)
    return Comparison(topic, count, records)


def _compare(
    partition: int, source: Iterator[Message], target: Iterator[Message], heard: Callable[[Message], None]
) -> tuple[int, TopicDifference | None]:
    records = 0
    while True:
        left, right = next(source, None), next(target, None)
        if left is None or right is None:
            return records, _missing(partition, left, right)
        records += 1
        on_source, on_target = _seen(left), _seen(right)
        if on_source != on_target:
            return records, _difference(partition, on_source, on_target)
        heard(left)


def _missing(partition: int, left: Message | None, right: Message | None) -> TopicDifference | None:
    present = left or right
    if present is None:
        return None
    what = f"the {'target' if right is None else 'source'} ends before it"
    return TopicDifference(
        partition, present.offset() or 0, what, (left and _seen(left)) or None, (right and _seen(right)) or None
    )


def _difference(partition: int, left: SeenRecord, right: SeenRecord) -> TopicDifference:
    fields = [name for name in SeenRecord._fields if getattr(left, name) != getattr(right, name)]
    offset = min(left.offset or 0, right.offset or 0)
    return TopicDifference(partition, offset, f"{' and '.join(fields)} differ", left, right)


def _seen(message: Message) -> SeenRecord:
    return SeenRecord(message.offset(), message.timestamp(), message.key(), message.value(), message.headers())


class _Reader:
    """Reads one side's partitions, from start to the end at the call."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic = topic
        settings = {
            "fetch.message.max.bytes": _FETCH_BYTES,
            "queued.max.messages.kbytes": _QUEUED_KB,
            "check.crcs": True,
            # By default the client pauses a whole second when its queue is full.
            "fetch.queue.backoff.ms": 10,
        }
        self._consumer = create_log_consumer(cluster, settings=settings)
        listed = self._consumer.list_topics(topic, timeout=30).topics[topic]
        if listed.error is not None:
            self._consumer.close()
            raise LabError("lab.unreadable-topic", topic=topic, cluster=cluster.name, cause=listed.error.str())
        self.partitions = sorted(listed.partitions)

    def close(self) -> None:
        self._consumer.close()

    def ends(self, partition: int) -> tuple[int, int]:
        """Log start and end offsets, read from the broker now."""
        start, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=30)
        return start, end

    def records(self, partition: int, ends: tuple[int, int]) -> Iterator[Message]:
        start, end = ends
        return read_to_end(self._consumer, self._topic, partition, start, end) if start < end else iter(())
