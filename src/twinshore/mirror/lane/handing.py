"""What a pump hands to the next one of a partition: where it stands, or only what of it may still land. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinshore.mirror.lane.certainty import UNKNOWN
from twinshore.mirror.lane.orders import Handover
from twinshore.mirror.lane.phase import Phase

if TYPE_CHECKING:
    from twinshore.mirror.lane.track import Track

UNPLACED = -1


def handover(track: Track, now_s: float) -> Handover | None:
    """Where the twin ends, if that is known for certain. Else, for as long as something of ours may still land, that
    alone: whoever looks next would wait for less, or take it for what comes."""
    strays = track.strays
    stands = track.phase is Phase.RUNNING and not track.in_flight
    if not stands or track.acked < max(track.write_from, track.old.end):
        if strays.still_s(now_s) <= 0:
            return None
        # Where sequences of a mapped twin go on is for the look to say: they may be of other offsets then.
        moved = track.mapped or strays.have_moved(track.stamp.sequence)
        return _of(track, UNPLACED, now_s, calm=False, moved=moved)
    return _of(track, track.acked, now_s, calm=not strays.until_s, moved=strays.have_moved(track.stamp.sequence))


def _of(track: Track, position: int, now_s: float, *, calm: bool, moved: bool) -> Handover:
    target, target_epoch = track.led
    return Handover(
        topic=track.order.topic,
        partition=track.order.partition,
        position=position,
        leader_epoch=track.source.epoch,
        armed_until_ms=track.certain.armed_until_ms,
        calm=calm,
        next_sequence=track.stamp.sequence(track.acked),
        target=target,
        target_epoch=target_epoch,
        source_led=track.source.led,
        stray_epoch=track.strays.epoch,
        strays_s=track.strays.still_s(now_s),
        strays_moved=moved,
    )


def take(track: Track, entry: Handover, now_s: float) -> bool:
    """The last holder has said where it stood: whether no look is needed, as it is where the line broke while we stood
    by. What may still land of it counts in any case."""
    if track.phase not in (Phase.LOOK, Phase.LOOKING):
        return False
    fits = entry.position != UNPLACED and track.phase is Phase.LOOK and not track.doubted and track.fits(entry)
    if fits or not entry.calm:
        until_s = UNKNOWN if entry.strays_s < 0 else now_s + entry.strays_s
        track.strays.left(entry.stray_epoch, until_s, calm=entry.calm, moved=entry.strays_moved)
    if fits:
        track.take_over(entry)
        track.led_anew()
    return fits
