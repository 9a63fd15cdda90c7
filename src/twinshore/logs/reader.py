"""A long stretch of one log, streamed from its leader over a separate connection, one fetch always under way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

import numpy as np

from twinshore.fleet import KafkaError, NamedPartition, WireError
from twinshore.kafka.backoff import delay_s
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.kafka.connection import Connection
from twinshore.kafka.errors import Code, kafka_error
from twinshore.kafka.patience import may_pass
from twinshore.wire.batch import split_batches
from twinshore.wire.fetch import FETCH_KEY, FetchedPartition, FetchPartition, encode_fetch, parse_fetch
from twinshore.wire.framing import Framer
from twinshore.wire.join import compiled_loops


class Pace:
    """Bytes per second, held to by pauses. After each read it waits until so many bytes are due; 0: no bound. What was
    not used is not saved up."""

    def __init__(
        self,
        bytes_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_s, self._clock, self._sleep = bytes_s, clock, sleep
        self._due_s = clock()

    def taken(self, size: int) -> None:
        """So many bytes were read."""
        if not self._bytes_s:
            return
        now_s = self._clock()
        self._due_s = max(self._due_s, now_s - 0.1) + size / self._bytes_s
        if self._due_s > now_s:
            self._sleep(self._due_s - now_s)

    def most(self, wanted: int) -> int:
        """How much to ask for at once, so that no pause is long."""
        return wanted if not self._bytes_s else int(min(wanted, max(16 << 10, self._bytes_s / 4)))


FETCH_BYTES = 4 << 20
PATIENCE_S = 45.0
EMPTY_S = 10.0  # A new leader may show less than was there, until its followers have told it how far they are.
ANSWER_S = 30.0
WAIT_MS = 500
COMMITTED = 1
_MOVED = frozenset({Code.FENCED_LEADER_EPOCH, Code.UNKNOWN_LEADER_EPOCH, Code.UNKNOWN_TOPIC_ID})


class Fetched(NamedTuple):
    """A stretch up to `end`, from where the one before it ended: whole batches, and perhaps the beginning of another.

    `aborted`: producer id and first offset of each transaction among them that was aborted.
    """

    end: int
    records: memoryview
    aborted: list[tuple[int, int]]


class LogReader:
    """Reads up to `end`, below the last stable offset. `position` is behind what was given out, `read_bytes` all that
    came; `skipped_to` is where the log begins when it no longer held the first offsets wanted."""

    def __init__(
        self,
        kafka: KafkaCluster,
        named: NamedPartition,
        position: int,
        end: int,
        pace: Pace | None = None,
        *,
        client_id: str,
    ) -> None:
        self.position = position
        self.read_bytes = 0
        self.skipped_to = -1
        self._kafka, self._named, self._end = kafka, named, end
        self._pace, self._client_id = pace or Pace(0), client_id
        self._line: Connection | None = None
        self._framer = Framer()
        self._asked_at = -1
        self._buffers = [bytearray(1 << 16), bytearray(1 << 16)]
        self._turn = 0
        self._rng = Random()

    def fetches(self) -> Iterator[Fetched]:
        """What each fetch brought, without a gap, to `end` or beyond; each is good until the next is asked for."""
        progress_s = time.monotonic()
        failures = 0
        while self.position < self._end:
            try:
                fetched = self._fetched()
                if fetched.error == Code.OFFSET_OUT_OF_RANGE:
                    yield self._skip()
                    continue
                if fetched.error:
                    raise kafka_error(fetched.error, f"{self._kafka.name}: {self._named}", right="Read on the topic")
                behind = max(self.position, offset_behind(fetched.records))
                if behind == self.position and len(fetched.records):
                    raise WireError(f"{self._kafka.name}: {self._named}: no batch at offset {self.position} is whole")
                if behind > self.position:
                    progress_s, failures = time.monotonic(), 0
                    self._ask(behind)
            except KafkaError as error:
                failures += 1
                self._lose(error, progress_s, failures)
                continue
            if behind > self.position:
                yield Fetched(behind, fetched.records, fetched.aborted)
                self.position = behind
            elif time.monotonic() - progress_s > EMPTY_S:
                raise KafkaError(
                    f"{self._kafka.name}: {self._named}: nothing to read at offset {self.position}, below its end",
                    hint="has its end been cut off, by an unclean election or a topic made again?",
                )

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
        self._asked_at = -1

    def _skip(self) -> Fetched:
        """The log begins later by now: so far nobody sees anything."""
        self.close()
        start = self._kafka.list_offsets([self._named], OffsetKind.EARLIEST)[self._named]
        if start <= self.position:
            ended = self._kafka.list_offsets([self._named], OffsetKind.HIGH_WATERMARK)[self._named]
            raise KafkaError(
                f"{self._kafka.name}: {self._named} ends at {ended}, before offset {self.position}",
                hint="was the topic made again, or its end cut off by an unclean election?",
            )
        self.position = self.skipped_to = start
        return Fetched(start, memoryview(b""), [])

    def _lose(self, error: KafkaError, progress_s: float, failures: int) -> None:
        self.close()
        if not may_pass(error) and error.code not in _MOVED:
            raise error
        if time.monotonic() - progress_s > PATIENCE_S:
            raise error
        time.sleep(delay_s(failures, self._rng))
        self._kafka.partition_of(self._named, refresh=True)

    def _fetched(self) -> FetchedPartition:
        """The answer to the fetch at `position`."""
        if self._asked_at != self.position:
            self._ask(self.position)
        assert self._line is not None
        try:
            got = self._line.finish(ANSWER_S)
        finally:
            self._asked_at = -1
        self._buffers[self._turn] = self._framer.buffer
        self.read_bytes += len(got.view)
        self._pace.taken(len(got.view))
        answer = parse_fetch(got.view, got.position)
        if answer.error or not answer.partitions:
            raise kafka_error(answer.error or Code.UNKNOWN_TOPIC_ID, f"{self._kafka.name}: {self._named}")
        return answer.partitions[0]

    def _ask(self, position: int) -> None:
        """Sends the fetch of what lies at `position`, unless that is the end."""
        if position >= self._end:
            return
        found = self._kafka.partition_of(self._named)
        if self._line is None:
            self._line = self._kafka.dial(self._kafka.leader_of(self._named))
            self._framer = self._line.hand_over(self._client_id).framer
        version = self._line.spoken(FETCH_KEY)
        topic_id = self._kafka.metadata([self._named.topic], refresh=False).topics[self._named.topic].topic_id
        most = self._pace.most(FETCH_BYTES)
        body = encode_fetch(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=most,
            isolation=COMMITTED,
            partitions=[FetchPartition(topic_id, self._named.partition, position, found.leader_epoch, -1, most)],
        )
        # What the fetch before it brought may be in use still.
        self._turn ^= 1
        self._line.lend(self._buffers[self._turn])
        self._line.begin(FETCH_KEY, version, [body], timeout_s=ANSWER_S)
        self._asked_at = position


def offset_behind(records: memoryview) -> int:
    """The offset behind the last complete batch of a fetch, -1 where none is complete."""
    compiled = compiled_loops()
    if compiled is not None and len(records):
        after, place = compiled.last_of(np.frombuffer(records.toreadonly(), dtype=np.uint8), 0)
        if place == len(records):
            return int(after)
        rest = split_batches(records[place:])
    else:
        after, rest = -1, split_batches(records)
    return rest[-1][1].last_offset + 1 if rest else int(after)
