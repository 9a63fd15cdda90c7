"""What a queue that sends only what is fresh drops: the oldest that waits, over a watermark or over an age. Pure.

What is dropped is offsets that nobody sees on the twin, as those are that a source has no more. It is known by its
borders alone: no byte of it is read, and dropping costs as much as there are parts. On a twin that keeps its source's
offsets each then takes a marker.
"""

from __future__ import annotations

from collections.abc import Iterable

from twinshore.fleet import QueueRules
from twinshore.mirror.lane.cutting import Cut, Parcel
from twinshore.mirror.lane.dropped import row_of
from twinshore.mirror.lane.fates import Blank
from twinshore.mirror.lane.joining import Hold
from twinshore.mirror.lane.level import UNKNOWN, Level
from twinshore.mirror.lane.reading import Window
from twinshore.mirror.lane.track import Track
from twinshore.wire.batch import TIMESTAMP_APPEND, TRANSACTIONAL, end_at
from twinshore.wire.primitives import I64

NO_BUFFER = Hold(bytearray())
# Where a batch says whose its time stamps are, and how young its youngest record.
ATTRIBUTES_END, STAMP_AT, STAMP_END = 23, 35, 43
ENDED = "by a pump that has ended"


def kept_from(window: Window, position: int, rules: QueueRules, now_s: float) -> tuple[int, int, str] | None:
    """From where on what waits beyond `position` is kept, the leader epoch below, and why not before; None where all
    is. What is beyond the high watermark is kept only from the low one on, so that it is seldom dropped; what was read
    last is kept whatever its size, or who keeps up would get nothing."""
    if position < window.origin or position >= window.end:
        return None
    ahead = [one for one in window.slices.values() if one.cut.end > position]
    gone, why = 0, ""  # how many of these go
    if rules.max_age_s:
        gone = next((at for at, one in enumerate(ahead) if now_s - one.born_s <= rules.max_age_s), len(ahead))
        why = older_than(rules) if gone else ""
    size, lost = sum(one.size for one in ahead[gone:]), window.begin > position
    if size > rules.high_bytes or len(ahead) - gone > rules.parts_max or lost:
        while len(ahead) - gone > 1 and (size > rules.low_bytes or len(ahead) - gone > rules.parts_max // 2):
            size -= ahead[gone].size
            gone += 1
        why = why or "over the high watermark"
    first = ahead[gone] if gone < len(ahead) else None
    at, epoch = (first.base, first.before) if first else (window.end, window.epoch)
    if first and rules.max_age_s and (border := first.young_from(now_s - rules.max_age_s)) > max(at, position):
        at, epoch, why = border, first.cut.leader_epoch, why or older_than(rules)
    return (at, epoch, why) if at > position and why else None


def older_than(rules: QueueRules) -> str:
    """Why what is too old is dropped."""
    return f"older than {rules.max_age_s:g} s"


def drop(track: Track, to: int, epoch: int, why: str, now_ms: int) -> None:
    """What lies below `to` and is not on its way to the twin yet is sent no more. `epoch`: the source's leader epoch of
    the last record below `to`, as far as known."""
    if track.sent < track.fetched:
        track.set_back()
    skip(track, to, epoch, why, now_ms)


def skip(track: Track, to: int, epoch: int, why: str, now_ms: int) -> None:
    """What follows is dropped up to `to`; what waits already goes before."""
    begin = track.fetched
    gone = Blank(begin, to)
    goes(track, begin, to, why)
    track.take(Cut([gone], to, begin, epoch, None, [], [gone]), NO_BUFFER, now_ms)


def goes(track: Track, begin: int, to: int, why: str) -> None:
    """These offsets are dropped. On an exact twin a marker takes each, which is slow: nothing more comes before they
    are there, or it would be old by then."""
    track.dropped.append(row_of(track.named, begin, to, why))
    if not track.mapped:
        track.marked_to = to


def note_found(track: Track, ranges: Iterable[tuple[int, int]]) -> None:
    """A look at the twin has found that the source's records of these ranges are not there. What was told of before, or
    is about to be, is not told again; the rest a pump dropped that ended before it could say so."""
    known = [
        (0, max(track.told.to, track.order.inherited)),
        *((row.from_offset, row.to_offset) for row in track.dropped),
    ]
    for begin, end in ranges:
        for known_begin, known_end in sorted(known):
            if known_begin <= begin:
                begin = max(begin, known_end)
            elif known_begin < end:
                track.dropped.append(row_of(track.named, begin, known_begin, ENDED))
                begin = known_end
        if begin < end:
            track.dropped.append(row_of(track.named, begin, end, ENDED))
    track.dropped.sort(key=lambda row: row.from_offset)


def without_old(done: Cut, begin: int, since_ms: int) -> tuple[Cut, int]:
    """The cut without the records at its beginning that were made before `since_ms`, and up to where those lay; -1:
    there are none."""
    old = 0
    for piece in done.parcels:
        if isinstance(piece, Parcel) and piece.max_timestamp >= since_ms:
            break
        old += 1
    if not any(isinstance(piece, Parcel) for piece in done.parcels[:old]):
        return done, -1
    to = done.parcels[old - 1].end
    gone = Blank(begin, to)
    return (
        done._replace(
            parcels=[gone, *done.parcels[old:]],
            carried=[entry for entry in done.carried if entry.base >= to],
            blanks=[gone, *(blank for blank in done.blanks if blank.base >= to)],
        ),
        to,
    )


def level_of(track: Track, records: memoryview) -> Level:
    """What bounds the age of what a fetch brought, beside its time stamps. Where these are the broker's own, nothing:
    then no producer's clock is believed, and none doubted."""
    by_broker = len(records) >= STAMP_END and records[ATTRIBUTES_END - 1] & TIMESTAMP_APPEND
    return UNKNOWN if by_broker else track.level


def old_end(records: memoryview, since_ms: int) -> int:
    """How many bytes of what a fetch brought lie before the first batch that is younger, 0 where the first is or none
    is: what is joined has one age, so it is joined with its like."""
    place, size = 0, len(records)
    while place + STAMP_END <= size:
        if I64.unpack_from(records, place + STAMP_AT)[0] >= since_ms:
            return place
        place = end_at(records, place)
    return 0


def transactional(cut: Cut) -> Parcel | None:
    """The first parcel that is a transaction's."""
    for piece in cut.parcels:
        if isinstance(piece, Parcel) and piece.header.attributes & TRANSACTIONAL:
            return piece
    return None
