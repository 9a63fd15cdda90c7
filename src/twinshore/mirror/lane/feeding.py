"""What a shared reading has for a lane goes into the queues of its partitions, as far as these want it now. Pure."""

from __future__ import annotations

from typing import Protocol

from twinshore.mirror.lane.cutting import Cut
from twinshore.mirror.lane.fetch_book import FetchBook
from twinshore.mirror.lane.fresh import NO_BUFFER, drop
from twinshore.mirror.lane.passing import read_again
from twinshore.mirror.lane.seat import Seat
from twinshore.mirror.lane.track import Track


class Fed(Protocol):
    """What feeding needs of a lane."""

    @property
    def fetches(self) -> FetchBook: ...

    def wake(self, track: Track) -> None: ...

    def refuses(self, track: Track, cut: Cut) -> bool:
        """Whether a fresh queue may not take this; then it is stopped."""


def feed(lane: Fed, now_ms: int) -> None:
    """Gives the lane's partitions what the window has for them, as far as they want it now; of a fresh queue what is
    not fresh any more is dropped before."""
    fetches, seat = lane.fetches, lane.fetches.seat
    wanted = seat.hungry() if seat else []
    if not wanted or not seat:
        return
    room = seat.room()
    for track in wanted:
        fed = False
        line = fetches.line_of(track, track.route)
        if seat.drops(track) and fetches.asks(track, line):
            fed = freshen(seat, track, now_ms)
        while fetches.asks(track, line) and not track.full():
            if room <= 0 or fetches.buckets.shut():
                seat.later(track)
                break
            found = seat.next(track)
            if found is None:
                # What it was called for may be gone from the window by now: then it asks the source.
                fetches.ask_again(track)
                break
            one, cut = found
            if seat.drops(track) and lane.refuses(track, cut):
                break
            if fetches.buckets.bounding:
                fetches.buckets.spend(track.order.topic, sum(entry.size for entry in cut.carried))
            if not track.source.heard:
                read_again(track)
            track.source.led, fed = one.led, True
            track.take(cut, NO_BUFFER, now_ms)
            room -= sum(piece.size for piece in cut.parcels)
        if fed:
            lane.wake(track)


def freshen(seat: Seat, track: Track, now_ms: int) -> bool:
    """Whether something that waits for it was dropped."""
    found = seat.kept_from(track, now_ms)
    if found is None:
        return False
    to, epoch, why = found
    drop(track, to, epoch, why, now_ms)
    track.source.led = track.route.source_epoch
    return True
