"""What one task reports of a partition to the next task, which then needs no inspection."""

from __future__ import annotations

from twinshore.replication.task.core.config import Handoff
from twinshore.replication.task.core.known_end import UNKNOWN_S
from twinshore.replication.task.core.partition import PartitionReplicator, Phase

UNKNOWN_POSITION = -1


def make_handoff(replicator: PartitionReplicator, now_s: float) -> Handoff | None:
    """Returns where the twin ends, if certain. If not, and requests may still land, returns only that: otherwise a
    successor would wait too briefly, or mistake them for its own. Else None.
    """
    zombies = replicator.zombies
    idle = replicator.phase is Phase.RUNNING and not replicator.in_flight
    certain = idle and replicator.acked >= max(replicator.write_from, replicator.old.end)
    if not certain and zombies.still_s(now_s) <= 0:
        return None
    target, target_epoch = replicator.led
    # Of an uncertain end only an inspection tells where a mapped twin's sequences continue.
    moved = (replicator.mapped and not certain) or zombies.may_have_moved(replicator.stamp.sequence)
    return Handoff(
        topic=replicator.config.topic,
        partition=replicator.config.partition,
        position=replicator.acked if certain else UNKNOWN_POSITION,
        leader_epoch=replicator.source.epoch,
        armed_until_ms=replicator.known_end.armed_until_ms,
        calm=certain and not zombies.until_s,
        next_sequence=replicator.stamp.sequence(replicator.acked),
        target=target,
        target_epoch=target_epoch,
        source_led=replicator.source.led,
        stray_epoch=zombies.epoch,
        strays_s=zombies.still_s(now_s),
        strays_moved=moved,
    )


def accept_handoff(replicator: PartitionReplicator, handoff: Handoff, now_s: float) -> bool:
    """Applies the previous task's report, and returns whether that spares an inspection; not after a broken connection.
    Requests that may still land count in any case.
    """
    if replicator.phase not in (Phase.UNVERIFIED, Phase.VERIFYING):
        return False
    fits = (
        handoff.position != UNKNOWN_POSITION
        and replicator.phase is Phase.UNVERIFIED
        and not replicator.doubted
        and replicator.fits(handoff)
    )
    if fits or not handoff.calm:
        until_s = UNKNOWN_S if handoff.strays_s < 0 else now_s + handoff.strays_s
        replicator.zombies.left(handoff.stray_epoch, until_s, calm=handoff.calm, moved=handoff.strays_moved)
    if fits:
        replicator.take_over(handoff)
        replicator.on_leader_change()
    return fits
