"""What a partition's leader remembers of producers, as Kafka's ProducerStateManager does.

Each rule names the test on real brokers that shows it; they are in tests/scenarios/test_protocol_beliefs.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from twinshore.kafka.protocol.error_codes import Code
from twinshore.kafka.protocol.record_batch import SEQUENCE_SPAN, BatchHeader

BATCHES_KNOWN = 5  # test_older_than_five_batches_is_refused_and_nothing_is_written
NO_SEQUENCE = -1


class Numbered(NamedTuple):
    """A batch as its producer numbered it, and where it landed."""

    first: int
    last: int
    base: int
    end: int


@dataclass(slots=True)
class Known:
    epoch: int
    timestamp: int
    last: int = NO_SEQUENCE
    batches: deque[Numbered] = field(default_factory=lambda: deque(maxlen=BATCHES_KNOWN))
    coordinator_epoch: int = -1


def last_sequence(header: BatchHeader) -> int:
    """test_sequences_wrap_from_two_to_the_31st_to_zero"""
    return (header.base_sequence + header.last_offset_delta) % SEQUENCE_SPAN


class ProducerMemory:
    def __init__(self, expiry_ms: int) -> None:
        self.expiry_ms = expiry_ms
        self.known: dict[int, Known] = {}

    def check(self, header: BatchHeader) -> int | Numbered:
        """0: append it; another code: refuse it; a batch: it is that one, which was appended before."""
        known = self.known.get(header.producer_id)
        if known is None:
            return 0  # test_an_unknown_producer_may_start_at_any_sequence
        if header.producer_epoch < known.epoch:
            return Code.invalid_producer_epoch  # test_markers_fence_a_zombie
        if header.producer_epoch > known.epoch:
            # test_markers_fence_a_zombie: a new epoch begins at 0
            return 0 if header.base_sequence == 0 else Code.out_of_order_sequence_number
        last = last_sequence(header)
        for entry in known.batches:
            # test_a_batch_sent_again_gets_its_old_offset, test_the_comparison_is_of_sequences_not_of_content
            if (entry.first, entry.last) == (header.base_sequence, last):
                return entry
        # test_a_gap_an_overlap_or_another_cut_is_out_of_sequence; after a marker alone the next one is 0:
        # test_a_marker_makes_an_unknown_producer_begin_at_zero
        in_order = header.base_sequence == (known.last + 1) % SEQUENCE_SPAN
        return 0 if in_order else Code.out_of_order_sequence_number

    def appended(self, producer_id: int, epoch: int, batch: Numbered, timestamp: int) -> None:
        """The last batch's own time stamp counts: test_producer_state_expires_by_the_age_of_the_data."""
        known = self.known.get(producer_id)
        if known is None or known.epoch != epoch:
            before = known.coordinator_epoch if known else -1
            known = self.known[producer_id] = Known(epoch, timestamp, coordinator_epoch=before)
        known.batches.append(batch)
        known.last, known.timestamp = batch.last, timestamp

    def mark(self, producer_id: int, epoch: int, coordinator_epoch: int, now_ms: int) -> int:
        """A marker's code: test_markers_fence_a_zombie, test_markers_take_offsets_that_no_sequence_counts."""
        known = self.known.get(producer_id)
        if known is not None:
            if epoch < known.epoch:
                return Code.invalid_producer_epoch
            if coordinator_epoch < known.coordinator_epoch:
                return Code.transaction_coordinator_fenced
        if known is None or known.epoch != epoch:
            # test_a_marker_makes_an_unknown_producer_begin_at_zero
            known = self.known[producer_id] = Known(epoch, now_ms)
        # ... "it carries the time of today, so it outlives the data around it"
        known.timestamp, known.coordinator_epoch = now_ms, coordinator_epoch
        return 0

    def sweep(self, now_ms: int) -> None:
        """test_producer_state_expires_by_the_age_of_the_data"""
        for producer_id in [one for one, known in self.known.items() if known.timestamp + self.expiry_ms <= now_ms]:
            del self.known[producer_id]

    def rebuild(self, entries: Iterable[tuple[int, int, Numbered | None, int, int]], now_ms: int) -> None:
        """A new leader knows what its own log says: (producer id, epoch, batch or None for a marker, coordinator epoch,
        time stamp). test_a_new_leader_knows_the_producers_of_its_log"""
        self.known.clear()
        for producer_id, epoch, batch, coordinator_epoch, timestamp in entries:
            if producer_id < 0:
                continue
            if batch is None:
                self.mark(producer_id, epoch, coordinator_epoch, timestamp)
            else:
                self.appended(producer_id, epoch, batch, timestamp)
        self.sweep(now_ms)
