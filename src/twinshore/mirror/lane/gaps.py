"""What takes the offsets that a source has no more, and how far the twin's log may be cut behind it. Pure over tracks.

Filler are records that readers would see. So it is written only where it may be cut off again, and markers, which
nobody sees, take the offsets elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from twinshore.fleet import NamedPartition
from twinshore.fleet.incidents import POLICY_GAP, IncidentKind, IncidentSide
from twinshore.mirror.lane.cutting import Halt, Parcel, parcel_of
from twinshore.mirror.lane.fates import Blank, Leap, within
from twinshore.mirror.lane.observe import Observation
from twinshore.mirror.lane.orders import Stoppage
from twinshore.mirror.lane.recent import nothing_of
from twinshore.mirror.lane.track import Track
from twinshore.wire.filler import FILLER_RECORDS_MAX, filler

GAP_MARKED_MAX = 20_000  # A longer gap below a running twin is filled and cut off, not marked.
GAP_MAX = 20_000_000_000  # About an hour of filling.
UNCUT_MARKED_MAX = 1_000_000  # About a minute of marking; a right that is missing takes no longer to give.
NEVER_CUT_MARKED_MAX = 100_000_000  # More than an hour of marking, and 8 GB on each replica.


def cut_limit(seen: Observation, anchor: int, *, never: bool) -> int:
    """Up to where the twin's log may be cut. Below its anchor it holds nothing but this link's filler; where no record
    may `never` be cut off, that goes alone."""
    if seen.uncut:
        return 0
    return min(anchor, seen.source_start) if never else seen.source_start


def fill(track: Track, seen: Observation, now_ms: int, *, cut_to: int) -> tuple[Halt | None, list[Stoppage]]:
    """Queues what takes the offsets up to the source's start. What must be told of it, or a halt.

    Below a twin that holds records a short gap becomes markers, since its readers may be right behind us; a longer one,
    and all that comes before a twin's first record, becomes filler up to `cut_to`, which is cut off as soon as it is
    written, and markers beyond that.
    """
    begin, end, named = track.fetched, seen.source_start, track.named
    if begin >= end:
        return None, []
    sentence = f"the source's log now begins at {end}, the twin ended at {begin}: retention was faster"
    filled_to = _filled_to(track, begin, end, cut_to)
    if not track.mapped:
        if end - begin > GAP_MAX:
            return Halt(IncidentKind.RETENTION_GAP, begin, end, f"{sentence}, and the gap is too long to fill"), []
        if halt := _unfilled(track, seen, filled_to, sentence):
            return halt, []
    told: list[Stoppage] = []
    # What the source had when its twin was made, and has lost since; a gap that grew is told of for what it grew by.
    lost_from = max(begin, track.order.anchor_offset, track.told.gap_to)
    if lost_from < end:
        kind = IncidentKind.RETENTION_GAP
        told = [Stoppage(named.topic, named.partition, kind, lost_from, end, sentence, POLICY_GAP)]
        track.told.gap_to = end
    for piece in _pieces(track, begin, filled_to, end):
        track.queue(piece, None)
        blanks = (Blank(piece.base, piece.end),)
        track.told.noted.append(nothing_of(piece.base, piece.end, now_ms, blanks=blanks))
    track.fetched, track.source.epoch = end, -1
    return None, told


def untold(track: Track, seen: Observation) -> list[Stoppage]:
    """What must be told of offsets that the source has no more, where a pump ended before it could tell of them: the
    twin has no record there, so they were taken before they crossed, or never held one that consumers see."""
    first = max(track.order.anchor_offset, track.told.to, track.told.gap_to)
    lost = within([Blank(*run) for run in seen.unseen], first, track.fetched)
    if not lost:
        return []
    begin, end, many = lost[0].base, lost[-1].end, sum(run.end - run.base for run in lost)
    sentence = (
        f"the source's log now begins at {seen.source_start}, and a pump ended before it told what crossed below:"
        f" {many} of these offsets hold no record on the twin"
    )
    track.told.gap_to = end
    named = track.named
    return [Stoppage(named.topic, named.partition, IncidentKind.RETENTION_GAP, begin, end, sentence, POLICY_GAP)]


def _filled_to(track: Track, begin: int, end: int, cut_to: int) -> int:
    """Up to where filler takes the offsets."""
    short = begin and begin >= track.order.anchor_offset and end - begin <= GAP_MARKED_MAX
    return begin if track.mapped or short else max(begin, min(end, cut_to))


def _unfilled(track: Track, seen: Observation, filled_to: int, sentence: str) -> Halt | None:
    """Why markers cannot take what filler may not: it would last too long, or stand behind filler that stays."""
    begin, end = track.fetched, seen.source_start
    long = end - filled_to
    if seen.uncut:
        before = (
            f"offsets {begin} to {end - 1} of twin {track.order.twin_named} must be filled: its source begins at {end}"
        )
        if begin < track.order.anchor_offset and _has_filler(track, seen):
            why = "records without a value that fill a part of them already would stay for readers to see"
        elif long > UNCUT_MARKED_MAX:
            why = "they are too many for markers, and what fills them must be cut off again"
        else:
            return None
        return Halt(IncidentKind.RIGHTS_LOST, begin, end, f"{before}; {why}: {seen.uncut}", IncidentSide.TARGET)
    if long > NEVER_CUT_MARKED_MAX:
        why = "never_delete lets nothing be filled here that would have to be cut off, and markers would take too long"
        return Halt(IncidentKind.RETENTION_GAP, begin, end, f"{sentence}; {why}")
    return None


def _has_filler(track: Track, seen: Observation) -> bool:
    """Whether something of ours lies on a twin that holds no record of its source yet."""
    tail = seen.tail if seen.log_end > seen.log_start else None
    return seen.producer is not None or (tail is not None and tail.producer_id == track.stamp.producer_id)


def _pieces(track: Track, begin: int, filled_to: int, end: int) -> Iterator[Blank | Parcel]:
    first = track.order.anchor_offset
    while begin < filled_to:
        made = filler(min(FILLER_RECORDS_MAX, filled_to - begin))
        yield parcel_of(made.header._replace(base_offset=begin), made.body)
        begin += made.header.count
    if begin < first and not track.mapped:
        yield Leap(begin, min(first, end))
        begin = first
    if begin < end:
        yield Blank(begin, end)


def cuts(tracks: Iterable[Track]) -> dict[NamedPartition, int]:
    """Twins that begin before their sources do, and where they should; each is named once for each look."""
    due = [track for track in tracks if 0 <= track.cut_to <= track.acked]
    found = {track.named: track.cut_to for track in due}
    for track in due:
        track.cut_to = -1
    return found
