"""Which states of a search are one: they differ in what nothing that follows depends on. Pure.

Brokers' numbers are names. Of epochs only their order counts, and of the epoch that a producer knows only which leaders
it shuts out. Where a follower's log ends is of use to a leader only above its own high watermark.
"""

from __future__ import annotations

from typing import Any

from twinshore.loss.partition import Partition
from twinshore.loss.settings import Setup, Truncation


def merged(setup: Setup, state: Partition) -> Any:
    """The same for states from which the same harm follows by the same moves, but for the numbers of brokers."""
    leader = state.leader
    high = state.replicas[leader - 1].high if leader else 0
    leading = [one.epoch for broker, one in enumerate(state.replicas, 1) if one.leads or broker == leader]
    epochs = {entry.epoch for one in state.replicas for entry in one.log}
    rank = {epoch: at for at, epoch in enumerate(sorted({*epochs, *leading}))}
    by_epoch = setup.truncation is Truncation.EPOCH
    ranked = sorted(
        (
            tuple((entry.record, rank[entry.epoch]) for entry in one.log),
            one.flushed,
            one.high,
            (one.up, one.cut, one.slow, one.leads, one.in_sync, one.eligible, broker == leader, broker == state.last),
            rank[one.epoch] if one.leads or broker == leader else not by_epoch and one.epoch == state.epoch,
            one.view,
            max(one.told, high) if leader and one.in_sync and broker != leader else 0,
            one.waiting if len(one.waiting) < 2 else tuple(sorted(one.waiting)),
        )
        for broker, one in enumerate(state.replicas, 1)
    )
    start = state.start if leader and state.start > high else 0
    shut = sum(epoch < state.seen for epoch in set(leading))
    return tuple(ranked), start, shut, state.sent, state.reader, state.first


def stays_whole(state: Partition) -> bool:
    """Without a further fault no record can be lost from here on: who leads is reached and stays the leader, a leader's
    log only grows, and nobody else takes himself for it and acknowledges. Of readers it says nothing."""
    if state.reader is not None or state.led is None or not state.led.reachable:
        return False
    return not any(one.leads for broker, one in enumerate(state.replicas, 1) if broker != state.leader)
