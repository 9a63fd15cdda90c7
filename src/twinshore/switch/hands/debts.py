"""What a switch that is no more left on a cluster: words that hold writers, claims, a denial of Write. All of it goes;
done twice as done once. To a cluster that is silent it is owed, and the mirror pays."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from twinshore.fleet import KafkaError, Link, WireError
from twinshore.homes.home_lines import HomeState
from twinshore.homes.home_notes import HomeNotes
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.rights import Acl
from twinshore.links.homes import pair_of
from twinshore.service.clock import wall_ms
from twinshore.store import Remembered, Store
from twinshore.switch.debts import DEBT, Debt, both, debt_of
from twinshore.switch.hands.rights import confirm_restored, restore
from twinshore.switch.record import Record
from twinshore.switch.write_rules import RulesPlan

CONFIRMED_S = 5.0
SILENT_MS_MAX = 15_000  # a cluster that is silent for so long is told later


def remember(store: Store, record: Record, topics: Collection[str] | None = None) -> bool:
    """The debt of this switch to the home that is gone, of these topics of it, until the mirror has paid it; whether
    there is one."""
    debt = debt_of(record, topics)
    if debt is not None:
        _keep(store, record, debt)
    return debt is not None


def _keep(store: Store, record: Record, debt: Debt) -> None:
    """One for each cluster that the switch owes something to."""
    pair = pair_of(Link(record.old, record.new))
    subject = f"{debt.switch} {debt.old}"
    before = next((row for row in store.memories.of(pair, DEBT) if row.subject == subject), None)
    whole = both(debt, Debt.from_json(before.value) if before else None)
    store.memories.remember([Remembered(pair, DEBT, subject, whole.to_json(), "owed", wall_ms())])


def settled(record: Record, clusters: Sequence[KafkaCluster], store: Store, now_ms: int) -> str:
    """Each cluster hears that nobody is held any more; the topics stay this switch's. As `unsaid`."""
    return _said_on_each(settle, "that nobody is held", record, clusters, store, now_ms)


def unsaid(record: Record, clusters: Sequence[KafkaCluster], store: Store, now_ms: int) -> str:
    """Each cluster hears that the topics are in this switch no more. One that does not answer is waited for for some
    seconds, and then owed it: a sentence says so. KafkaError meanwhile, and while none answers."""
    return _said_on_each(unsay, "that the topics are free", record, clusters, store, now_ms)


def _said_on_each(
    say: Callable[[KafkaCluster, str, Collection[str], str], object],
    what: str,
    record: Record,
    clusters: Sequence[KafkaCluster],
    store: Store,
    now_ms: int,
) -> str:
    """One that is silent keeps nobody on the others waiting."""
    silent: list[tuple[KafkaCluster, KafkaError]] = []
    for cluster in clusters:
        try:
            say(cluster, record.id, record.names(), record.by)
        except KafkaError as error:
            if not error.retriable:
                raise
            silent.append((cluster, error))
    if not silent:
        return ""
    if len(silent) == len(clusters) or not record.tried_for(SILENT_MS_MAX, now_ms):
        raise silent[0][1]
    for cluster, _ in silent:
        _keep(store, record, Debt(record.id, cluster.name, record.names()))
    away = silent[0][0].name
    return f"{away} does not answer: the mirror tells it when it does {what}"


def settle(cluster: KafkaCluster, switch: str, topics: Collection[str], by: str) -> HomeNotes:
    """Nobody is held by this switch's words any more."""
    notes = HomeNotes(cluster)
    ours = [line for topic, line in notes.read().items() if topic in topics and line.switch == switch]
    held = [line for line in ours if line.state is not HomeState.SETTLED]
    over = [replace(one, step=one.step + 1, state=HomeState.SETTLED, switch="", set_by=by, hold_ms=0) for one in held]
    if over:
        notes.say(over, wall_ms())
    return notes


def unsay(cluster: KafkaCluster, switch: str, topics: Collection[str], by: str) -> None:
    """The same, and it has none of these topics."""
    notes = settle(cluster, switch, topics, by)
    if notes.log.claimed(switch):
        notes.release(topics, switch, wall_ms())


def denied(store: Store, record: Record) -> frozenset[Acl]:
    """What earlier switches between these homes deny on the old home still, and are to take back."""
    rows = store.memories.of(pair_of(Link(record.old, record.new)), DEBT)
    return frozenset(acl for row in rows for acl in _denied(row, record.old))


def _denied(row: Remembered, cluster: str) -> tuple[Acl, ...]:
    """A debt that this version cannot read keeps no switch waiting."""
    try:
        debt = Debt.from_json(row.value)
        ours = debt.old == cluster and debt.rights
        return RulesPlan.from_record(json.loads(debt.rights)).deny if ours else ()
    except (WireError, ValueError, KeyError, TypeError):
        return ()


def pay(old: KafkaCluster, debt: Debt, by: str, may: Callable[[], None] = lambda: None) -> None:
    """The old home is as it was before that switch, and whoever may write there now may write. `may` is asked before
    each change of rules, and raises where it is not to be done any more."""
    if debt.rights:
        plan = RulesPlan.from_record(json.loads(debt.rights))
        restore(old, plan, may)
        confirm_restored(old, plan, within_s=CONFIRMED_S)
    unsay(old, debt.switch, debt.topics, by)
