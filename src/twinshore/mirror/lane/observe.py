"""Where does the twin end, and may we go on from there? One look, one pure verdict.

All readings are taken at one height (the log end, not the high watermark), because mixing heights puts data at wrong
offsets on replicated topics.
"""

from __future__ import annotations

from dataclasses import dataclass

from twinshore.fleet.extents import Extent
from twinshore.fleet.incidents import IncidentKind
from twinshore.mirror.lane.marking import marker_id
from twinshore.mirror.lane.stamp import Stamp
from twinshore.wire.batch import SEQUENCE_SPAN, next_sequence, sequence_of


@dataclass(frozen=True, slots=True)
class Tail:
    """The twin's last batch. `unit`: a marker of somebody who wrote no record here, as closed units leave."""

    base_offset: int
    last_offset: int
    producer_id: int
    base_sequence: int
    unit: bool = False


@dataclass(frozen=True, slots=True)
class Observation:
    """`producer` is what the twin's leader remembers of the link: last sequence and last timestamp; None if nothing.

    `source_start` and `source_end` are the source's log start and log end, read after the twin. `fence` is the highest
    coordinator epoch that the leader remembers of the link's markers. `unlike`: the twin's last record is not the
    source's at that offset; None while the source does not show it, as right after an election. `unlike_from`: from
    where on both hold other records, as far as that was looked for. `wrote_epoch`: the leader epoch in which the
    source's last record below the twin's end was written, `source_epoch`: the one to fetch on with, since a source may
    have forgotten the other; -1 where not known. `parted`: from where on leader epochs say that the source has another
    history than the one that was carried; -1 where they do not. `uncut`: why the twin's log may not be cut; asked only
    where offsets are to be filled.
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
    # Of a mapped twin, whose batches must be read to know: what follows, and where those lie that were not told yet.
    verdict: Verdict | None = None
    extents: tuple[Extent, ...] = ()


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


def judge(seen: Observation, stamp: Stamp) -> Verdict:
    """Go only when both ends, the tail batch and the broker's memory of us tell the same story."""
    end = seen.log_end
    if seen.high_watermark != end:
        return Wait(f"the twin's replicas stand at {seen.high_watermark}, its leader at {end}")
    following = sequence_of(stamp.anchor_offset, stamp.anchor_sequence, end)
    tail = seen.tail if end > seen.log_start else None
    if end > seen.log_start:
        if tail is None or tail.last_offset != end - 1:
            return Wait("the log moved between two readings")
        if tail.producer_id == stamp.producer_id:
            following = next_sequence(tail.base_sequence, tail.last_offset - tail.base_offset + 1)
        elif not tail.unit and tail.producer_id != marker_id(stamp.producer_id):
            begin = min(tail.base_offset, seen.source_end)
            who = f"producer id {tail.producer_id}" if tail.producer_id >= 0 else "a producer without an id"
            last = f"its last batch, offsets {tail.base_offset} to {tail.last_offset}, was"
            sentence = f"{last} written by {who}, not by this link"
            return Stop(IncidentKind.FOREIGN_WRITE, begin, end, sentence)
    if end > seen.source_end:
        sentence = f"the source ends at {seen.source_end}, the twin already at {end}: the source has lost offsets"
        return Stop(IncidentKind.TRUNCATION, seen.source_end, end, sentence)
    ours = tail is not None and tail.producer_id == stamp.producer_id
    if seen.unlike is None:
        return Wait(f"the source does not show offset {end - 1} yet")
    if (tail is not None and seen.unlike) or seen.parted >= 0:
        return _parted(seen, stamp, following)
    if seen.producer is not None and not (ours and _impossible(following, end, stamp)):
        remembered = next_sequence(seen.producer[0], 1)
        if ours and remembered != following:
            return Wait(f"the broker's next sequence is {remembered}, the log's end asks for {following}")
        following = remembered
    if _impossible(following, end, stamp):
        expected = sequence_of(stamp.anchor_offset, stamp.anchor_sequence, end)
        sentence = f"the twin's next sequence is {following}; at offset {end} it should be {expected} at most"
        return Stop(IncidentKind.POSITION_DISAGREEMENT, tail.base_offset if tail else end, end, sentence)
    gap_to = seen.source_start if seen.source_start > end else -1
    return Go(end, seen.producer[1] if seen.producer else -1, following, gap_to)


def _parted(seen: Observation, stamp: Stamp, following: int) -> Stop:
    """The twin's records are not the source's, or not of the history that the source has now."""
    end = seen.log_end
    if not seen.unlike:
        return Stop(IncidentKind.TRUNCATION, seen.parted, end, parted_sentence(seen.parted))
    # Ours in number and not in place: somebody wrote below. Else the source has another history by now.
    expected = sequence_of(stamp.anchor_offset, stamp.anchor_sequence, end)
    kind = IncidentKind.TRUNCATION if following == expected else IncidentKind.POSITION_DISAGREEMENT
    begin = seen.unlike_from if seen.unlike_from >= 0 else end - 1
    what = f"offsets {begin} to {end - 1}" if begin < end - 1 else f"the record at offset {begin}"
    sentence = f"{what} of the twin {'are' if begin < end - 1 else 'is'} not the source's"
    return Stop(kind, begin, end, sentence)


def parted_sentence(offset: int) -> str:
    """What to say where leader epochs tell that the source lost what the twin has."""
    return f"the source's history differs from offset {offset} on: it lost what the twin already has"


def _impossible(following: int, end: int, stamp: Stamp) -> bool:
    """Whether no number of markers since the anchor, which no sequence counts, explains the next sequence."""
    markers = (sequence_of(stamp.anchor_offset, stamp.anchor_sequence, end) - following) % SEQUENCE_SPAN
    return markers > max(0, end - stamp.anchor_offset)
