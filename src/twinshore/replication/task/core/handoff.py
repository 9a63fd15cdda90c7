"""What one task reports of a partition to the next task, which then needs no inspection."""

from __future__ import annotations

from twinshore.replication.task.core.config import (
    Handoff,
)
from twinshore.replication.task.core.known_end import UNKNOWN_S
from twinshore.replication.task.core.partition import (
    PartitionReplicator,
    Phase,
)

UNKNOWN_POSITION = -1


def make_handoff(track: PartitionReplicator, now_s: float) -> Handoff | None:
    """Returns where the twin ends, if certain. If not, and requests may still land, returns only that: otherwise a
    successor would wait too briefly, or mistake them for its own. Else None.
    """
    strays = track.strays
    stands = track.phase is Phase.RUNNING and not track.in_flight
    if not stands or track.acked < max(track.write_from, track.old.end):
        if strays.still_s(now_s) <= 0:
            return None
        # Only an inspection tells where a mapped twin's sequences continue: they may be of other offsets then.
        moved = track.mapped or strays.may_have_moved(track.stamp.sequence)
        return _of(track, UNKNOWN_POSITION, now_s, calm=False, moved=moved)
    return _of(track, track.acked, now_s, calm=not strays.until_s, moved=strays.may_have_moved(track.stamp.sequence))


def _of(track: PartitionReplicator, position: int, now_s: float, *, calm: bool, moved: bool) -> Handoff:
    target, target_epoch = track.led
    return Handoff(
        topic=track.order.topic,
        partition=track.order.partition,
        position=position,
        leader_epoch=track.source.epoch,
        armed_until_ms=track.known_end.armed_until_ms,
        calm=calm,
        next_sequence=track.stamp.sequence(track.acked),
        target=target,
        target_epoch=target_epoch,
        source_led=track.source.led,
        stray_epoch=track.strays.epoch,
        strays_s=track.strays.still_s(now_s),
        strays_moved=moved,
    )


def accept_handoff(track: PartitionReplicator, entry: Handoff, now_s: float) -> bool:
    """Applies the previous task's report, and returns whether that spares an inspection; not after a broken connection.
    Requests that may still land count in any case.
    """
    if track.phase not in (Phase.UNVERIFIED, Phase.VERIFYING):
        return False
    fits = (
        entry.position != UNKNOWN_POSITION
        and track.phase is Phase.UNVERIFIED
        and not track.doubted
        and track.fits(entry)
    )
    if fits or not entry.calm:
        until_s = UNKNOWN_S if entry.strays_s < 0 else now_s + entry.strays_s
        track.strays.left(entry.stray_epoch, until_s, calm=entry.calm, moved=entry.strays_moved)
    if fits:
        track.take_over(entry)
        track.on_leader_change()
    return fits
