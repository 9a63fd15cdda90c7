"""What a switch that is no more left on a cluster: words that hold writers, claims, a denial of Write. All of it goes;
done twice as done once."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace

from twinshore.fleet import Link
from twinshore.homes.home_lines import HomeState
from twinshore.homes.home_notes import HomeNotes
from twinshore.kafka.cluster import KafkaCluster
from twinshore.links.homes import pair_of
from twinshore.service.clock import wall_ms
from twinshore.store import Remembered, Store
from twinshore.switch.acl_fence import FencePlan
from twinshore.switch.hands.rights import confirm_restored, restore
from twinshore.switch.record import Record
from twinshore.switch.taking_over import DEBT, Debt, owed

CONFIRMED_S = 5.0


def remember(store: Store, record: Record) -> bool:
    """The debt of this switch to its old home, until the mirror has paid it; whether there is one."""
    debt = owed(record)
    if debt is not None:
        pair = pair_of(Link(record.old, record.new))
        store.memories.remember([Remembered(pair, DEBT, record.id, debt.to_json(), "owed", wall_ms())])
    return debt is not None


def unsay(cluster: KafkaCluster, switch: str, topics: Collection[str], by: str) -> None:
    """Nobody is held by its words any more, and it has no topic."""
    notes = HomeNotes(cluster)
    ours = [line for topic, line in notes.read().items() if topic in topics and line.switch == switch]
    held = [line for line in ours if line.state is not HomeState.SETTLED]
    over = [replace(one, step=one.step + 1, state=HomeState.SETTLED, switch="", set_by=by) for one in held]
    if over:
        notes.say(over, wall_ms())
    if notes.log.claimed(switch):
        notes.release(topics, switch, wall_ms())


def pay(old: KafkaCluster, debt: Debt, by: str) -> None:
    """The old home is as it was before that switch, and whoever may write there now may write."""
    if debt.rights:
        plan = FencePlan.from_record(json.loads(debt.rights))
        restore(old, plan)
        confirm_restored(old, plan, within_s=CONFIRMED_S)
    unsay(old, debt.switch, debt.topics, by)
