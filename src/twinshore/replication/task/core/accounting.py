"""What was fetched and is reported once acknowledged, with its producers: they identify a producer that switches to the
twin.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from twinshore.config.model import TopicPartition
from twinshore.kafka.protocol.batch_join import ProducerBatch
from twinshore.replication.task.core.batches import OffsetGap
from twinshore.replication.task.core.messages import UNKNOWN_EPOCH, EpochOffset, PartitionProgress

Producers = list[ProducerBatch]
BATCHES_PER_PRODUCER = 5  # batches per producer id that a broker itself remembers


class PendingProgress(NamedTuple):
    """One fetch of a partition: offsets [begin, end), source batches, their producers, and the gaps that readers do not
    see.
    """

    begin: int
    end: int
    size: int = 0
    batches: int = 0
    seen_ms: int = 0
    producers: Sequence[ProducerBatch] = ()
    gaps: tuple[OffsetGap, ...] = ()
    epoch: int = -1  # the source's leader epoch of the last record below `end`, or -1


class AcknowledgedProgress(NamedTuple):
    """The acknowledged part, up to `end`. `first_ms`: 0 for nothing."""

    end: int
    size: int
    batches: int
    unseen: int
    first_ms: int
    producers: Producers
    epoch: int


def take_acknowledged(noted: deque[PendingProgress], acked: int, told: int = 0) -> AcknowledgedProgress:
    """Takes fetches wholly below `acked`. Gaps below `told` were counted before."""
    producers: Producers = []
    size = batches = unseen = first_ms = 0
    reached = epoch = -1
    while noted and noted[0].end <= acked:
        entry = noted.popleft()
        producers.extend(entry.producers)
        unseen += sum(max(0, min(gap.end, entry.end) - max(gap.base, told)) for gap in entry.gaps)
        size, batches, first_ms = size + entry.size, batches + entry.batches, first_ms or entry.seen_ms
        reached, epoch = entry.end, entry.epoch
    end = min(acked, noted[0].begin) if noted else acked
    return AcknowledgedProgress(end, size, batches, unseen, first_ms, producers, epoch if reached == end else -1)


def truncate_pending(noted: deque[PendingProgress], end: int, told: EpochOffset) -> int:
    """Removes what is at `end` or above. Returns the source's leader epoch below, if known. `told`: the progress
    before.
    """
    while noted and noted[-1].end > end:
        entry = noted.pop()
        if entry.begin < end:
            producers = [producer for producer in entry.producers if producer[4] < end]
            noted.append(entry._replace(end=end, producers=producers, epoch=-1))
    last = EpochOffset(noted[-1].epoch, noted[-1].end) if noted else told
    return last.epoch if last.end == end else UNKNOWN_EPOCH


def latest_batches(batches: Producers) -> Producers:
    """The last five batches of each idempotent producer, which identify a retry after a switch."""
    kept: Producers = []
    times: dict[int, int] = {}
    for entry in reversed(batches):
        known = times.get(entry[0], 0)
        if known < BATCHES_PER_PRODUCER:
            times[entry[0]] = known + 1
            kept.append(entry)
    kept.reverse()
    return kept


@dataclass(slots=True)
class SourceState:
    """The source's log start and end, and how reads went."""

    end: int = 0
    start: int = 0
    # Consecutive failed reads, and whether one has succeeded since the last failure or the start.
    unread: int = 0
    heard: bool = False
    # The leader epoch that a fetch may name for the last record below `fetched`, or -1: the source may know
    # only an earlier one there. If -1, the next fetch continues the history while the source is led in `led`.
    epoch: int = -1
    led: int = -1


@dataclass(slots=True)
class ProgressLog:
    """One partition's progress, reported up to `to`; `epoch`: the leader epoch below. `noted`: not reported yet."""

    to: int = 0
    epoch: int = -1
    # The source's log start and end in the last progress.
    source: tuple[int, int] = (-1, -1)
    gap_to: int = 0
    last_ms: int = 0
    noted: deque[PendingProgress] = field(default_factory=deque)
    # The last progress withheld the epoch.
    epoch_unreported: bool = False

    @property
    def stand(self) -> EpochOffset:
        """The replicated history, and up to where that is reported."""
        return EpochOffset(self.epoch, self.to)

    def account(
        self, partition: TopicPartition, acked: int, source: SourceState, may_tell: Callable[[int], int]
    ) -> PartitionProgress | None:
        """Progress since the last call. None if there is none and the source is unchanged. `may_tell`: the epoch to
        report now; a withheld one is reported later, even without new offsets.
        """
        if self.epoch_unreported and may_tell(self.epoch) == self.epoch:
            self.source = (-1, -1)
        progress = self._account(partition, acked, source)
        if progress is None:
            return None
        epoch = may_tell(progress.epoch)
        self.epoch_unreported = epoch != progress.epoch
        return replace(progress, epoch=epoch)

    def _account(self, partition: TopicPartition, acked: int, source: SourceState) -> PartitionProgress | None:
        if acked > self.to:
            done = take_acknowledged(self.noted, acked, self.to)
            if done.first_ms and done.end > self.to:
                return self._carried(partition, done, source)
        # Nothing was replicated; but the source may have grown, and then we lag, or lost its beginning.
        bounds = source.start, source.end
        astray = acked < self.to or source.end < acked
        if not source.heard or astray or bounds == self.source:
            return None
        self.source = bounds
        return self.nothing(partition, source.start, source.end)

    def _carried(self, partition: TopicPartition, done: AcknowledgedProgress, source: SourceState) -> PartitionProgress:
        begin, self.to, self.epoch = self.to, done.end, done.epoch
        self.source = source.start, source.end
        records = max(0, done.end - begin - done.unseen)
        return replace(
            self.nothing(partition, source.start, source.end),
            from_offset=begin,
            records=records,
            bytes=done.size,
            batches=done.batches,
            first_ms=done.first_ms,
            producers=tuple(done.producers),
        )

    def nothing(self, partition: TopicPartition, source_start: int, source_end: int) -> PartitionProgress:
        """The present progress, without offsets."""
        counts = (self.to, self.to, 0, 0, 0, source_end, source_start, self.last_ms, self.last_ms)
        return PartitionProgress(partition.topic, partition.partition, *counts, epoch=self.epoch)
