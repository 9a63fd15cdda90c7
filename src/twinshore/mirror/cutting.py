"""Fetched batches become parcels, restamped for the target and joined, and blanks: offsets that nobody sees.

Pure, and the pump's hottest loop: the ordinary batch costs one header check, two CRCs and one packed header.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from twinshore.fleet import TooLargeError, WireError
from twinshore.mirror.joining import Hold, Joining
from twinshore.mirror.orders import LaneLimits
from twinshore.mirror.passage.fates import Aborted, Blank, fates
from twinshore.wire.batch import (
    CONTROL,
    HEADER_BYTES,
    PREFIX_BYTES,
    SEQUENCE_SPAN,
    TIMESTAMP_APPEND,
    TRANSACTIONAL,
    BatchHeader,
    next_batch,
    restamp_checked,
)
from twinshore.wire.join import Producer
from twinshore.wire.merge import can_merge, merge_small, restamp_merged
from twinshore.wire.primitives import Buffer

MAGIC_AT, MAGIC = 16, 2
ODD = CONTROL | TRANSACTIONAL | TIMESTAMP_APPEND
Batch = tuple[memoryview, BatchHeader]


class Halt(Exception):
    """The partition cannot go on at `offset`; the lane turns this into an incident."""

    def __init__(self, kind: str, offset: int, end: int, sentence: str) -> None:
        super().__init__(sentence)
        self.kind, self.offset, self.end, self.sentence = kind, offset, end, sentence


class Stamp(NamedTuple):
    """How offsets become sequences on one twin: the data's own, so that the broker can compare and swap."""

    producer_id: int
    producer_epoch: int
    anchor_offset: int
    anchor_sequence: int

    def after(self, blanks: int) -> Stamp:
        """The stamp behind so many more offsets that no sequence counts."""
        return self._replace(anchor_offset=self.anchor_offset + blanks)


class Parcel(NamedTuple):
    """One batch ready to send: offsets [base, end) of the twin. `room` is where a joined body lies."""

    head: bytes
    body: Buffer
    base: int
    end: int
    size: int
    max_timestamp: int
    room: Hold | None = None


class Carriage(NamedTuple):
    """Source batches from offset `base` on: what the receipts will say of them."""

    base: int
    size: int
    batches: int
    producers: list[Producer]


class Cut(NamedTuple):
    """What one fetch gave for a partition. `noted_to` is how far batches lay below `write_from`: counted, not sent.

    `stamp` is the one that holds from `end` on; `blanks` are all those from the position on, also below `write_from`.
    """

    parcels: list[Parcel | Blank]
    end: int
    noted_to: int
    leader_epoch: int
    halt: Halt | None
    carried: list[Carriage]
    stamp: Stamp
    blanks: list[Blank]


def cut(
    records: memoryview,
    position: int,
    write_from: int,
    stamp: Stamp,
    limits: LaneLimits,
    joining: Joining | None = None,
    aborted: Iterable[tuple[int, int]] = (),
) -> Cut:
    """Parcels and blanks for the batches from `position` on. A halt ends the list; what came before it still crosses.

    `aborted` are the transactions that the fetch says were aborted: producer id and first offset of each.
    """
    cutter = _Cutter(records, position, write_from, stamp, limits, joining, aborted)
    halt: Halt | None = None
    try:
        cutter.run()
    except WireError as error:
        halt = cutter.damage(error)
    except Halt as reason:
        halt = reason
    parcels, end = cutter.parcels, cutter.position
    if halt:
        end = parcels[-1].end if parcels else cutter.noted_to
    return Cut(parcels, end, cutter.noted_to, cutter.leader_epoch, halt, cutter.carried, cutter.stamp, cutter.blanks)


class _Cutter:
    """One pass over a fetch's bytes."""

    def __init__(
        self,
        records: memoryview,
        position: int,
        write_from: int,
        stamp: Stamp,
        limits: LaneLimits,
        joining: Joining | None,
        aborted: Iterable[tuple[int, int]],
    ) -> None:
        self.records, self.position, self.write_from = records, position, write_from
        self.stamp, self.limits, self.joining = stamp, limits, joining
        self.aborted = Aborted(aborted)
        self.parcels: list[Parcel | Blank] = []
        self.blanks: list[Blank] = []
        self.carried: list[Carriage] = []
        self.noted_to, self.leader_epoch = position, -1
        self._small: list[Batch] = []
        self._next_offset = self._joined_to = 0
        self._old, self._odd, self._unpacked = False, "", 0
        self._join_below = joining.below_bytes if joining else 0
        self._shift = stamp.anchor_sequence - stamp.anchor_offset

    def run(self) -> None:
        place = 0
        while True:
            try:
                found = next_batch(self.records, place, self._next_offset)
            except WireError:
                self._flush()
                self._old = self.records[place + MAGIC_AT] < MAGIC
                raise
            if found is None:
                break
            view, header = found
            self._next_offset = header[0] + header[6] + 1
            place = self._take(place, view, header)
            if self._unpacked > self.limits.unpacked_bytes_max:
                break  # The grant must not run out meanwhile: the rest is fetched again.
        self._flush()

    def damage(self, error: WireError) -> Halt:
        """What to say of the batch that could not be read."""
        end = max(self._next_offset, self.position + 1)
        if isinstance(error, TooLargeError):
            sentence = f"{error.message}; it must be written anew for the twin, since {self._odd}"
            return Halt("too large unpacked", self.position, end, sentence)
        return Halt("old format" if self._old else "corrupt batch", self.position, end, str(error))

    def _take(self, place: int, view: memoryview, header: BatchHeader) -> int:
        """Deals with one batch, or with a run of them; returns where the next one begins."""
        base, length, epoch, _, _, attributes, last_delta, _, max_timestamp, producer_id, _, _, count = header
        position, end, after = self.position, base + last_delta + 1, place + PREFIX_BYTES + length
        if end <= position:
            return after
        if base != position or attributes & ODD or count != last_delta + 1 or position < self.write_from:
            self._flush()
            self._unusual(view, header)
            if end <= self.write_from:
                self.noted_to = end
        elif not attributes and length < self._join_below and after < len(self.records) and self._join(place, header):
            return self._joined_to
        elif length < self.limits.merge_below_bytes:
            self._small.append((view, header))
        else:
            self._flush()
            sequence = (base + self._shift) % SEQUENCE_SPAN
            head = restamp_checked(view, header, self.stamp.producer_id, self.stamp.producer_epoch, sequence)
            self.parcels.append(Parcel(head, view[HEADER_BYTES:], base, end, length + PREFIX_BYTES, max_timestamp))
        numbered = producer_id >= 0 and not attributes & CONTROL
        self.carried.append(Carriage(base, length + PREFIX_BYTES, 1, [producer_of(header)] if numbered else []))
        self.position, self.leader_epoch = end, epoch
        return after

    def _join(self, place: int, first: BatchHeader) -> bool:
        """Whether the batch and those that follow it were joined; `_joined_to` is then where they end."""
        found = self.joining.join(self.records, place, first) if self.joining else None
        if found is None:
            return False
        (body, header, self._joined_to, batches, producers), room = found
        self._flush()
        sequence = (header[0] + self._shift) % SEQUENCE_SPAN
        head = restamp_merged(body, header, self.stamp.producer_id, self.stamp.producer_epoch, sequence)
        self.parcels.append(_parcel(head, body, header)._replace(room=room))
        self.carried.append(Carriage(header[0], self._joined_to - place, batches, producers))
        self._next_offset = self.position = header[0] + header[12]
        self.leader_epoch = header[2]
        return True

    def _unusual(self, view: memoryview, header: BatchHeader) -> None:
        """A batch of a transaction, of control records, with holes, or with a part that is on the twin already."""
        self._odd = _oddity(header)
        for fate in fates(view, header, self.position, self.write_from, self.aborted):
            if isinstance(fate, Blank):
                self.blanks.append(fate)
                if fate.end > self.write_from:
                    self._blank(fate)
                continue
            body, ours, unpacked = fate
            self._unpacked += unpacked
            sequence = (ours[0] + self._shift) % SEQUENCE_SPAN
            head = restamp_merged(body, ours, self.stamp.producer_id, self.stamp.producer_epoch, sequence)
            self.parcels.append(_parcel(head, body, ours))

    def _blank(self, blank: Blank) -> None:
        self.stamp = self.stamp.after(blank.end - blank.base)
        self._shift = self.stamp.anchor_sequence - self.stamp.anchor_offset
        last = self.parcels[-1] if self.parcels else None
        if isinstance(last, Blank):
            self.parcels[-1] = Blank(last.base, blank.end)
        else:
            self.parcels.append(blank)

    def _flush(self) -> None:
        if self._small:
            _flush(self._small, self.parcels, self.stamp, self.limits)


def producer_of(header: BatchHeader) -> Producer:
    """What a retry of this batch after a switch would be known by."""
    last = (header[11] + header[6]) % SEQUENCE_SPAN
    return header[9], header[10], header[11], last, header[0], header[8]


def _flush(small: list[Batch], parcels: list[Parcel | Blank], stamp: Stamp, limits: LaneLimits) -> None:
    """Turns the waiting small batches into as few parcels as the rules of merging allow."""
    run: list[Batch] = []
    size = 0
    for batch in small:
        header = batch[1]
        if run and (size + header[1] > limits.merged_bytes_max or not can_merge(run[-1][1], header)):
            _pack(run, parcels, stamp, limits)
            run, size = [], 0
        run.append(batch)
        size += header[1]
    if run:
        _pack(run, parcels, stamp, limits)
    small.clear()


def _pack(run: list[Batch], parcels: list[Parcel | Blank], stamp: Stamp, limits: LaneLimits) -> None:
    """One parcel, or a few where one would unpack to too much; or, where one of the batches is damaged, one for each
    that lies before it."""
    done = 0
    try:
        while done < len(run):
            body, header, count = merge_small(run, done, plain_bytes_max=limits.merged_plain_bytes_max)
            parcels.append(_as_it_is(run[done], stamp) if count == 1 else _merged(body, header, stamp))
            done += count
    except WireError:
        for batch in run[done:]:
            header = batch[1]
            try:
                parcels.append(_as_it_is(batch, stamp))
            except WireError as error:
                raise Halt("corrupt batch", header.base_offset, header.last_offset + 1, str(error)) from error


def _as_it_is(batch: Batch, stamp: Stamp) -> Parcel:
    view, header = batch
    head = restamp_checked(view, header, stamp.producer_id, stamp.producer_epoch, _sequence(header, stamp))
    return _parcel(head, view[HEADER_BYTES:], header)


def _merged(body: Buffer, header: BatchHeader, stamp: Stamp) -> Parcel:
    head = restamp_merged(body, header, stamp.producer_id, stamp.producer_epoch, _sequence(header, stamp))
    return _parcel(head, body, header)


def _sequence(header: BatchHeader, stamp: Stamp) -> int:
    return (header[0] - stamp.anchor_offset + stamp.anchor_sequence) % SEQUENCE_SPAN


def _oddity(header: BatchHeader) -> str:
    """Why a batch cannot cross as the bytes that it is."""
    if header.attributes & CONTROL:
        return "it may end a transaction"
    if header.attributes & TIMESTAMP_APPEND:
        return "its records take the time at which the source appended them"
    if header.count != header.last_offset_delta + 1:
        return "the source's compaction took records from it"
    return "a part of it is on the twin already"


def _parcel(head: bytes, body: Buffer, header: BatchHeader) -> Parcel:
    return Parcel(head, body, header[0], header[0] + header[6] + 1, header[1] + 12, header[8])
