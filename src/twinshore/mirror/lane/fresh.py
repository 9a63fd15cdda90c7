"""What a queue that sends only what is fresh drops: the oldest that waits, over a watermark or over an age. Pure.

What is dropped is offsets that nobody sees on the twin, as those are that a source has no more. It is known by its
borders alone: no byte of it is read, and dropping costs as much as there are parts. Only a mapped twin may have such a
queue.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from twinshore.fleet import QueueRules
from twinshore.mirror.lane.cutting import Blank, Cut, Hold, Parcel
from twinshore.mirror.lane.observe import Observation
from twinshore.mirror.lane.orders import is_old, row_of
from twinshore.mirror.lane.reading import Window
from twinshore.mirror.lane.track import Track
from twinshore.wire.batch import TRANSACTIONAL, BatchHeader, end_at
from twinshore.wire.primitives import I64

NO_BUFFER = Hold(bytearray())
# Where a batch says how young its youngest record is.
STAMP_AT, STAMP_END = 35, 43
ENDED = "by a pump that has ended"


def kept_from(window: Window, position: int, rules: QueueRules, now_ms: int) -> tuple[int, int, str] | None:
    """From where on what waits beyond `position` is kept, the leader epoch below, and why not before; None where all
    is. What is beyond the high watermark is kept only from the low one on, so that it is seldom dropped; what was read
    last is kept whatever its size, or who keeps up would get nothing."""
    if position < window.origin or position >= window.end:
        return None
    ahead = [one for one in window.slices.values() if one.cut.end > position]
    gone, why = 0, ""  # how many of these go
    since_ms = since(rules, now_ms)
    if rules.max_age_s:
        gone = next((at for at, one in enumerate(ahead) if one.written_ms >= since_ms), len(ahead))
        why = older_than(rules) if gone else ""
    size, lost = sum(one.size for one in ahead[gone:]), window.begin > position
    if size > rules.high_bytes or len(ahead) - gone > rules.parts_max or lost:
        while len(ahead) - gone > 1 and (size > rules.low_bytes or len(ahead) - gone > rules.parts_max // 2):
            size -= ahead[gone].size
            gone += 1
        why = why or "over the high watermark"
    first = ahead[gone] if gone < len(ahead) else None
    at, epoch = (first.base, first.before) if first else (window.end, window.epoch)
    if first and rules.max_age_s and (border := first.young_from(since_ms)) > max(at, position):
        at, epoch, why = border, first.cut.leader_epoch, why or older_than(rules)
    return (at, epoch, why) if at > position and why else None


def since(rules: QueueRules, now_ms: int) -> int:
    """What bears an earlier time stamp is too old."""
    return now_ms - int(rules.max_age_s * 1000)


def older_than(rules: QueueRules) -> str:
    """Why what is too old is dropped."""
    return f"older than {rules.max_age_s:g} s"


def aged(seen: Observation, young_from: int, below: BatchHeader | None) -> Observation:
    """The look with where records begin that are young enough. `below`: the source's batch before these. Where it bears
    no time stamp nothing is too old."""
    if below and below.max_timestamp < 0:
        return seen
    return replace(seen, young_from=young_from, young_epoch=below.leader_epoch if below else -1)


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
    track.dropped.append(row_of(track.named, begin, to, why))
    track.take(Cut([gone], to, begin, epoch, None, [], [gone]), NO_BUFFER, now_ms)


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
    """The cut without the records at its beginning that are older, and up to where those lay; -1: there are none."""
    old = 0
    for piece in done.parcels:
        if isinstance(piece, Parcel) and not is_old(piece.max_timestamp, since_ms):
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


def old_end(records: memoryview, since_ms: int) -> int:
    """How many bytes of what a fetch brought lie before the first batch that is younger, 0 where the first is or none
    is: what is joined has one age, so it is joined with its like."""
    place, size = 0, len(records)
    while place + STAMP_END <= size:
        if not is_old(I64.unpack_from(records, place + STAMP_AT)[0], since_ms):
            return place
        place = end_at(records, place)
    return 0


def transactional(cut: Cut) -> Parcel | None:
    """The first parcel that is a transaction's."""
    for piece in cut.parcels:
        if isinstance(piece, Parcel) and piece.header.attributes & TRANSACTIONAL:
            return piece
    return None
