"""Twinshore's own small records in a topic with one partition."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from twinshore.config.errors import KafkaError, WireError
from twinshore.config.model import TopicPartition
from twinshore.kafka.clock import delay_s
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind, produce_batch
from twinshore.kafka.pool import is_retriable
from twinshore.kafka.protocol.error_codes import Code, kafka_error
from twinshore.kafka.protocol.record_batch import Record, decode_batch, encode_batch, split_batches

APPEND_ATTEMPTS_MAX = 4
COPIES_MAX = 3
RETRY_DELAY_S = 0.2
REQUEST_TIMEOUT_MIN_S = 0.01
REPLICAS_TIMEOUT_MS = 5_000
EMPTY_FETCHES_MAX = 20
EMPTY_FETCH_DELAY_S = 0.1
READ_BYTES = 1 << 20
UNPACKED_BATCH_BYTES_MAX = 1 << 26  # decompressed
APPEND_BYTES_MAX = 1 << 18

KeyValue = tuple[bytes, bytes | None]


class StateRecord(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def split_into_batches(lines: Iterable[KeyValue]) -> Iterator[list[KeyValue]]:
    """Split into batches that any broker accepts. Each is written whole or not at all."""
    some: list[KeyValue] = []
    size = 0
    for key, value in lines:
        more = len(key) + len(value or b"")
        if some and size + more > APPEND_BYTES_MAX:
            yield some
            some, size = [], 0
        some.append((key, value))
        size += more
    if some:
        yield some


class StateTopic:
    """One topic. Only `make` creates it."""

    def __init__(
        self, cluster: KafkaCluster, topic: str, *, call_s: float = 5.0, rng: random.Random | None = None
    ) -> None:
        self._cluster = cluster
        self._partition = TopicPartition(topic, 0)
        self._call_s = call_s
        self._rng = rng or random.Random()

    def exists(self) -> bool:
        return bool(self.seen()[0])

    def seen(self) -> tuple[bytes, int]:
        """Returns the topic's id, which changes when the topic is recreated (empty: it does not exist), and its leader
        epoch: while that stays, no record was overwritten as far as brokers know.
        """
        topic = self._cluster.metadata([self._partition.topic], refresh=True).topics.get(self._partition.topic)
        if topic is None or topic.error:
            return b"", -1
        return topic.topic_id, topic.partitions[0].leader_epoch

    def make(self, settings: dict[str, str], *, lasting: bool = False) -> None:
        """Create the topic unless it exists. `lasting`: records survive the loss of one broker, if there are enough."""
        brokers = len(self._cluster.metadata([], refresh=True).brokers)
        copies = min(COPIES_MAX, max(1, brokers))
        if lasting:
            in_sync = str(max(1, copies - 1))
            settings = {**settings, "unclean.leader.election.enable": "false", "min.insync.replicas": in_sync}
        try:
            name = self._partition.topic
            self._cluster.admin.create_topic(name, partitions=1, replication_factor=copies, settings=settings)
        except KafkaError as error:
            if error.code != Code.topic_already_exists:
                raise

    def append(self, entries: Sequence[KeyValue], now_ms: int) -> None:
        """Append in one batch. After a lost response the records may be there twice."""
        records = [Record(index, now_ms, key, value) for index, (key, value) in enumerate(entries)]
        batch = encode_batch(records)
        for times in range(APPEND_ATTEMPTS_MAX):
            try:
                self._append_once(batch, refresh=times > 0)
            except KafkaError as error:
                wait_s = delay_s(times + 1, self._rng, first_s=RETRY_DELAY_S)
                if not is_retriable(error) or times == APPEND_ATTEMPTS_MAX - 1 or wait_s >= self._cluster.left_s():
                    raise
                time.sleep(wait_s)
            else:
                return

    def _append_once(self, batch: bytes, *, refresh: bool) -> None:
        partition = self._cluster.partition_of(self._partition, refresh=refresh)
        topic = self._cluster.metadata([self._partition.topic], refresh=False).topics.get(self._partition.topic)
        if topic is None:  # deleted between the two
            place, right = f"{self._cluster.name}: {self._partition}", f"Describe on topic {self._partition.topic}"
            raise kafka_error(Code.unknown_topic_or_partition, place, right=right)
        produce_batch(
            self._cluster.connection_to(partition.leader),
            self._cluster.name,
            self._partition,
            topic.topic_id,
            batch,
            timeout_s=max(REQUEST_TIMEOUT_MIN_S, min(self._call_s, self._cluster.left_s())),
            timeout_ms=REPLICAS_TIMEOUT_MS,
        )

    def bounds(self) -> tuple[int, int]:
        """Returns log start and log end."""
        return self._bound(OffsetKind.EARLIEST), self.end()

    def end(self) -> int:
        return self._bound(OffsetKind.HIGH_WATERMARK)

    def pages(self, offset: int, bounds: tuple[int, int] | None = None) -> Iterator[tuple[list[StateRecord], int]]:
        """Yields the records from `offset` to the log end or to `bounds`, in pages, each with the next offset."""
        start, end = bounds or self.bounds()
        position = max(offset, start)
        idle = 0
        while position < end and idle < EMPTY_FETCHES_MAX:
            before = position
            if idle:
                time.sleep(EMPTY_FETCH_DELAY_S)
            fetched = self._cluster.read_from(self._partition, before, bytes_max=READ_BYTES, committed=False)
            try:
                some, position = _records(fetched.records, before)
            except WireError as malformed:
                place = f"{self._cluster.name}: read {self._partition} from offset {before}"
                raise KafkaError(f"{place}: {malformed.message}") from malformed
            yield some, position
            idle = idle + 1 if position == before else 0

    def last(self) -> StateRecord | None:
        """Returns the newest record."""
        records = [record for some, _ in self.pages(max(0, self.end() - 1)) for record in some]
        return records[-1] if records else None

    def _bound(self, kind: OffsetKind) -> int:
        return self._cluster.list_offsets([self._partition], kind)[self._partition]


def _records(records: memoryview, position: int) -> tuple[list[StateRecord], int]:
    found: list[StateRecord] = []
    onward = position
    for data, header in split_batches(records):
        onward = header.last_offset + 1
        if header.attributes & 0x20:
            continue
        # Strangers may write unreadable batches there: these must not hide later records.
        with suppress(WireError):
            some = decode_batch(data, header, limit_bytes=UNPACKED_BATCH_BYTES_MAX)
            found += [StateRecord(*record[:4]) for record in some if record.offset >= position]
    return found, onward
