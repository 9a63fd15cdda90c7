"""What takes the offsets that a source has no more, and how far the twin's log may be cut behind it. Pure over tracks.

Filler are records that readers would see. So it is written only before a twin's first record, where it is cut off
again. Markers, which no reader sees, take the offsets elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from twinshore.fleet import NamedPartition
from twinshore.fleet.incidents import POLICY_GAP, IncidentKind, IncidentSide
from twinshore.mirror.lane.cutting import Blank, Halt, Leap, Parcel, parcel_of, within
from twinshore.mirror.lane.observe import Observation
from twinshore.mirror.lane.orders import Stoppage
from twinshore.mirror.lane.recent import nothing_of
from twinshore.mirror.lane.track import Track
from twinshore.wire.filler import FILLER_RECORDS_MAX, filler

FILLED_MAX = 20_000_000_000  # About an hour of filling.


def cut_limit(seen: Observation, anchor: int, *, never: bool) -> int:
    """Up to where the twin's log may be cut. Below its anchor it holds nothing but this link's filler; where no record
    may `never` be cut off, that goes alone."""
    if seen.uncut:
        return 0
    return min(anchor, seen.source_start) if never else seen.source_start


def fill(track: Track, seen: Observation, now_ms: int, *, marked_max: int) -> tuple[Halt | None, list[Stoppage]]:
    """Queues what takes the offsets up to the source's start. What must be told of it, or a halt.

    Filler takes them before the twin's first record, markers behind that: `marked_max` at most.
    """
    begin, end, named = track.fetched, seen.source_start, track.named
    if begin >= end:
        return None, []
    sentence = f"the source's log now begins at {end}, the twin ended at {begin}: retention was faster"
    filled_to = _filled_to(track, seen)
    if not track.mapped and (halt := _too_long(track, seen, filled_to, marked_max, sentence)):
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


def _filled_to(track: Track, seen: Observation) -> int:
    """Up to where filler takes the offsets. A topic that was at home on the target holds its own records below."""
    begin, order = track.fetched, track.order
    if track.mapped or order.inherited or seen.uncut:
        return begin
    return max(begin, min(seen.source_start, order.anchor_offset))


def _too_long(track: Track, seen: Observation, filled_to: int, marked_max: int, sentence: str) -> Halt | None:
    """Why what takes the offsets would take too long."""
    begin, end, twin = track.fetched, seen.source_start, track.order.twin_named
    if seen.uncut and end - begin > marked_max:
        why = (
            f"offsets {begin} to {end - 1} of twin {twin} must be filled: its source begins at {end}; they are too "
            f"many for markers, and what fills them must be cut off again: {seen.uncut}"
        )
        return Halt(IncidentKind.RIGHTS_LOST, begin, end, why, IncidentSide.TARGET)
    if end - filled_to > marked_max:
        why = (
            f"more than gap_offsets_max = {marked_max} offsets are missing; delete the twin {twin.topic} on the target,"
            f" then `twinshore mirror begin-again {track.named.topic}`"
        )
        return Halt(IncidentKind.RETENTION_GAP, begin, end, f"{sentence}, and {why}")
    if filled_to - begin > FILLED_MAX:
        return Halt(IncidentKind.RETENTION_GAP, begin, end, f"{sentence}, and that is too long to fill")
    return None


def _pieces(track: Track, begin: int, filled_to: int, end: int) -> Iterator[Blank | Parcel]:
    first = 0 if track.order.inherited else track.order.anchor_offset
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
