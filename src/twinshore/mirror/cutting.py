"""Fetched batches become parcels: restamped for the target, small neighbours merged, everything else refused by name.

Pure, and the pump's hottest loop: the ordinary batch costs one header check, two CRCs and one packed header.
"""

from __future__ import annotations

from typing import NamedTuple

from twinshore.fleet import WireError
from twinshore.mirror.orders import LaneLimits
from twinshore.wire.batch import (
    CONTROL,
    HEADER_BYTES,
    SEQUENCE_SPAN,
    TIMESTAMP_APPEND,
    TRANSACTIONAL,
    BatchHeader,
    check_crc,
    restamp_checked,
)
from twinshore.wire.merge import can_merge, merge_small, restamp_merged
from twinshore.wire.primitives import Buffer
from twinshore.wire.slice import reencode_append_time, slice_batch

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


class Parcel(NamedTuple):
    """One batch ready to send: offsets [base, end) of the twin."""

    head: bytes
    body: Buffer
    base: int
    end: int
    size: int
    max_timestamp: int


class Cut(NamedTuple):
    """What one fetch gave for a partition. `noted_to` is how far batches lay below `write_from`: counted, not sent."""

    parcels: list[Parcel]
    end: int
    noted_to: int
    leader_epoch: int
    halt: Halt | None


def cut(batches: list[Batch], position: int, write_from: int, stamp: Stamp, limits: LaneLimits) -> Cut:
    """Parcels for the batches from `position` on. A halt ends the list; what came before it still crosses."""
    parcels: list[Parcel] = []
    small: list[Batch] = []
    producer_id, producer_epoch, anchor_offset, anchor_sequence = stamp
    shift = anchor_sequence - anchor_offset
    merge_below = limits.merge_below_bytes
    noted_to, leader_epoch = position, -1
    halt: Halt | None = None
    try:
        for view, header in batches:
            base, length, epoch, _, _, attributes, last_delta, _, max_timestamp, _, _, _, count = header
            end = base + last_delta + 1
            if end <= position:
                continue
            if base != position or attributes & ODD or count != last_delta + 1 or position < write_from:
                _flush(small, parcels, stamp, limits)
                parcel = _unusual(view, header, position, write_from, stamp)
                if parcel is None:
                    noted_to = end
                else:
                    parcels.append(parcel)
            elif length < merge_below:
                small.append((view, header))
            else:
                if small:
                    _flush(small, parcels, stamp, limits)
                sequence = (base + shift) % SEQUENCE_SPAN
                head = restamp_checked(view, header, producer_id, producer_epoch, sequence)
                parcels.append(Parcel(head, view[HEADER_BYTES:], base, end, length + 12, max_timestamp))
            position, leader_epoch = end, epoch
        if small:
            _flush(small, parcels, stamp, limits)
    except WireError as error:
        halt = Halt("corrupt batch", position, position + 1, str(error))
    except Halt as reason:
        halt = reason
    if halt:
        position = parcels[-1].end if parcels else noted_to
    return Cut(parcels, position, noted_to, leader_epoch, halt)


def _flush(small: list[Batch], parcels: list[Parcel], stamp: Stamp, limits: LaneLimits) -> None:
    """Turns the waiting small batches into as few parcels as the rules of merging allow."""
    run: list[Batch] = []
    size = 0
    for batch in small:
        header = batch[1]
        if run and (size + header[1] > limits.merged_bytes_max or not can_merge(run[-1][1], header)):
            _pack(run, parcels, stamp)
            run, size = [], 0
        run.append(batch)
        size += header[1]
    if run:
        _pack(run, parcels, stamp)
    small.clear()


def _pack(run: list[Batch], parcels: list[Parcel], stamp: Stamp) -> None:
    """One parcel; or, where one of the batches is damaged, one for each that lies before it."""
    try:
        parcels.append(_merged(run, stamp))
    except WireError:
        for batch in run:
            header = batch[1]
            try:
                parcels.append(_merged([batch], stamp))
            except WireError as error:
                raise Halt("corrupt batch", header.base_offset, header.last_offset + 1, str(error)) from error


def _merged(run: list[Batch], stamp: Stamp) -> Parcel:
    sequence = (run[0][1][0] - stamp.anchor_offset + stamp.anchor_sequence) % SEQUENCE_SPAN
    if len(run) == 1:
        view, header = run[0]
        head = restamp_checked(view, header, stamp.producer_id, stamp.producer_epoch, sequence)
        body: Buffer = view[HEADER_BYTES:]
    else:
        body, header = merge_small(run)
        head = restamp_merged(body, header, stamp.producer_id, stamp.producer_epoch, sequence)
    return _parcel(head, body, header)


def _parcel(head: bytes, body: Buffer, header: BatchHeader) -> Parcel:
    return Parcel(head, body, header[0], header[0] + header[6] + 1, header[1] + 12, header[8])


def _unusual(view: memoryview, header: BatchHeader, position: int, write_from: int, stamp: Stamp) -> Parcel | None:
    """The batches that need a second look. None: it is on the twin already and is only noted."""
    end = header.base_offset + header.last_offset_delta + 1
    if header.attributes & CONTROL or header.attributes & TRANSACTIONAL:
        raise Halt("not yet", position, end, f"offset {header.base_offset} belongs to a transaction")
    if header.base_offset > position:
        sentence = f"offsets {position} to {header.base_offset - 1} are missing from the source's log"
        raise Halt("not yet", position, header.base_offset, f"{sentence} (compaction)")
    if header.count != header.last_offset_delta + 1:
        raise Halt("not yet", position, end, f"the batch at offset {header.base_offset} has holes (compaction)")
    if end <= write_from:
        return None
    check_crc(view, header)
    start = max(position, write_from)
    body: Buffer = view[HEADER_BYTES:]
    if header.attributes & TIMESTAMP_APPEND:
        body, header = reencode_append_time(view, header)
        if start > header.base_offset:
            raise Halt("position disagreement", start, end, f"the twin ends at {start}, inside a source batch")
    elif start > header.base_offset:
        body, header = slice_batch(view, header, start, end)
    sequence = (header.base_offset - stamp.anchor_offset + stamp.anchor_sequence) % SEQUENCE_SPAN
    head = restamp_merged(body, header, stamp.producer_id, stamp.producer_epoch, sequence)
    return _parcel(head, body, header)
