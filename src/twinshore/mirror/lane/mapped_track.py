"""A partition whose twin is mapped: the same lane, the same sequences, but each batch lands where the twin ends. Pure.

Positions stay the source's. What nobody sees takes no offset on the twin: it is passed by as soon as what lies before
it has landed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from twinshore.fleet import NamedPartition, SourceOffset, TargetOffset
from twinshore.fleet.extents import Extent, follow_on, source_end
from twinshore.mirror.lane.cutting import Blank, Hold, Parcel
from twinshore.mirror.lane.observe import Go, Observation, Verdict, Wait
from twinshore.mirror.lane.orders import Carried, Handover, TrackOrder, but_for
from twinshore.mirror.lane.reach import Reach, reach_of
from twinshore.mirror.lane.stamp import Stamp
from twinshore.mirror.lane.track import Phase, Track

NOWHERE = Reach(0, 0, 0)


@dataclass(slots=True, eq=False)
class MappedTrack(Track):
    """`reach` is how far it is written for certain, `gained` what was not told yet of where it went. `leapt`: something
    was passed by since its last record."""

    mapped: ClassVar[bool] = True
    reach: Reach = NOWHERE
    gained: list[Extent] = field(default_factory=list)
    leapt: bool = False
    blanks: deque[Blank] = field(default_factory=deque)

    def judge(self, seen: Observation, anchor: Stamp) -> Verdict:  # noqa: ARG002
        """The look has read the twin's batches itself; what it makes of them is its verdict."""
        return seen.verdict or Wait("the twin was looked at before it was known to be mapped")

    def fits(self, entry: Handover) -> bool:
        """Only where both speak of one place: a reach that is older than the handover would put the two together that
        never belonged together. Then a look tells."""
        return entry.next_sequence == self.reach.sequence

    def resume(self, go: Go, seen: Observation, *, fence: int, armed_ms: int, cut_to: int) -> None:  # noqa: ARG002
        super(MappedTrack, self).resume(go, seen, fence=fence, armed_ms=armed_ms, cut_to=-1)
        self.gained = follow_on(None, [*self.gained, *seen.extents])
        if seen.extents:
            self.reach = reach_of(seen.extents[-1])
            self.dropped = but_for(self.dropped, [(one.source, source_end(one)) for one in seen.extents])

    def begin(
        self,
        position: int,
        *,
        armed_until_ms: int,
        leader_epoch: int,
        source_start: int = 0,
        next_sequence: int = -1,
    ) -> None:
        super(MappedTrack, self).begin(
            position,
            armed_until_ms=armed_until_ms,
            leader_epoch=leader_epoch,
            source_start=source_start,
            next_sequence=next_sequence,
        )
        self.blanks.clear()
        last, began = self.reach.last_source, self.order.reached
        behind = last + 1 if last >= 0 or not began else began.source  # as long as nothing has landed: where it began
        self.leapt = position != behind
        self.reach = self.reach._replace(source=position, sequence=self.stamp.anchor_sequence, warm=False)

    def lands(self, parcel: Parcel, base: int) -> bool:
        """Notes where a batch went. Only while all before it has: what came behind a failure is looked at."""
        reach, length = self.reach, parcel.end - parcel.base
        if base < reach.target:
            return False
        if self.phase is Phase.RUNNING:
            one = Extent(SourceOffset(parcel.base), TargetOffset(base), length, reach.sequence)
            self.gained[-1:] = follow_on(self.gained[-1] if self.gained else None, [one])
            self.reach = reach_of(one)
        return True

    def arrived(self, end: int) -> None:
        super(MappedTrack, self).arrived(end)
        while self.blanks and self.blanks[0].base == self.acked:
            self._pass(self.blanks.popleft())

    def queue(self, piece: Parcel | Blank, hold: Hold | None) -> None:
        if isinstance(piece, Parcel):
            super(MappedTrack, self).queue(piece, hold)
        elif not self.waiting and not self.in_flight and self.acked == piece.base:
            self._pass(piece)
        else:
            self.blanks.append(piece)

    def may_send(self, parcel: Parcel, now_s: float, now_ms: int, kept_ms: int) -> bool:
        if not super(MappedTrack, self).may_send(parcel, now_s, now_ms, kept_ms):
            return False
        for blank in self._before(parcel):
            self._send_past(blank)
        return True

    def head_of(self, parcel: Parcel) -> bytes:
        return self.stamp.after(sum(blank.end - blank.base for blank in self._before(parcel))).head(parcel)

    def settle(self, retry_at_s: float) -> None:
        super(MappedTrack, self).settle(retry_at_s)
        self.blanks.clear()

    def set_back(self) -> None:
        super(MappedTrack, self).set_back()
        while self.blanks and self.blanks[-1].base >= self.sent:
            self.blanks.pop()

    def account(self, now_s: float) -> Carried | None:
        """Extents are told as soon as they are known, though the account of the fetch they belong to may come later."""
        carried = super(MappedTrack, self).account(now_s)
        if not self.gained:
            return carried
        told, self.gained = tuple(self.gained), []
        if carried is None:
            carried = self.told.nothing(self.named, self.source.start, max(self.source.end, self.told.to))
        return replace(carried, extents=told)

    def moved(self, parcel: Parcel) -> bool:
        """Where something was passed by that was a record once: dropped, compacted, or lost by retention."""
        return self.leapt or self.order.thinned_to >= 0 or bool(self._before(parcel))

    def _before(self, parcel: Parcel) -> list[Blank]:
        """What is passed by with this parcel, which goes next."""
        return [blank for blank in self.blanks if self.sent <= blank.base < parcel.base]

    def _pass(self, blank: Blank) -> None:
        if blank.base >= self.sent:
            self._send_past(blank)
        self.acked = blank.end

    def _send_past(self, blank: Blank) -> None:
        self.sent, self.leapt = blank.end, True
        self.stamp = self.stamp.after(blank.end - blank.base)


def track_of(order: TrackOrder, producer: tuple[int, int], fence: int, partition_bytes_max: int) -> Track:
    """The track that the order asks for."""
    if order.reached is None:
        return Track.of(order, producer, fence, partition_bytes_max)
    track = MappedTrack.of(order, producer, fence, partition_bytes_max)
    assert isinstance(track, MappedTrack)
    track.reach = order.reached
    return track


def learn(tracks: Mapping[NamedPartition, Track], reached: Mapping[NamedPartition, Reach]) -> None:
    """How far the mapped ones are written by now, as the desk has it from the accounts."""
    for named, reach in reached.items():
        track = tracks.get(named)
        if isinstance(track, MappedTrack):
            track.reach = reach


def reaches(tracks: Mapping[NamedPartition, Track], wanted: list[NamedPartition]) -> dict[NamedPartition, Reach]:
    """How far those of these partitions that are mapped are written, for a look."""
    found = ((named, tracks.get(named)) for named in wanted)
    mapped = ((named, track) for named, track in found if isinstance(track, MappedTrack))
    return {named: track.reach.passed(track.told.to)._replace(warm=track.begins > 0) for named, track in mapped}
