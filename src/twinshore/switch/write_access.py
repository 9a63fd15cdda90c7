"""A denial or a guard, put up, seen to stand on every broker, and taken down.

Whoever is killed here goes on with the same plan: it was written down before anything was done. The answer to a new
rule is the controller's; each broker hears of it by itself, and enforces what it shows. What a broker let in before it
is appended after it all the same, so ends that are read at once may still move.

What a switch that is no more left on a cluster: words that hold writers, claims, a denial of Write. All of it goes;
done twice as done once. To a cluster that is silent it is owed, and the mirror pays.

A cluster's guard, changed by one process at a time: two would each take away what the other gave, and forget what
the other must give back.

Who may write while a switch moves topics: nobody on the old home during the hold, its twin's link alone afterwards,
and on the new home those who had the right on the old one.

What is to be changed of a cluster's rules is in the record, or in the store, before anything of it is done.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from twinshore.config.errors import KafkaError, WireError
from twinshore.config.model import Link
from twinshore.config.sentences import join_names
from twinshore.kafka.admin import create_acls, delete_acls, may_alter_acls, read_acls
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.access_control import Acl
from twinshore.replication.core.ownership import pair_name
from twinshore.replication.sync.cluster_comparison import is_open_without_acls, target_principal
from twinshore.routing.core.home_records import HomeState
from twinshore.routing.homes_topic import HomesTopic
from twinshore.runtime.lease_keeper import LeaseKeeper, exclusive
from twinshore.state.core.values import LinkStateRow, WriteBlockRow
from twinshore.state.store import Store
from twinshore.switch.core.acl_rules import (
    DEFERRED_CLEANUP_KIND,
    AclChange,
    AclSnapshot,
    DeferredCleanup,
    RulesPlan,
    WriteBlock,
    acl_rows_to_forget,
    acls_for_new_home,
    deferred_cleanup_of,
    is_write_block_up,
    merge_cleanups,
    plan_denial,
    renew_write_block,
    settle_write_block,
)
from twinshore.switch.core.steps import StepDone, StepOutcome, StepPending, SwitchState

CONFIRM_S_MAX = 20.0
POLL_INTERVAL_S = 0.02
NAMED_MAX = 5


def read_acl_snapshot(cluster: KafkaCluster, topics: Iterable[str], us: str = "") -> AclSnapshot:
    """The cluster as plans want to see it. KafkaError where we may not read its rules or not change them: then nothing
    is begun."""
    acls = read_acls(cluster)
    if acls is None:
        return AclSnapshot(cluster.name, None, frozenset(topics), frozenset(), us)
    if not may_alter_acls(cluster):
        raise KafkaError(
            f"{cluster.name}: we may not change its ACLs, so nobody can be kept from writing there",
            hint="grant Alter on the cluster",
        )
    exist = frozenset(cluster.metadata(refresh=True).topics)
    return AclSnapshot(cluster.name, acls, frozenset(topics), exist, us, is_open_without_acls(cluster))


def apply_rules_plan(cluster: KafkaCluster, plan: RulesPlan, may: Callable[[], None] = lambda: None) -> None:
    """KafkaError where a rule is refused: what comes after it is not done. Restore the plan, or apply it again. `may`
    is asked before each step, and raises where it is not to be done any more."""
    _take(cluster, plan.changes_to_apply(), may)


def restore_rules(cluster: KafkaCluster, plan: RulesPlan, may: Callable[[], None] = lambda: None) -> None:
    """The rules are as before the plan, but for what others changed meanwhile. Also where it was done in part. `may` as
    with `apply_rules_plan`."""
    _take(cluster, plan.changes_to_restore(), may)


def confirm_rules_plan(
    cluster: KafkaCluster, plan: RulesPlan, *, within_s: float = CONFIRM_S_MAX
) -> Mapping[int, float]:
    """Returns once each broker of the cluster enforces the plan: after how many seconds each showed it. KafkaError
    (retriable) where one does not in time. One that is silent is asked for as long as `cluster` has patience, which is
    to be little here, and again until the cluster itself gives it up."""
    return _shown(cluster, plan.stands, within_s)


def confirm_rules_restored(
    cluster: KafkaCluster, plan: RulesPlan, *, within_s: float = CONFIRM_S_MAX
) -> Mapping[int, float]:
    """The same of the rules as they are after `restore_rules`."""
    return _shown(cluster, plan.is_restored, within_s)


def _take(cluster: KafkaCluster, steps: Iterable[AclChange], may: Callable[[], None] = lambda: None) -> None:
    for step in steps:
        may()
        refused = (create_acls if step.add else delete_acls)(cluster, step.acls)
        for error in refused.values():
            raise error


def _shown(cluster: KafkaCluster, holds: Callable[[Collection[Acl]], bool], within_s: float) -> Mapping[int, float]:
    began_s = time.monotonic()
    shown: dict[int, float] = {}
    silent = ""
    while True:
        # Asked each time: a broker that has come meanwhile may lead what is denied.
        nodes = set(cluster.metadata([], refresh=True).brokers)
        for node in sorted(nodes - shown.keys()):
            try:
                if holds(read_acls(cluster, node) or ()):
                    shown[node] = time.monotonic() - began_s
            except KafkaError as error:
                if not error.retriable:
                    raise
                silent = f": {error.message}"
        late = sorted(nodes - shown.keys())
        if not late:
            return shown
        if time.monotonic() - began_s >= within_s:
            names = join_names([str(node) for node in late], NAMED_MAX)
            raise KafkaError(
                f"{cluster.name}: after {within_s:g} s broker {names} does not show the changed rules{silent}",
                retriable=True,
                hint="see whether it follows its controller",
            )
        time.sleep(POLL_INTERVAL_S)


CONFIRM_TIMEOUT_S = 5.0
UNREACHABLE_MS_MAX = 15_000  # a cluster that is silent for so long is told later


def defer_cleanup(store: Store, record: SwitchState, topics: Collection[str] | None = None) -> bool:
    """The debt of this switch to the home that is gone, of these topics of it, until the mirror has paid it; whether
    there is one."""
    debt = deferred_cleanup_of(record, topics)
    if debt is not None:
        _keep(store, record, debt)
    return debt is not None


def _keep(store: Store, record: SwitchState, debt: DeferredCleanup) -> None:
    """One for each cluster that the switch owes something to."""
    pair = pair_name(Link(record.old, record.new))
    subject = f"{debt.switch} {debt.old}"
    before = next((row for row in store.link_states.of(pair, DEFERRED_CLEANUP_KIND) if row.subject == subject), None)
    whole = merge_cleanups(debt, DeferredCleanup.from_json(before.value) if before else None)
    store.link_states.remember([LinkStateRow(pair, DEFERRED_CLEANUP_KIND, subject, whole.to_json(), "owed", wall_ms())])


def end_holds(record: SwitchState, clusters: Sequence[KafkaCluster], store: Store, now_ms: int) -> str:
    """Each cluster hears that nobody is held any more; the topics stay this switch's. As `release_topics`."""
    return _said_on_each(end_hold_on_cluster, "that nobody is held", record, clusters, store, now_ms)


def release_topics(record: SwitchState, clusters: Sequence[KafkaCluster], store: Store, now_ms: int) -> str:
    """Each cluster hears that the topics are in this switch no more. One that does not answer is waited for for some
    seconds, and then owed it: a sentence says so. KafkaError meanwhile, and while none answers."""
    return _said_on_each(release_topics_on_cluster, "that the topics are free", record, clusters, store, now_ms)


def _said_on_each(
    say: Callable[[KafkaCluster, str, Collection[str], str], object],
    what: str,
    record: SwitchState,
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
    if len(silent) == len(clusters) or not record.tried_for(UNREACHABLE_MS_MAX, now_ms):
        raise silent[0][1]
    for cluster, _ in silent:
        _keep(store, record, DeferredCleanup(record.id, cluster.name, record.names()))
    away = silent[0][0].name
    return f"{away} does not answer: the mirror tells it when it does {what}"


def end_hold_on_cluster(cluster: KafkaCluster, switch: str, topics: Collection[str], by: str) -> HomesTopic:
    """Nobody is held by this switch's words any more."""
    notes = HomesTopic(cluster)
    ours = [line for topic, line in notes.read().items() if topic in topics and line.switch == switch]
    held = [line for line in ours if line.state is not HomeState.SETTLED]
    over = [replace(one, step=one.step + 1, state=HomeState.SETTLED, switch="", set_by=by, hold_ms=0) for one in held]
    if over:
        notes.say(over, wall_ms())
    return notes


def release_topics_on_cluster(cluster: KafkaCluster, switch: str, topics: Collection[str], by: str) -> None:
    """The same, and it has none of these topics."""
    notes = end_hold_on_cluster(cluster, switch, topics, by)
    if notes.log.claimed(switch):
        notes.release(topics, switch, wall_ms())


def earlier_denials(store: Store, record: SwitchState) -> frozenset[Acl]:
    """What earlier switches between these homes deny on the old home still, and are to take back."""
    rows = store.link_states.of(pair_name(Link(record.old, record.new)), DEFERRED_CLEANUP_KIND)
    return frozenset(acl for row in rows for acl in _denied(row, record.old))


def _denied(row: LinkStateRow, cluster: str) -> tuple[Acl, ...]:
    """A debt that this version cannot read keeps no switch waiting."""
    try:
        debt = DeferredCleanup.from_json(row.value)
        ours = debt.old == cluster and debt.rights
        return RulesPlan.from_record(json.loads(debt.rights)).deny if ours else ()
    except (WireError, ValueError, KeyError, TypeError):
        return ()


def clean_up(old: KafkaCluster, debt: DeferredCleanup, by: str, may: Callable[[], None] = lambda: None) -> None:
    """The old home is as it was before that switch, and whoever may write there now may write. `may` is asked before
    each change of rules, and raises where it is not to be done any more."""
    if debt.rights:
        plan = RulesPlan.from_record(json.loads(debt.rights))
        restore_rules(old, plan, may)
        confirm_rules_restored(old, plan, within_s=CONFIRM_TIMEOUT_S)
    release_topics_on_cluster(old, debt.switch, debt.topics, by)


class AclAccess(Protocol):
    """The rules of a cluster, as they are and as they shall be."""

    @property
    def name(self) -> str:
        """The cluster's."""
        ...

    def look(self, topics: Iterable[str], us: str) -> AclSnapshot: ...

    def take(self, plan: RulesPlan, may: Callable[[], None]) -> None:
        """Returns once every broker shows the plan. `may` is asked before each step, and raises where somebody else is
        about to change the rules."""
        ...


class ClusterAclAccess:
    """Those of a cluster that is there."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster, self.name = cluster, cluster.name

    def look(self, topics: Iterable[str], us: str) -> AclSnapshot:
        """Its rules and topics now."""
        return read_acl_snapshot(self._cluster, topics, us)

    def take(self, plan: RulesPlan, may: Callable[[], None]) -> None:
        """Step by step, and confirmed by every broker."""
        apply_rules_plan(self._cluster, plan, may)
        confirm_rules_plan(self._cluster, plan, within_s=CONFIRM_TIMEOUT_S)


class WriteBlockKeeper:
    """The guards that the store knows. `by`: who changes them."""

    def __init__(self, store: Store, by: str) -> None:
        self._store, self._by = store, by

    def known(self, cluster: str) -> WriteBlock:
        """The guard of this cluster, as it was written down last."""
        row = self._store.write_blocks.of(cluster)
        return WriteBlock.from_json(row.guard) if row else WriteBlock()

    def stands(self, rules: AclAccess, us: str, topics: Iterable[str]) -> bool:
        """Whether these twins are guarded, and nobody was given a right since. Only asks."""
        known = self.known(rules.name)
        if not known.topics.issuperset(topics):
            return False
        sight = rules.look(known.topics, us or known.us)
        return is_write_block_up(known, renew_write_block(known, sight), sight.acls)

    def add(self, rules: AclAccess, us: str, more: Callable[[], Iterable[str]]) -> None:
        """Returns once every broker shows the guard of these twins too. `more` is asked once nobody else can change it:
        what holds then decides. KafkaError where the cluster refuses, or another process goes on with it."""
        self._change(rules, us, more, lambda: ())

    def drop(self, rules: AclAccess, less: Callable[[], Iterable[str]]) -> None:
        """These topics are no twins any more: rules that were changed for them alone are as before. `less` is asked
        again once nobody else can change it."""
        known = self.known(rules.name)
        # Somebody may have been killed once this was written down, and before it was done.
        if known.topics.intersection(less()) or not known.is_settled:
            self._change(rules, "", lambda: (), less)

    def _change(
        self, rules: AclAccess, us: str, more: Callable[[], Iterable[str]], less: Callable[[], Iterable[str]]
    ) -> None:
        with exclusive(f"guard of {rules.name}", self._store, self._by) as lease:
            known = self.known(rules.name)
            topics = (known.topics | frozenset(more())).difference(less())
            if not topics and not known.topics and known.is_settled:
                return
            wanted = renew_write_block(known, rules.look(topics, us or known.us))
            self._save(rules.name, wanted, lease)
            rules.take(wanted.plan, lambda: _must_be_ours(rules.name, lease))
            self._save(rules.name, settle_write_block(wanted), lease)

    def _save(self, cluster: str, guard: WriteBlock, lease: LeaseKeeper) -> None:
        row = lease.row()
        if row is None or not self._store.write_blocks.save(WriteBlockRow(cluster, guard.to_json(), wall_ms()), row):
            raise _lost(cluster)


def _must_be_ours(cluster: str, lease: LeaseKeeper) -> None:
    if lease.row() is None:
        raise _lost(cluster)


def _lost(cluster: str) -> KafkaError:
    return KafkaError(f"{cluster}: another process goes on with the guard of its twins", retriable=True)


class WriterAccess:
    """Of one switch. `link` carried the topics from `old` to `new`, `back` carries them from now on."""

    def __init__(self, old: KafkaCluster, new: KafkaCluster, link: Link, back: Link, store: Store) -> None:
        self._old, self._new, self._link, self._back, self._store = old, new, link, back, store

    def deny(self, record: SwitchState) -> StepOutcome:
        """Done once every broker of the old home enforces that nobody writes; what nobody can enforce is in the
        sentence."""
        if not record.rights:
            owed = earlier_denials(self._store, record)  # first: what is paid meanwhile is not among the rules then
            plan = plan_denial(read_acl_snapshot(self._old, record.names()), owed)
            return StepPending(f"what is to be denied on {record.old} is written down first", _with(record, plan))
        plan = _plan_of(record)
        apply_rules_plan(self._old, plan)
        confirm_rules_plan(self._old, plan, within_s=CONFIRM_TIMEOUT_S)
        return StepDone(record, "; ".join(plan.remarks) or f"nobody may write on {self._old.name}")

    def restore_rights(self, record: SwitchState) -> StepOutcome:
        """Gives back what `deny` took."""
        if record.rights:
            plan = _plan_of(record)
            restore_rules(self._old, plan)
            confirm_rules_restored(self._old, plan, within_s=CONFIRM_TIMEOUT_S)
        return StepDone(record)

    def given(self, record: SwitchState) -> StepOutcome:
        """Writers have on the new home the rights that they had on the old one; a guard of the twin goes."""
        WriteBlockKeeper(self._store, record.by).drop(ClusterAclAccess(self._new), record.names)
        plan = _plan_of(record)
        rows = self._store.link_states.of(self._link.name)
        twins = {topic: self._link.twin_of(topic) for topic in record.names()}
        self._store.link_states.forget(acl_rows_to_forget(rows, twins.values()))
        rules = acls_for_new_home(rows, twins, earlier_denials(self._store, record).union(plan.deny))
        for error in create_acls(self._new, sorted(rules)).values() if rules else ():
            raise error
        return StepDone(record)

    def guard(self, record: SwitchState) -> StepOutcome:
        """The link back alone writes to the topics on the old home; only then the denial goes."""
        us = target_principal(self._back, self._old)
        WriteBlockKeeper(self._store, record.by).add(ClusterAclAccess(self._old), us, record.names)
        return self.restore_rights(record)


def _plan_of(record: SwitchState) -> RulesPlan:
    try:
        return RulesPlan.from_record(json.loads(record.rights)) if record.rights else RulesPlan()
    except (ValueError, KeyError, TypeError) as error:
        raise KafkaError("the rules that the switch changed cannot be read from its record") from error


def _with(record: SwitchState, plan: RulesPlan) -> SwitchState:
    return replace(record, rights=json.dumps(plan.as_record(), sort_keys=True))
