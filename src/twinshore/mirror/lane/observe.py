"""Where does the twin end, and may we go on from there? One look, one pure verdict.

All readings are taken at one height (the log end, not the high watermark), because mixing heights puts data at wrong
offsets on replicated topics.

Whether a twin's last records are its source's: ends and sequences alone do not tell a source that lost its end and
grew beyond it again, nor a foreign write that lies below batches of ours. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile

from twinshore.fleet import WireError
from twinshore.fleet.extents import Extent
from twinshore.fleet.incidents import IncidentKind
from twinshore.mirror.lane.marking import marker_id
from twinshore.mirror.lane.stamp import Stamp
from twinshore.wire.batch import (
    CONTROL,
    SEQUENCE_SPAN,
    TIMESTAMP_APPEND,
    BatchHeader,
    check_crc,
    next_sequence,
    sequence_of,
)
from twinshore.wire.primitives import Buffer
from twinshore.wire.records import Record, iter_records
from twinshore.wire.slice import REWRITE_BYTES_MAX

Batch = tuple[Buffer, BatchHeader]


def unlike(source: Batch | None, twin: Batch | None, offset: int) -> bool:
    """Whether they hold different records there."""
    return last_unlike(source, twin, offset) == offset


def last_unlike(source: Batch | None, twin: Batch | None, last: int) -> int:
    """The last offset up to `last` at which both hold a record, and another one; -1 where there is none. Nothing is
    said of what one of them lacks, or of what cannot be read: cleaners take records, damage is found when it is
    fetched, and the twin has a separate marker wherever consumers see nothing."""
    if source is None or twin is None or twin[1].attributes & CONTROL:
        return -1
    try:
        theirs, ours = _records(source, last), _records(twin, last)
    except WireError:
        return -1
    # Where the twin's topic stamps records itself, that the topics' settings differ is told elsewhere.
    stamped = bool(twin[1].attributes & TIMESTAMP_APPEND)
    for offset in sorted(theirs.keys() & ours.keys(), reverse=True):
        one = theirs[offset]
        if one != (ours[offset]._replace(timestamp=one.timestamp) if stamped else ours[offset]):
            return offset
    return -1


def first_unlike(unlike_at: Callable[[int], bool], low: int, last: int) -> int:
    """The first offset that is unlike, where `last` is: logs that part stay parted, but for places without records."""
    while low < last:
        middle = (low + last) // 2
        if unlike_at(middle):
            last = middle
        else:
            low = middle + 1
    return last


def _records(batch: Batch, last: int) -> dict[int, Record]:
    check_crc(*batch)
    found = iter_records(*batch, limit_bytes=REWRITE_BYTES_MAX)
    return {one.offset: one for one in takewhile(lambda record: record.offset <= last, found)}


@dataclass(frozen=True, slots=True)
class Tail:
    """The twin's last batch. `unit`: a marker of somebody who wrote no record here, as closed units leave. `control`:
    it is a marker of any kind."""

    base_offset: int
    last_offset: int
    producer_id: int
    base_sequence: int
    unit: bool = False
    control: bool = False


@dataclass(frozen=True, slots=True)
class Observation:
    """`producer` is what the twin's leader remembers of the link: last sequence and last timestamp; None if nothing.
    `producer_epoch` is that of this memory. `open_from`: where somebody's transaction begins that is still open on the
    twin; -1 where none is, and asked only of a log that was at home there.

    `source_start` and `source_end` are the source's log start and log end, read after the twin. `fence` is the highest
    coordinator epoch that the leader remembers of the link's markers. `unlike`: the twin's last record is not the
    source's at that offset; None while the source does not show it, as right after an election. `unlike_from`: from
    where on both hold other records, as far as that was looked for. `wrote_epoch`: the leader epoch in which the
    source's last record below the twin's end was written, `source_epoch`: the one to fetch on with, since a source may
    have forgotten the other; -1 where not known. `parted`: from where on leader epochs say that the source has another
    history than the one that was carried; -1 where they do not. `uncut`: why the twin's log may not be cut; asked only
    where offsets are to be filled. `young_from`: below it all records of the source are too old for a fresh queue; -1
    where it has no age; `young_epoch` is the leader epoch of the last of these, as far as known.
    """

    log_start: int
    high_watermark: int
    log_end: int
    tail: Tail | None
    producer: tuple[int, int] | None
    source_start: int
    source_end: int
    fence: int = -1
    unlike: bool | None = False
    unlike_from: int = -1
    source_epoch: int = -1
    wrote_epoch: int = -1
    parted: int = -1
    uncut: str = ""
    young_from: int = -1
    young_epoch: int = -1
    producer_epoch: int = -1
    open_from: int = -1
    # Of a mapped twin, whose batches must be read to know: what follows, and where those lie that were not told yet.
    verdict: Verdict | None = None
    extents: tuple[Extent, ...] = ()
    # Of that of a fresh queue, what of the source is not there, between these and before them.
    dropped: tuple[tuple[int, int], ...] = ()
    # Of what nobody told of and the source has no more: where the twin shows no record.
    unseen: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Go:
    """The twin ends at `position` and the log is ours; the next record there has `next_sequence`.

    `last_timestamp` is -1 when the broker has forgotten us. Where the source begins later than the twin ends, offsets
    up to `gap_to` hold nothing any more.
    """

    position: int
    last_timestamp: int = -1
    next_sequence: int = 0
    gap_to: int = -1


@dataclass(frozen=True, slots=True)
class Wait:
    """Not to be judged yet; look again."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Stop:
    kind: IncidentKind
    offset: int
    end: int
    sentence: str


Verdict = Go | Wait | Stop


def judge(seen: Observation, stamp: Stamp, inherited: int = 0, *, carried: bool = True) -> Verdict:
    """Go only when both ends, the tail batch and the broker's memory of us tell the same story. Below `inherited` the
    log is the topic's own: whoever wrote its last batch there, we go on behind it. `carried`: whether a receipt says
    that we wrote behind it."""
    end = seen.log_end
    if seen.high_watermark != end:
        return Wait(f"the twin's replicas stand at {seen.high_watermark}, its leader at {end}")
    tail = seen.tail if end > seen.log_start else None
    if end > seen.log_start and (tail is None or tail.last_offset != end - 1):
        return Wait("the log moved between two readings")
    # A new epoch begins with sequence 0; so does whoever a broker has never heard of, where nothing of his is counted.
    known = None if inherited and seen.producer_epoch < stamp.producer_epoch else seen.producer
    following = 0 if inherited else sequence_of(stamp.anchor_offset, stamp.anchor_sequence, end)
    own = tail is not None and tail.last_offset < inherited
    ours = tail is not None and tail.producer_id == stamp.producer_id and not own
    wrote = known is not None
    if (
        stop := _foreign(tail, seen, stamp, inherited, wrote=wrote)
        if tail
        else _gone(seen, inherited, carried or wrote)
    ):
        return stop
    if ours and tail is not None:
        following = next_sequence(tail.base_sequence, tail.last_offset - tail.base_offset + 1)
    if own and seen.open_from >= 0:
        return Wait(f"a transaction of when the topic was at home here is open from offset {seen.open_from} on")
    if end > seen.source_end:
        sentence = f"the source ends at {seen.source_end}, the twin already at {end}: the source has lost offsets"
        return Stop(IncidentKind.TRUNCATION, seen.source_end, end, sentence)
    if seen.unlike is None:
        return Wait(f"the source does not show offset {end - 1} yet")
    if (tail is not None and seen.unlike) or seen.parted >= 0:
        return _parted(seen, stamp, following, inherited)
    if known is not None and not (ours and _impossible(following, end, stamp, inherited)):
        remembered = next_sequence(known[0], 1)
        if ours and remembered != following:
            return Wait(f"the broker's next sequence is {remembered}, the log's end asks for {following}")
        following = remembered
    if _impossible(following, end, stamp, inherited):
        expected = sequence_of(stamp.anchor_offset, stamp.anchor_sequence, end)
        sentence = f"the twin's next sequence is {following}; at offset {end} it should be {expected} at most"
        return Stop(IncidentKind.POSITION_DISAGREEMENT, tail.base_offset if tail else end, end, sentence)
    gap_to = seen.source_start if seen.source_start > end else -1
    return Go(end, known[1] if known else -1, following, gap_to)


def _gone(seen: Observation, inherited: int, wrote: bool) -> Stop | None:
    """Why an empty log may not end where it does: what its home wrote there at last never crossed, and is no more."""
    end = seen.log_end
    if wrote or not inherited or end <= inherited:
        return None
    sentence = (
        f"offsets {inherited} to {end - 1} were written here, never crossed, and were deleted since: the topic changed "
        f"homes at {inherited}"
    )
    return Stop(IncidentKind.FOREIGN_WRITE, inherited, end, sentence)


def _foreign(tail: Tail, seen: Observation, stamp: Stamp, inherited: int, *, wrote: bool) -> Stop | None:
    """Why the last batch may not be there. `wrote`: the link has written here since the topic changed homes."""
    end = seen.log_end
    if tail.last_offset < inherited or tail.producer_id == marker_id(stamp.producer_id):
        return None
    if tail.producer_id == stamp.producer_id:
        if not tail.control:
            return None
        sentence = (
            f"a switch made the twin the topic's home: the marker at offset {tail.base_offset} shuts this link out"
        )
        return Stop(IncidentKind.FOREIGN_WRITE, tail.base_offset, end, sentence)
    # A marker of somebody who wrote no record here is ours only where we have written since: the coordinators of a home
    # that was away append such ones behind records that never crossed.
    if tail.unit and (wrote or not inherited):
        return None
    who = f"producer id {tail.producer_id}" if tail.producer_id >= 0 else "a producer without an id"
    if inherited and not wrote:
        what = f"offsets {inherited} to {end - 1} were" if end - 1 > inherited else f"offset {inherited} was"
        sentence = f"{what} written here, at last by {who}, and never crossed: the topic changed homes at {inherited}"
        return Stop(IncidentKind.FOREIGN_WRITE, inherited, end, sentence)
    last = f"its last batch, offsets {tail.base_offset} to {tail.last_offset}, was"
    sentence = f"{last} written by {who}, not by this link"
    return Stop(IncidentKind.FOREIGN_WRITE, min(tail.base_offset, seen.source_end), end, sentence)


def _parted(seen: Observation, stamp: Stamp, following: int, inherited: int) -> Stop:
    """The twin's records are not the source's, or not of the history that the source has now."""
    end = seen.log_end
    if not seen.unlike:
        return Stop(IncidentKind.TRUNCATION, seen.parted, end, parted_sentence(seen.parted))
    # Ours in number and not in place: somebody wrote below. Else the source has another history by now.
    expected = sequence_of(stamp.anchor_offset, stamp.anchor_sequence, end)
    kind = IncidentKind.TRUNCATION if inherited or following == expected else IncidentKind.POSITION_DISAGREEMENT
    begin = seen.unlike_from if seen.unlike_from >= 0 else end - 1
    what = f"offsets {begin} to {end - 1}" if begin < end - 1 else f"the record at offset {begin}"
    sentence = f"{what} of the twin {'are' if begin < end - 1 else 'is'} not the source's"
    return Stop(kind, begin, end, sentence)


def parted_sentence(offset: int) -> str:
    """What to say where leader epochs tell that the source lost what the twin has."""
    return f"the source's history differs from offset {offset} on: it lost what the twin already has"


def _impossible(following: int, end: int, stamp: Stamp, inherited: int) -> bool:
    """Whether no number of markers since the anchor, which no sequence counts, explains the next sequence. What is
    inherited is no more counted than markers are: there sequences begin with 0, wherever the log ended then."""
    if inherited:
        return (end - following) % SEQUENCE_SPAN > end
    markers = (sequence_of(stamp.anchor_offset, stamp.anchor_sequence, end) - following) % SEQUENCE_SPAN
    return markers > max(0, end - stamp.anchor_offset)
