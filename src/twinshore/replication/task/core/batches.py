"""Fetched batches become parcels, checked and joined, and blanks: offsets that nobody sees.

What is cut holds for all targets that end where it is told to write from, `write_from`; `stamp.py` writes what a batch
bears of one of them. Pure, and the pump's hottest loop: the ordinary batch costs one header check and one CRC.

The records of a source batch cross, or its offsets are taken by markers that nobody sees. Read below the last stable
offset, every fate is known: a fetch names the transactions that were aborted.

What a batch bears of one target: a producer, and sequences that follow from the offsets. Pure.

A stamp writes a header and leaves the body as it is, so one parcel can be stamped for several targets. The new CRC
follows from the old one, so no body is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from twinshore.config.errors import TooLargeError, WireError
from twinshore.config.incidents import IncidentKind, IncidentSide
from twinshore.config.model import written_epoch
from twinshore.kafka.protocol.join import Joined, Joiner, Producer, room_needed, source_of
from twinshore.kafka.protocol.primitives import Buffer
from twinshore.kafka.protocol.record_batch import (
    BODY_IN_LENGTH,
    CONTROL,
    HEADER_BYTES,
    MESSAGE_BYTES_DEFAULT,
    PREFIX_BYTES,
    SEQUENCE_SPAN,
    TIMESTAMP_APPEND,
    TRANSACTIONAL,
    BatchHeader,
    check_crc,
    next_batch,
    restamp,
    sequence_of,
)
from twinshore.kafka.protocol.rewrite import can_merge, hole_free_runs, merge_small, slice_runs
from twinshore.kafka.protocol.visibility import Aborted, spans
from twinshore.replication.task.core.config import LaneLimits, TrackOrder
from twinshore.state.core.values import TwinRow

_ROOM_BYTES_MIN: Final = 1 << 20
# Of so many records one batch is made where batches are written anew: a long one becomes several, each made quickly.
ANEW_RECORDS_MAX = 1 << 14
MAGIC_AT, MAGIC = 16, 2
# What making one costs beside its records and bytes.
WORK_BLANK, WORK_PIECE, WORK_JOINED = 2, 8, 50
ODD = CONTROL | TRANSACTIONAL | TIMESTAMP_APPEND
Batch = tuple[memoryview, BatchHeader]


@dataclass(slots=True, eq=False)
class Hold:
    """A buffer, and how often it is held: by parcels that wait in a queue or are being sent, and by what is not cut
    yet. Free at zero. Whoever makes a parcel counts nothing; each queue that takes it counts once."""

    buffer: bytearray
    uses: int = 0


class Joining:
    """One lane's joiner and its rooms; they are never given back, and `full` says when no more should be fetched."""

    def __init__(self, limits: LaneLimits) -> None:
        most = limits.merged_bytes_max
        self._joiner = Joiner(below_bytes=limits.join_below_bytes, most_bytes=most)
        self._below_bytes = limits.join_below_bytes
        self.below_bytes = self._below_bytes if self._joiner.able() else 0
        self._room_bytes = max(_ROOM_BYTES_MIN, 2 * room_needed(most))
        self.allow(limits.joined_bytes_max)
        self._rooms: list[Hold] = []
        self._current: Hold | None = None
        # Those into which the view's batches were joined: whether or not they are queued yet, they are not free.
        self._fresh: list[Hold] = []
        self._filled = 0
        self._view: memoryview | None = None
        self._source: Any = None

    def allow(self, joined_bytes_max: int) -> None:
        """From now on there may be so many bytes of rooms."""
        self._rooms_max = max(4, joined_bytes_max // self._room_bytes)

    def full(self) -> bool:
        """So many rooms are taken that what was joined must leave before more is fetched."""
        if not self.below_bytes and self._joiner.able():
            self.below_bytes = self._below_bytes
        return len(self._rooms) >= self._rooms_max and all(room.uses for room in self._rooms)

    @property
    def rooms(self) -> tuple[Hold, ...]:
        return tuple(self._rooms)

    def holds(self, bytes_max: int) -> int:
        """In how many rooms so many bytes lie, where these are well filled."""
        return max(1, bytes_max // self._room_bytes)

    def join(self, view: memoryview, place: int, first: BatchHeader) -> tuple[Joined, Hold] | None:
        """The batch `first`, at `place` of a fetch's bytes, with what follows it; None when nothing does that fits.

        What is wanted of one view must be queued before batches of another are joined: that is what counts the hold."""
        if view is not self._view:
            self._view, self._source = view, source_of(view)
            self._fresh.clear()
        hold = self._room()
        joined = self._joiner.join(self._source, place, first, memoryview(hold.buffer), self._filled)
        if joined is None:
            return None
        self._filled += len(joined.body)
        if hold not in self._fresh:
            self._fresh.append(hold)
        return joined, hold

    def _room(self) -> Hold:
        """One with enough space left at its end."""
        hold = self._current
        if hold is not None:
            if self._is_free(hold):
                self._filled = 0
                return hold
            if len(hold.buffer) - self._filled >= self._room_bytes // 2:
                return hold
        free = next((room for room in self._rooms if self._is_free(room)), None)
        if free is None:
            free = Hold(bytearray(self._room_bytes))
            self._rooms.append(free)
        self._current, self._filled = free, 0
        return free

    def _is_free(self, room: Hold) -> bool:
        return not room.uses and room not in self._fresh


class Blank(NamedTuple):
    """Offsets [base, end) that no consumer of the source sees: control records, aborted ones, holes of compaction."""

    base: int
    end: int

    @property
    def skipped(self) -> int:
        """Over how many offsets the sequences of what comes behind do not go on."""
        return self.end - self.base

    @property
    def size(self) -> int:
        """Bytes it keeps busy here."""
        return 0


def within(blanks: Iterable[Blank], begin: int, end: int) -> tuple[Blank, ...]:
    """The parts of these that lie in [begin, end)."""
    cut = (Blank(max(one.base, begin), min(one.end, end)) for one in blanks)
    return tuple(one for one in cut if one.base < one.end)


def beside(blanks: Iterable[Blank], others: Sequence[Blank]) -> list[Blank]:
    """The parts of these that lie in none of the others, which are in order."""
    found: list[Blank] = []
    for base, end in blanks:
        for other in within(others, base, end):
            found += within([Blank(base, other.base)], base, end)
            base = other.end
        found += within([Blank(base, end)], base, end)
    return found


class Leap(Blank):
    """Such offsets before the link's first record, whose sequence follows its offset whatever came before it."""

    __slots__ = ()

    @property
    def skipped(self) -> int:
        return 0


class Piece(NamedTuple):
    """Records that cross: a batch without holes, its header still the source's own but for what was cut.
    `unpacked` is how many bytes were unpacked for it."""

    body: Buffer
    header: BatchHeader
    unpacked: int = 0


def fates(
    view: memoryview, header: BatchHeader, position: int, write_from: int, aborted: Aborted
) -> Iterator[Blank | Piece]:
    """The fates of offsets from `position` to the batch's end, in order. What lies below `write_from` is on the twin
    already: of that only the blanks are named, each on one side of it. Each is made when it is asked for."""
    offsets = list(spans(view, header, position, aborted))
    runs = [(max(base, write_from), end) for base, end, seen in offsets if seen and end > write_from]
    if runs == [(header.base_offset, header.last_offset + 1)] and not header.attributes & TIMESTAMP_APPEND:
        check_crc(view, header)
        pieces = iter([Piece(view[HEADER_BYTES:], header)])
    else:
        pieces = _pieces(view, header, runs)
    for base, end, seen in offsets:
        if not seen:
            if base < write_from:
                yield Blank(base, min(end, write_from))
            if end > write_from:
                yield Blank(max(base, write_from), end)
        elif end > write_from:
            at = max(base, write_from)
            while at < end:
                yield (piece := next(pieces))
                at = piece.header.last_offset + 1


def _pieces(view: memoryview, header: BatchHeader, runs: list[tuple[int, int]]) -> Iterator[Piece]:
    """Some for each run."""
    parts = [(at, min(at + ANEW_RECORDS_MAX, end)) for first, end in runs for at in range(first, end, ANEW_RECORDS_MAX)]
    if len(parts) > 1 and header.count == header.last_offset_delta + 1:
        hole_free_runs(view, header)  # Nothing of a batch crosses of which a part cannot be read.
    return _fitting(view, header, parts)


def _fitting(view: memoryview, header: BatchHeader, parts: list[tuple[int, int]]) -> Iterator[Piece]:
    """A producer may have compressed better than the pump does: what no twin need take as one becomes two."""
    fits = max(header.length + PREFIX_BYTES, MESSAGE_BYTES_DEFAULT) - HEADER_BYTES
    for (first, end), sliced in zip(parts, slice_runs(view, header, parts), strict=True):
        if len(sliced.body) <= fits or end - first == 1:
            yield Piece(*sliced)
        else:
            middle = (first + end) // 2
            yield from _fitting(view, header, [(first, middle), (middle, end)])


class Halt(Exception):
    """The partition cannot go on at `offset`; the lane turns this into an incident."""

    def __init__(
        self, kind: IncidentKind, offset: int, end: int, sentence: str, side: IncidentSide | None = None
    ) -> None:
        super().__init__(sentence)
        self.kind, self.offset, self.end, self.sentence, self.side = kind, offset, end, sentence, side


class Parcel(NamedTuple):
    """One batch that crosses: offsets [base, end) of the source. Its header's CRC was found right, or made here; a
    stamp makes a target's own of it. `room` is where a joined body lies."""

    header: BatchHeader
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

    `blanks` are all those from the position on, also below `write_from`.
    """

    parcels: list[Parcel | Blank]
    end: int
    noted_to: int
    leader_epoch: int
    halt: Halt | None
    carried: list[Carriage]
    blanks: list[Blank]


def cut(
    records: memoryview,
    position: int,
    write_from: int,
    limits: LaneLimits,
    joining: Joining | None = None,
    aborted: Iterable[tuple[int, int]] = (),
) -> Cut:
    """All parcels and blanks for the batches from `position` on, as `Cutter` makes them."""
    return Cutter(records, position, write_from, limits, joining, aborted).cut(1 << 62)


class Cutter:
    """One pass over a fetch's bytes, as far as its caller lets it go at a time. `more`: there is more to come.

    `aborted` are the transactions that the fetch says were aborted: producer id and first offset of each.
    """

    # How all begin; most are made for one batch, and to set these would be a good part of what that costs.
    more, work, leader_epoch = True, 0, -1
    _open: tuple[Iterator[Blank | Piece], BatchHeader] | None = None
    _next_offset = _joined_to = _place = _work_max = 0
    _old, _odd = False, ""

    def __init__(
        self,
        records: memoryview,
        position: int,
        write_from: int,
        limits: LaneLimits,
        joining: Joining | None,
        aborted: Iterable[tuple[int, int]],
    ) -> None:
        self.records, self.position, self.write_from = records, position, write_from
        self.limits, self.joining = limits, joining
        self.aborted = Aborted(aborted)
        self.parcels: list[Parcel | Blank] = []
        self.blanks: list[Blank] = []
        self.carried: list[Carriage] = []
        self.noted_to = position
        self._small: list[Batch] = []
        self._join_below = joining.below_bytes if joining else 0

    def cut(self, work_max: int) -> Cut:
        """What comes next. A halt ends it; what came before that still crosses. Stops behind so much `work`, of which
        one unit is some microseconds."""
        if self._place:
            self.parcels, self.blanks, self.carried = [], [], []
            self.noted_to = self.position
        self.work, self._work_max = 0, work_max
        halt: Halt | None = None
        try:
            self._run()
        except WireError as error:
            halt = self.damage(error)
        except Halt as reason:
            halt = reason
        parcels, end = self.parcels, self.position
        if halt:
            self.more, end = False, parcels[-1].end if parcels else self.noted_to
        return Cut(parcels, end, self.noted_to, self.leader_epoch, halt, self.carried, self.blanks)

    def _run(self) -> None:
        place = self._place
        if self._open:
            self._go_through(*self._open)
        while self.work <= self._work_max:
            try:
                found = next_batch(self.records, place, self._next_offset)
            except WireError:
                self._flush()
                self._old = self.records[place + MAGIC_AT] < MAGIC
                raise
            if found is None:
                self.more = False
                break
            view, header = found
            self._next_offset = header[0] + header[6] + 1
            place = self._take(place, view, header)
        self._place = place
        self._flush()

    def damage(self, error: WireError) -> Halt:
        """What to say of the batch that could not be read."""
        end = max(self._next_offset, self.position + 1)
        if isinstance(error, TooLargeError):
            sentence = f"{error.message}; it must be written anew for the twin, since {self._odd}"
            return Halt(IncidentKind.TOO_LARGE_UNPACKED, self.position, end, sentence)
        return Halt(
            IncidentKind.OLD_FORMAT if self._old else IncidentKind.CORRUPT_BATCH, self.position, end, str(error)
        )

    def _take(self, place: int, view: memoryview, header: BatchHeader) -> int:
        """Deals with one batch, or with a run of them; returns where the next one begins."""
        base, length, epoch, _, _, attributes, last_delta, _, max_timestamp, producer_id, _, _, count = header
        position, end, after = self.position, base + last_delta + 1, place + PREFIX_BYTES + length
        if end <= position:
            return after
        if base != position or attributes & ODD or count != last_delta + 1 or position < self.write_from:
            self._flush()
            self._odd = _oddity(header)
            self.work += count >> 1
            self._go_through(fates(view, header, position, self.write_from, self.aborted), header)
            return after
        if not attributes and length < self._join_below and after < len(self.records) and self._join(place, header):
            return self._joined_to
        if length < self.limits.merge_below_bytes:
            self.work += count
            self._small.append((view, header))
        else:
            self._flush()
            check_crc(view, header)
            self.parcels.append(Parcel(header, view[HEADER_BYTES:], base, end, length + PREFIX_BYTES, max_timestamp))
            self.work += 1 + (length >> 15)
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
        self.parcels.append(parcel_of(header, body)._replace(room=room))
        self.carried.append(Carriage(header[0], self._joined_to - place, batches, producers))
        self._next_offset = self.position = header[0] + header[12]
        self.work += WORK_JOINED
        self.leader_epoch = header[2]
        return True

    def _go_through(self, pieces: Iterator[Blank | Piece], header: BatchHeader) -> None:
        """A batch of a transaction, of control records, with holes, or with a part that is on the twin already."""
        self._open = None
        for fate in pieces:
            if isinstance(fate, Blank):
                self.blanks.append(fate)
                if fate.end > self.write_from:
                    self._blank(fate)
                self.position = fate.end
                self.work += WORK_BLANK
            else:
                body, ours, unpacked = fate
                self.parcels.append(parcel_of(ours, body))
                self.position = ours.last_offset + 1
                self.work += WORK_PIECE + ours.count + (unpacked >> 7)
            if self.work > self._work_max and self.write_from <= self.position <= header.last_offset:
                self._open, self.leader_epoch = (pieces, header), header.leader_epoch
                return
        end = header.last_offset + 1
        if end <= self.write_from:
            self.noted_to = end
        numbered = header.producer_id >= 0 and not header.attributes & CONTROL
        producers = [producer_of(header)] if numbered else []
        self.carried.append(Carriage(header.base_offset, header.length + PREFIX_BYTES, 1, producers))
        self.position, self.leader_epoch = end, header.leader_epoch

    def _blank(self, blank: Blank) -> None:
        last = self.parcels[-1] if self.parcels else None
        if isinstance(last, Blank):
            self.parcels[-1] = Blank(last.base, blank.end)
        else:
            self.parcels.append(blank)

    def _flush(self) -> None:
        if self._small:
            _flush(self._small, self.parcels, self.limits)


def producer_of(header: BatchHeader) -> Producer:
    """What a retry of this batch after a switch would be known by."""
    last = (header[11] + header[6]) % SEQUENCE_SPAN
    return header[9], header[10], header[11], last, header[0], header[8]


def _flush(small: list[Batch], parcels: list[Parcel | Blank], limits: LaneLimits) -> None:
    """Turns the waiting small batches into as few parcels as the rules of merging allow."""
    run: list[Batch] = []
    size = 0
    for batch in small:
        header = batch[1]
        if run and (size + header[1] > limits.merged_bytes_max or not can_merge(run[-1][1], header)):
            _pack(run, parcels, limits)
            run, size = [], 0
        run.append(batch)
        size += header[1]
    if run:
        _pack(run, parcels, limits)
    small.clear()


def _pack(run: list[Batch], parcels: list[Parcel | Blank], limits: LaneLimits) -> None:
    """One parcel, or a few where one would unpack to too much; or, where one of the batches is damaged, one for each
    that lies before it."""
    done = 0
    try:
        while done < len(run):
            body, header, count = merge_small(run, done, plain_bytes_max=limits.merged_plain_bytes_max)
            parcels.append(_as_it_is(*run[done]) if count == 1 else parcel_of(header, body))
            done += count
    except WireError:
        for view, header in run[done:]:
            try:
                parcels.append(_as_it_is(view, header))
            except WireError as error:
                raise Halt(
                    IncidentKind.CORRUPT_BATCH, header.base_offset, header.last_offset + 1, str(error)
                ) from error


def _as_it_is(view: memoryview, header: BatchHeader) -> Parcel:
    check_crc(view, header)
    return parcel_of(header, view[HEADER_BYTES:])


def parcel_of(header: BatchHeader, body: Buffer) -> Parcel:
    """Refuses a body that is not the one that the header speaks of."""
    if len(body) != header[1] - BODY_IN_LENGTH:
        raise ValueError(f"a body of {len(body)} bytes under a header for {header[1] - BODY_IN_LENGTH}")
    return Parcel(header, body, header[0], header[0] + header[6] + 1, header[1] + PREFIX_BYTES, header[8])


def _oddity(header: BatchHeader) -> str:
    """Why a batch cannot cross as the bytes that it is."""
    if header.attributes & CONTROL:
        return "it may end a transaction"
    if header.attributes & TIMESTAMP_APPEND:
        return "its records take the time at which the source appended them"
    if header.count != header.last_offset_delta + 1:
        return "the source's compaction took records from it"
    return "a part of it is on the twin already"


class Stamp(NamedTuple):
    """How offsets become sequences on one twin: the data's own, so that the broker can compare and swap."""

    producer_id: int
    producer_epoch: int
    anchor_offset: int
    anchor_sequence: int

    @classmethod
    def of(cls, producer: tuple[int, int], twin: TrackOrder | TwinRow) -> Stamp:
        """`producer`: the link's id and epoch."""
        producer_id, epoch = producer
        return cls(producer_id, written_epoch(epoch, twin.epoch), twin.anchor_offset, twin.anchor_sequence)

    def sequence(self, offset: int) -> int:
        """Of this offset, when all between the anchor and it are records."""
        return sequence_of(self.anchor_offset, self.anchor_sequence, offset)

    def head(self, parcel: Parcel) -> bytes:
        """The header of this parcel on the twin; its body follows as it is."""
        producer_id, producer_epoch, anchor_offset, anchor_sequence = self
        sequence = sequence_of(anchor_offset, anchor_sequence, parcel.base)
        return restamp(parcel.header, producer_id, producer_epoch, sequence)

    def after(self, blanks: int) -> Stamp:
        """The stamp behind so many more offsets that no sequence counts."""
        return self._replace(anchor_offset=self.anchor_offset + blanks)
