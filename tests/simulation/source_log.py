"""A source partition as its producers and its broker make it: batches, transactions, compaction, retention, elections.

It remembers every record ever written, also those it lost, so that a twin can be judged against each history.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from tests.simulation.replicas import Entry, ReplicatedLog
from twinshore.kafka.protocol.record_batch import (
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    SEQUENCE_SPAN,
    TRANSACTIONAL_FLAG,
    Codec,
    Record,
    decode_batch,
    encode_batch,
    split_batches,
)

PLAIN_PRODUCERS = (-1, 7, 8)
TRANSACTIONAL_PRODUCERS = (101, 102, 103)
DELETE_HORIZON = 0x40
_MARKER = struct.Struct(">hh")
_END = struct.Struct(">hi")


class Style(NamedTuple):
    """How records come to this partition. `keys`: how many keys there are, 0 for none."""

    old_part: float = 0.0
    keys: int = 0
    transactions: bool = False
    append_time: bool = False
    codecs: tuple[Codec, ...] = (Codec.NONE,)
    records_max: int = 3
    large_part: float = 0.3


@dataclass(frozen=True, slots=True)
class Transaction:
    """Offsets from `first` on; `marker` is where it ended, None while it is open."""

    producer_id: int
    first: int
    marker: int | None = None
    committed: bool | None = None  # once its coordinator has decided


class SourceLog(ReplicatedLog):
    def __init__(
        self, topic_id: bytes, partition: int, nodes: tuple[int, ...], chance: random.Random, style: Style
    ) -> None:
        super().__init__(nodes, chance)
        self.topic_id, self.partition, self.style = topic_id, partition, style
        self.records: dict[int, list[tuple[int, Record]]] = {}  # by offset: (leader epoch, as consumers see it)
        self.transactional: dict[tuple[int, int], int] = {}  # by offset and leader epoch: whose transaction it is in
        self.parents: dict[int, tuple[int, int]] = {0: (0, -1)}  # by epoch: where it began, whose log it continued
        self.transactions: list[Transaction] = []
        self.next_sequence: dict[int, int] = {}
        self.producers: list[tuple[int, int, int, int, int, int]] = []
        self.damaged: dict[tuple[int, int], bytes] = {}  # by base and leader epoch: what lay there before a bit turned
        self.unlisted: set[int] = set()  # aborted transactions, by their markers, that fetches name no more

    # -- what its producers do

    def write(self, now_ms: int) -> None:
        """One batch of some producer."""
        chance, style = self.chance, self.style
        transactional = style.transactions and chance.random() < 0.6
        producer_id = chance.choice(TRANSACTIONAL_PRODUCERS if transactional else PLAIN_PRODUCERS)
        if transactional and not any(
            one.producer_id == producer_id and one.marker is None for one in self.transactions
        ):
            self.transactions.append(Transaction(producer_id, self.end))
        at_ms = now_ms - (7 * 86_400_000 if chance.random() < style.old_part else 0)
        records = [
            self._record(offset, at_ms) for offset in range(self.end, self.end + chance.randint(1, style.records_max))
        ]
        bits = (TRANSACTIONAL_FLAG if transactional else 0) | (LOG_APPEND_TIME_FLAG if style.append_time else 0)
        self._append(records, bits, producer_id, chance.choice(style.codecs))

    def _record(self, offset: int, at_ms: int) -> Record:
        chance, keys = self.chance, self.style.keys
        value = b"%d/%d" % (offset, self.epoch) + b"." * (120 if chance.random() < self.style.large_part else 2)
        if not keys:
            return Record(offset, at_ms, None if chance.random() < 0.5 else b"k%d" % offset, value)
        return Record(offset, at_ms, b"k%d" % chance.randrange(keys), value if chance.random() < 0.8 else None)

    def _append(self, records: list[Record], bits: int, producer_id: int, codec: Codec) -> None:
        base, end = records[0].offset, records[-1].offset + 1
        first = last = -1
        if producer_id >= 0:
            first = self.next_sequence.get(producer_id, 0)
            last = (first + len(records) - 1) % SEQUENCE_SPAN
            self.next_sequence[producer_id] = (last + 1) % SEQUENCE_SPAN
        epoch = 0 if producer_id >= 0 else -1
        data = encode_batch(
            records,
            codec=codec,
            attributes=bits,
            leader_epoch=self.epoch,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=first,
        )
        stamp = records[-1].timestamp
        for record in records:
            self.records.setdefault(record.offset, []).append((self.epoch, record))
            if bits & TRANSACTIONAL_FLAG:
                self.transactional[record.offset, self.epoch] = producer_id
        self.producers.append((producer_id, epoch, first, last, base, stamp))
        self.append(Entry(base, end, data, producer_id, epoch, first, last, stamp, self.epoch))

    def end_transaction(self, now_ms: int, *, every: bool = False) -> None:
        """Its coordinator writes the marker of one that is open, or of `every` one."""
        open_ones = [number for number, one in enumerate(self.transactions) if one.marker is None]
        for number in open_ones if every else open_ones[:1]:
            one = self.transactions[number]
            committed = self.chance.random() < 0.6 if one.committed is None else one.committed
            key, value = _MARKER.pack(0, 1 if committed else 0), _END.pack(0, 0)
            data = encode_batch(
                [Record(self.end, now_ms, key, value)],
                attributes=CONTROL_FLAG | TRANSACTIONAL_FLAG,
                leader_epoch=self.epoch,
                producer_id=one.producer_id,
                producer_epoch=0,
            )
            self.transactions[number] = replace(one, marker=self.end, committed=committed)
            self.append(
                Entry(self.end, self.end + 1, data, one.producer_id, 0, -1, -1, now_ms, self.epoch, marker=True)
            )

    def fence(self, producer_id: int, now_ms: int) -> None:
        """A switch shuts out the link that wrote here: a marker of no transaction that anybody had."""
        key, value = _MARKER.pack(0, 0), _END.pack(0, 0)
        data = encode_batch(
            [Record(self.end, now_ms, key, value)],
            attributes=CONTROL_FLAG | TRANSACTIONAL_FLAG,
            leader_epoch=self.epoch,
            producer_id=producer_id,
            producer_epoch=1,
        )
        self.append(Entry(self.end, self.end + 1, data, producer_id, 1, -1, -1, now_ms, self.epoch, marker=True))

    # -- what its brokers do

    @property
    def stable(self) -> int:
        """The last stable offset: test_a_reader_of_committed_data_stops_at_the_first_open_transaction."""
        unstable = [one.first for one in self.transactions if one.marker is None or one.marker >= self.high]
        return min([self.high, *unstable])

    def elect(self, node: int) -> int:
        before = self.epoch_starts
        lost_from = super().elect(node)
        owner = max((epoch for epoch, begin in before if begin < lost_from), default=-1)
        self.parents[self.epoch] = (lost_from, owner)
        self.transactions = [
            replace(one, marker=None) if one.marker is not None and one.marker >= lost_from else one
            for one in self.transactions
            if one.first < lost_from
        ]
        self.producers = [one for one in self.producers if one[4] < lost_from]
        return lost_from

    def owner(self, epoch: int, offset: int) -> int:
        """Whose record lies at `offset` in the history that ends with `epoch`."""
        while epoch >= 0 and offset < self.parents[epoch][0]:
            epoch = self.parents[epoch][1]
        return epoch

    def committed(self, offset: int) -> bool:
        """Whether a reader of committed data is shown the record there; control batches are no records."""
        at = self.index(offset)
        if offset < self.start or at >= len(self.entries):
            return False
        entry = self.entries[at]
        if entry.base > offset or entry.marker or self.aborted(entry):
            return False
        ((view, header),) = split_batches(memoryview(self.sound(entry)))
        return any(record.offset == offset for record in decode_batch(view, header))

    def crosses(self, offset: int, epoch: int) -> bool:
        """Whether the record that this history has at `offset` was ever shown to readers of committed data."""
        producer_id = self.transactional.get((offset, epoch))
        if producer_id is None or self.owner(self.epoch, offset) != epoch:
            return True
        return any(
            one.producer_id == producer_id and one.first <= offset < one.marker and bool(one.committed)
            for one in self.transactions
            if one.marker is not None
        )

    def shown(self) -> Iterator[int]:
        """The offsets that a reader of committed data is shown now."""
        stable = self.stable
        for entry, record in self._live():
            if self.start <= record.offset and entry.end <= stable:
                yield record.offset

    def aborted(self, entry: Entry) -> bool:
        return any(
            one.producer_id == entry.producer_id and one.first <= entry.base < one.marker and not one.committed
            for one in self.transactions
            if one.marker is not None
        )

    def read(self, position: int, limit: int, *, whole: bool) -> bytes:
        """Up to the last stable offset, cut at `limit` in mid-batch, but the first batch if `whole`:
        test_a_fetch_cuts_in_mid_batch_but_brings_the_first_whole."""
        found: list[bytes] = []
        size, stable = 0, self.stable
        for number in range(self.index(position), len(self.entries)):
            entry = self.entries[number]
            if entry.base >= stable or size >= limit:
                break
            found.append(entry.data)
            size += len(entry.data)
        if not found:
            return b""
        return b"".join(found)[: max(limit, len(found[0])) if whole else limit]

    def aborted_between(self, position: int, end: int) -> list[tuple[int, int]]:
        """As a fetch lists them: producer id and first offset."""
        return [
            (one.producer_id, one.first)
            for one in self.transactions
            if one.marker is not None
            and not one.committed
            and one.marker >= position
            and one.first < end
            and one.marker not in self.unlisted
        ]

    def compact(self) -> None:
        """One pass of the cleaner below the last stable offset: the newest record of each key stays, aborted ones go,
        a producer's last batch stays though it be empty. A marker may go, and with it the word about an aborted
        transaction, in a pass that finds no batch of its transaction any more (LogCleaner.scala)."""
        bound = self.start + self.chance.randint(0, max(0, self.stable - self.start))
        kept: list[Entry] = []
        newest = {record.key: record.offset for entry, record in self._live() if entry.end <= bound}
        last_of = {entry.producer_id: entry.base for entry in self.entries}
        for entry in self.entries:
            if entry.end > bound:
                kept.append(entry)
            elif (found := self._cleaned(entry, newest, last_of)) is not None:
                kept.append(found)
        if kept:
            self.entries = kept

    def _cleaned(self, entry: Entry, newest: dict[bytes | None, int], last_of: dict[int, int]) -> Entry | None:
        if entry.marker:
            return self._cleaned_marker(entry, last_of)
        ((view, header),) = split_batches(memoryview(entry.data))
        gone = self.aborted(entry)
        records = [one for one in decode_batch(view, header) if not gone and newest.get(one.key) == one.offset]
        if len(records) == header.count:
            return entry
        if not records and last_of[entry.producer_id] != entry.base:
            return None
        return self._emptied(entry, records, header.attributes & (TRANSACTIONAL_FLAG | LOG_APPEND_TIME_FLAG))

    def _cleaned_marker(self, marker: Entry, last_of: dict[int, int]) -> Entry | None:
        for one in self.transactions:
            if one.producer_id != marker.producer_id or one.marker != marker.base:
                continue
            if any(
                entry.producer_id == one.producer_id and one.first <= entry.base < marker.base and not entry.marker
                for entry in self.entries
            ):
                return marker
            self.unlisted.add(marker.base)
        if self.chance.random() < 0.5:
            return marker
        return (
            self._emptied(marker, [], CONTROL_FLAG | TRANSACTIONAL_FLAG)
            if last_of[marker.producer_id] == marker.base
            else None
        )

    @staticmethod
    def _emptied(entry: Entry, records: list[Record], bits: int) -> Entry:
        data = encode_batch(
            records,
            attributes=bits,
            base_offset=entry.base,
            last_offset=entry.end - 1,
            leader_epoch=entry.leader_epoch,
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            base_sequence=entry.first,
        )
        return entry._replace(data=data)

    def sound(self, entry: Entry) -> bytes:
        """The batch as its producer sent it."""
        return self.damaged.get((entry.base, entry.leader_epoch), entry.data)

    def _live(self) -> Iterator[tuple[Entry, Record]]:
        for entry in self.entries:
            if not entry.marker and not self.aborted(entry):
                for view, header in split_batches(memoryview(self.sound(entry))):
                    for record in decode_batch(view, header):
                        yield entry, record
