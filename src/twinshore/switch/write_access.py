"""Applies, confirms and reverts denials and write blocks, and releases what switches hold on clusters.

During the hold, nothing writes on the old home. Afterwards only the twin's link writes there, and principals with
rights on the old home have the same on the new one.

A plan is saved in the switch state, or in the store, before any rule changes, so a process that resumes continues with
it. Each broker applies a new rule on its own, some time after the controller's response, and enforces what it reports.
Requests that a broker admitted before are still appended, so log ends read at once may still move.

A finished switch may leave home records that hold writers, claims, and a denial of Write. Removing all of them is
idempotent; the mirror performs a deferred cleanup for a cluster that does not answer.

Only one process at a time changes a cluster's write block: two would revoke each other's rules, and forget what to
restore.
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


def read_acl_snapshot(cluster: KafkaCluster, topics: Iterable[str], us: str = "") -> AclSnapshot:
    """Raises KafkaError if Twinshore may not read or change the rules; then no step begins."""
    acls = read_acls(cluster)
    if acls is None:
        return AclSnapshot(cluster.name, None, frozenset(topics), frozenset(), us)
    if not may_alter_acls(cluster):
        raise KafkaError(
            f"{cluster.name}: Twinshore may not change its ACLs, so no writer can be kept out",
            hint="grant Alter on the cluster",
        )
    exist = frozenset(cluster.metadata(refresh=True).topics)
    return AclSnapshot(cluster.name, acls, frozenset(topics), exist, us, is_open_without_acls(cluster))


def apply_rules_plan(cluster: KafkaCluster, plan: RulesPlan, may: Callable[[], None] = lambda: None) -> None:
    """Raises KafkaError if a rule is refused, and skips the rest: restore the plan then, or apply it again. `may` is
    called before each change, and raises to stop.
    """
    _apply(cluster, plan.changes_to_apply(), may)


def restore_rules(cluster: KafkaCluster, plan: RulesPlan, may: Callable[[], None] = lambda: None) -> None:
    """Reverts the plan, even one applied in part; later changes by others stay. `may`: as in `apply_rules_plan`."""
    _apply(cluster, plan.changes_to_restore(), may)


def confirm_rules_plan(
    cluster: KafkaCluster, plan: RulesPlan, *, within_s: float = CONFIRM_S_MAX
) -> Mapping[int, float]:
    """Waits until each broker enforces the plan, and returns after how many seconds each did. Raises a retriable
    KafkaError after `within_s`. A request to a silent broker takes the patience of `cluster`, so keep that short.
    """
    return _confirm(cluster, plan.stands, within_s)


def confirm_rules_restored(
    cluster: KafkaCluster, plan: RulesPlan, *, within_s: float = CONFIRM_S_MAX
) -> Mapping[int, float]:
    """Like `confirm_rules_plan`, for the rules after `restore_rules`."""
    return _confirm(cluster, plan.is_restored, within_s)


def _apply(cluster: KafkaCluster, steps: Iterable[AclChange], may: Callable[[], None]) -> None:
    for step in steps:
        may()
        refused = (create_acls if step.add else delete_acls)(cluster, step.acls)
        for error in refused.values():
            raise error


def _confirm(cluster: KafkaCluster, holds: Callable[[Collection[Acl]], bool], within_s: float) -> Mapping[int, float]:
    began_s = time.monotonic()
    shown: dict[int, float] = {}
    silent = ""
    while True:
        # Read each time: a new broker may lead a denied partition.
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
            names = join_names([str(node) for node in late])
            raise KafkaError(
                f"{cluster.name}: after {within_s:g} s broker {names} does not show the changed rules{silent}",
                retriable=True,
                hint="see whether it follows its controller",
            )
        time.sleep(POLL_INTERVAL_S)


CONFIRM_TIMEOUT_S = 5.0
UNREACHABLE_MS_MAX = 15_000  # a cluster that is silent for so long gets a deferred cleanup


def defer_cleanup(store: Store, state: SwitchState, topics: Collection[str] | None = None) -> bool:
    """Stores the deferred cleanup of this switch, or of these topics. Returns whether there is one."""
    cleanup = deferred_cleanup_of(state, topics)
    if cleanup is not None:
        _keep(store, state, cleanup)
    return cleanup is not None


def _keep(store: Store, state: SwitchState, cleanup: DeferredCleanup) -> None:
    pair = pair_name(Link(state.old, state.new))
    subject = f"{cleanup.switch} {cleanup.old}"
    before = next((row for row in store.link_states.of(pair, DEFERRED_CLEANUP_KIND) if row.subject == subject), None)
    whole = merge_cleanups(cleanup, DeferredCleanup.from_json(before.value) if before else None)
    store.link_states.remember([LinkStateRow(pair, DEFERRED_CLEANUP_KIND, subject, whole.to_json(), "owed", wall_ms())])


def end_holds(state: SwitchState, clusters: Sequence[KafkaCluster], store: Store, now_ms: int) -> str:
    """Ends the holds on each cluster; the topics stay claimed. Errors as for `release_topics`."""
    return _said_on_each(end_hold_on_cluster, "that no writer is held", state, clusters, store, now_ms)


def release_topics(state: SwitchState, clusters: Sequence[KafkaCluster], store: Store, now_ms: int) -> str:
    """Ends the holds and frees the claims on each cluster. Raises KafkaError if none answers, and for some seconds if
    one does not; then defers the cleanup there and returns a sentence.
    """
    return _said_on_each(release_topics_on_cluster, "that the topics are free", state, clusters, store, now_ms)


def _said_on_each(
    say: Callable[[KafkaCluster, str, Collection[str], str], object],
    what: str,
    state: SwitchState,
    clusters: Sequence[KafkaCluster],
    store: Store,
    now_ms: int,
) -> str:
    """A silent cluster does not delay the others."""
    silent: list[tuple[KafkaCluster, KafkaError]] = []
    for cluster in clusters:
        try:
            say(cluster, state.id, state.names(), state.by)
        except KafkaError as error:
            if not error.retriable:
                raise
            silent.append((cluster, error))
    if not silent:
        return ""
    if len(silent) == len(clusters) or not state.tried_for(UNREACHABLE_MS_MAX, now_ms):
        raise silent[0][1]
    for cluster, _ in silent:
        _keep(store, state, DeferredCleanup(state.id, cluster.name, state.names()))
    away = silent[0][0].name
    return f"{away} does not answer: the mirror tells it when it does {what}"


def end_hold_on_cluster(cluster: KafkaCluster, switch: str, topics: Collection[str], by: str) -> HomesTopic:
    homes_topic = HomesTopic(cluster)
    settled = [
        replace(record, step=record.step + 1, state=HomeState.SETTLED, switch="", set_by=by, hold_ms=0)
        for topic, record in homes_topic.read().items()
        if topic in topics and record.switch == switch and record.state is not HomeState.SETTLED
    ]
    if settled:
        homes_topic.say(settled, wall_ms())
    return homes_topic


def release_topics_on_cluster(cluster: KafkaCluster, switch: str, topics: Collection[str], by: str) -> None:
    homes_topic = end_hold_on_cluster(cluster, switch, topics, by)
    if homes_topic.log.claimed(switch):
        homes_topic.release(topics, switch, wall_ms())


def earlier_denials(store: Store, state: SwitchState) -> frozenset[Acl]:
    """Returns denials by earlier switches between these homes that are still to be removed on the old home."""
    rows = store.link_states.of(pair_name(Link(state.old, state.new)), DEFERRED_CLEANUP_KIND)
    return frozenset(acl for row in rows for acl in _denied(row, state.old))


def _denied(row: LinkStateRow, cluster: str) -> tuple[Acl, ...]:
    """A row that this version cannot read must not block a switch."""
    try:
        cleanup = DeferredCleanup.from_json(row.value)
        ours = cleanup.old == cluster and cleanup.rights
        return RulesPlan.from_record(json.loads(cleanup.rights)).deny if ours else ()
    except (WireError, ValueError, KeyError, TypeError):
        return ()


def clean_up(old: KafkaCluster, cleanup: DeferredCleanup, by: str, may: Callable[[], None] = lambda: None) -> None:
    """Restores the rules, ends the holds, frees the claims. `may` is called before each change of rules, and raises to
    stop.
    """
    if cleanup.rights:
        plan = RulesPlan.from_record(json.loads(cleanup.rights))
        restore_rules(old, plan, may)
        confirm_rules_restored(old, plan, within_s=CONFIRM_TIMEOUT_S)
    release_topics_on_cluster(old, cleanup.switch, cleanup.topics, by)


class AclAccess(Protocol):
    @property
    def name(self) -> str: ...

    def look(self, topics: Iterable[str], us: str) -> AclSnapshot: ...

    def take(self, plan: RulesPlan, may: Callable[[], None]) -> None:
        """Returns once every broker has the plan. `may` is called before each change, and raises to stop."""
        ...


class ClusterAclAccess:
    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster, self.name = cluster, cluster.name

    def look(self, topics: Iterable[str], us: str) -> AclSnapshot:
        return read_acl_snapshot(self._cluster, topics, us)

    def take(self, plan: RulesPlan, may: Callable[[], None]) -> None:
        apply_rules_plan(self._cluster, plan, may)
        confirm_rules_plan(self._cluster, plan, within_s=CONFIRM_TIMEOUT_S)


class WriteBlockKeeper:
    """The write blocks in the store. `by`: who changes them."""

    def __init__(self, store: Store, by: str) -> None:
        self._store, self._by = store, by

    def known(self, cluster: str) -> WriteBlock:
        row = self._store.write_blocks.of(cluster)
        return WriteBlock.from_json(row.block) if row else WriteBlock()

    def stands(self, rules: AclAccess, us: str, topics: Iterable[str]) -> bool:
        """Returns whether these twins are blocked, and no right has been granted since. Read-only."""
        block = self.known(rules.name)
        if not block.topics.issuperset(topics):
            return False
        sight = rules.look(block.topics, us or block.us)
        return is_write_block_up(block, renew_write_block(block, sight), sight.acls)

    def add(self, rules: AclAccess, us: str, more: Callable[[], Iterable[str]]) -> None:
        """Returns once every broker blocks these twins too. `more` is called under the lease of the block, so its
        answer is current. Raises KafkaError if the cluster refuses, or another process takes over.
        """
        self._change(rules, us, more, lambda: ())

    def drop(self, rules: AclAccess, less: Callable[[], Iterable[str]]) -> None:
        """Reverts rules changed for topics that are no longer twins. `less` is called again under the lease of the
        block.
        """
        block = self.known(rules.name)
        # A process may have crashed after it saved this, and before it applied it.
        if block.topics.intersection(less()) or not block.is_settled:
            self._change(rules, "", lambda: (), less)

    def _change(
        self, rules: AclAccess, us: str, more: Callable[[], Iterable[str]], less: Callable[[], Iterable[str]]
    ) -> None:
        with exclusive(f"guard of {rules.name}", self._store, self._by) as lease:
            block = self.known(rules.name)
            topics = (block.topics | frozenset(more())).difference(less())
            if not topics and not block.topics and block.is_settled:
                return
            block = renew_write_block(block, rules.look(topics, us or block.us))
            self._save(rules.name, block, lease)
            rules.take(block.plan, lambda: _must_be_ours(rules.name, lease))
            self._save(rules.name, settle_write_block(block), lease)

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
    """Write access during one switch. `link` replicated from `old` to `new`; `back` replicates afterwards."""

    def __init__(self, old: KafkaCluster, new: KafkaCluster, link: Link, back: Link, store: Store) -> None:
        self._old, self._new, self._link, self._back, self._store = old, new, link, back, store

    def deny(self, state: SwitchState) -> StepOutcome:
        """Done once every broker of the old home denies all writes. The sentence names what cannot be enforced."""
        if not state.rights:
            owed = earlier_denials(self._store, state)  # first: a cleanup in between removes them from the rules
            plan = plan_denial(read_acl_snapshot(self._old, state.names()), owed)
            state = replace(state, rights=json.dumps(plan.as_record(), sort_keys=True))
            return StepPending(f"the switch records first what it denies on {state.old}", state)
        plan = _plan_of(state)
        apply_rules_plan(self._old, plan)
        confirm_rules_plan(self._old, plan, within_s=CONFIRM_TIMEOUT_S)
        return StepDone(state, "; ".join(plan.remarks) or f"no client may write on {self._old.name}")

    def restore_rights(self, state: SwitchState) -> None:
        if state.rights:
            plan = _plan_of(state)
            restore_rules(self._old, plan)
            confirm_rules_restored(self._old, plan, within_s=CONFIRM_TIMEOUT_S)

    def apply_rights(self, state: SwitchState) -> None:
        """Gives writers their rights on the new home, and removes the write block of the twin."""
        WriteBlockKeeper(self._store, state.by).drop(ClusterAclAccess(self._new), state.names)
        plan = _plan_of(state)
        rows = self._store.link_states.of(self._link.name)
        twins = {topic: self._link.twin_of(topic) for topic in state.names()}
        self._store.link_states.forget(acl_rows_to_forget(rows, twins.values()))
        rules = acls_for_new_home(rows, twins, earlier_denials(self._store, state).union(plan.deny))
        for error in create_acls(self._new, sorted(rules)).values() if rules else ():
            raise error

    def guard(self, state: SwitchState) -> None:
        """Blocks all writers but the reverse link on the old home; then removes the denial."""
        us = target_principal(self._back, self._old)
        WriteBlockKeeper(self._store, state.by).add(ClusterAclAccess(self._old), us, state.names)
        self.restore_rights(state)


def _plan_of(state: SwitchState) -> RulesPlan:
    try:
        return RulesPlan.from_record(json.loads(state.rights)) if state.rights else RulesPlan()
    except (ValueError, KeyError, TypeError) as error:
        raise KafkaError("the rules that the switch changed cannot be read from its record") from error
