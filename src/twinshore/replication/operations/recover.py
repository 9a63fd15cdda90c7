"""Restores a link's lost store, so that replication continues and nothing is copied again.

The target has what is needed: the link's records and the twins, compared with the source. A recorded twin counts only
if both topic ids still match, and if an inspection like a task's finds this link's records up to the last one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from twinshore.config.errors import ConfigError, KafkaError, RefusedError
from twinshore.config.model import Link, Plan, TopicPartition
from twinshore.config.sentences import Tell, format_time
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.replication.core.claim_records import StoreClaim, TwinAnchors, iter_anchors
from twinshore.replication.core.filters import admits
from twinshore.replication.core.ownership import homes_elsewhere, pair_name
from twinshore.replication.link_claim import LinkClaim
from twinshore.replication.recovery import hold_mirror_lease, refuse_while_mirror_runs
from twinshore.replication.task.core.batches import SequenceMap
from twinshore.replication.task.core.position import ResumeAt, StopAt, TargetState, judge_position
from twinshore.replication.task.lookups import inspect_target
from twinshore.replication.topic_scanner import read_known_twins
from twinshore.runtime.endpoints import LinkClients, verify_cluster_ids
from twinshore.state.core.values import AuditRow, LeaseRow, LinkIdentity, ProgressRecord, TwinRow
from twinshore.state.sql import chunks
from twinshore.state.store import Store

PATIENCE_S = 10.0
RETRY_INTERVAL_S = 0.3
PARTITIONS_PER_INSPECTION = 200
MAPPED_NOT_RECOVERED = (
    "is mapped: only the lost store knew its offset map; restore a backup, or start "
    'the mirror with mode = "mapped", so that it continues where its records show'
)
LOST_FOR_GOOD = (
    "lost for good, as the target does not have it: the source's producers, the incident log and the partitions that "
    "it stopped, audit, proofs, alerts, the windows of lags, pauses, throttles, filters, what was held back, orders of "
    "`twinshore mirror keep` (repeat them), announced deletions (each has its whole delay again), and which ACLs and "
    "quotas are the link's and which SCRAM users it has seen: the link removes none of these any more"
)


@dataclass(frozen=True, slots=True)
class RecoveredPartition:
    """`end`: the twin's offset, -1: only a task can find out."""

    row: TwinRow
    end: int
    source_end: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Recovery:
    """`left`: topics that are not restored, with reasons. `claim`: the holder's, if any. `identity`: the recorded
    producer; None: the holder has never begun, or `kept`: this store has twins of another identity.
    `whole`: this store holds the link and knows all of `found`; then no recovery restores `left`.
    """

    own: str
    source_id: str
    claim: StoreClaim | None
    identity: LinkIdentity | None
    kept: LinkIdentity | None = None
    found: tuple[RecoveredPartition, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    whole: bool = False


class Recoverer:
    """`look` changes nothing; `recover` takes the link over and fills the store."""

    def __init__(self, link: Link, store: Store, source: KafkaCluster, target: KafkaCluster) -> None:
        self._link, self._store = link, store
        self._source, self._target = source, target
        self._notes = LinkClaim(link, store, target)

    def look(self) -> Recovery:
        """Reads the target and inspects each twin; ConfigError when nothing is recorded of the link."""
        link, source_id, target_id = self._link, self._source.cluster_id(), self._target.cluster_id()
        state = self._notes.look(source_id)
        writer, claim = state.writer, state.holder()
        if state.newer_writer:
            raise RefusedError(
                "replication.newer-claim", link=link.name, cluster=link.target, version=state.newer_writer
            )
        if writer is None and claim:
            return Recovery(self._notes.own, source_id, claim, None)
        if writer is None:
            raise ConfigError("replication.no-claim", link=link.name, cluster=link.target, source_id=source_id)
        if writer.target_cluster_id != target_id:
            raise RefusedError("replication.claim-of-another-cluster", link=link.name, cluster=link.target)
        identity = LinkIdentity(link.name, writer.producer_id, writer.producer_epoch, source_id, target_id)
        link_identity = verify_cluster_ids(link, self._store, self._source, self._target)
        if link_identity and link_identity != identity and self._store.twins.of(link.name):
            return Recovery(self._notes.own, source_id, claim, None, link_identity)
        unread = {topic for topic, _ in state.newer_twins}
        anchors = {topic: state.of_topic(topic) for topic, _ in sorted(state.twins) if topic not in unread}
        rows, left = self._rows(anchors)
        left |= dict.fromkeys(sorted(unread), "has records of a newer version, which this one cannot read")
        found: list[RecoveredPartition] = []
        for topic in sorted({row.topic for row in rows}):
            try:
                for some in chunks([row for row in rows if row.topic == topic], PARTITIONS_PER_INSPECTION):
                    found += self._inspected(identity, some)
            except KafkaError as error:
                left[topic] = f"cannot be inspected: {error.message}"
        known = {(row.topic, row.partition) for row in self._store.twins.of(link.name)}
        own = claim is not None and claim.store == self._notes.own and link_identity == identity
        whole = own and all((partition.row.topic, partition.row.partition) in known for partition in found)
        why = tuple(sorted(left.items()))
        return Recovery(self._notes.own, source_id, claim, identity, None, tuple(found), why, whole)

    def recover(self, recovery: Recovery, by: str) -> None:
        """Idempotent. Takes the link over first, so that no other store begins."""
        self._notes.take_over(recovery.source_id)
        store, link, now_ms = self._store, self._link.name, wall_ms()
        before = store.links.identity(link)
        if before is None and recovery.identity:
            store.links.save_identity(recovery.identity)
        elif before and recovery.identity and before != recovery.identity:
            store.links.replace_identity(before, recovery.identity)
        store.twins.save([replace(partition.row, created_ms=now_ms) for partition in recovery.found])
        known = {(position.topic, position.partition) for position in store.progress.positions(link)}
        fresh = [tp for tp in recovery.found if tp.end >= 0 and (tp.row.topic, tp.row.partition) not in known]
        store.progress.record([_first_progress(partition, now_ms) for partition in fresh])
        was = f"store {recovery.claim.store}" if recovery.claim else "no store"
        count = f"store {recovery.own}, {len(recovery.found)} partitions restored"
        store.audit.add([AuditRow(now_ms, link, "recover", link, was, count, f"by {by}", by)])

    def _rows(self, anchors: Mapping[str, list[TwinAnchors]]) -> tuple[list[TwinRow], dict[str, str]]:
        """Returns rows of twins whose topic ids still match, and why others are left."""
        link, known = self._link, read_known_twins(self._store, self._link)
        if not anchors:
            return [], {}
        sources = self._source.metadata(sorted(anchors), refresh=True).topics
        twins = self._target.metadata(sorted(map(link.twin_of, anchors)), refresh=True).topics
        rows: list[TwinRow] = []
        left: dict[str, str] = {}
        away = homes_elsewhere(link, self._store.homes.of(pair_name(link)))
        for topic, records in anchors.items():
            ids = {(record.source_topic_id, record.target_topic_id) for record in records}
            source, twin = sources.get(topic), twins.get(link.twin_of(topic))
            if any(record.mapped for record in records):
                left[topic] = MAPPED_NOT_RECOVERED
            elif topic in away:
                left[topic] = f"is at home on {away[topic].home}: this link no longer replicates it"
            elif not admits(link, topic):
                left[topic] = "is not admitted by the link's filters"
            elif source is None or source.error:
                left[topic] = f"is not on {link.source}"
            elif twin is None or twin.error:
                left[topic] = f"has no twin on {link.target} any more"
            elif ids != {(source.topic_id.hex(), twin.topic_id.hex())}:
                left[topic] = "was deleted and created again since, on one side or both"
            elif topic in known and {(known[topic].source_topic_id, known[topic].target_topic_id)} != ids:
                left[topic] = "has another twin in this store: `twinshore mirror forget` it first"
            else:
                count = min(len(source.partitions), len(twin.partitions))
                (pair,) = ids
                rows += [
                    TwinRow(link.name, topic, partition, *pair, run.offset, run.sequence, 0, run.inherited, run.epoch)
                    for partition, run in sorted(set(iter_anchors(records)))
                    if partition < count
                ]
        return rows, left

    def _inspected(self, identity: LinkIdentity, rows: Sequence[TwinRow]) -> list[RecoveredPartition]:
        """Inspects until each partition can be judged, for `PATIENCE_S` at most."""
        waiting = {TopicPartition(row.topic, row.partition): row for row in rows}
        found: list[RecoveredPartition] = []
        deadline_s = time.monotonic() + PATIENCE_S
        while waiting:
            twins = {tp: TopicPartition(self._link.twin_of(tp.topic), tp.partition) for tp in waiting}
            inherited = {tp: row.inherited_end for tp, row in waiting.items()}
            states = inspect_target(self._source, self._target, identity.producer_id, twins, inherited=inherited)
            for tp, row in list(waiting.items()):
                if judged := _judged(identity, row, states[tp], last=time.monotonic() > deadline_s):
                    found.append(judged)
                    del waiting[tp]
            if waiting:
                time.sleep(RETRY_INTERVAL_S)
        return found


@contextmanager
def open_recoverer(settings: Settings, link: Link, store: Store) -> Iterator[Recoverer]:
    with LinkClients(link, settings, patience_s=PATIENCE_S) as clients:
        yield Recoverer(link, store, clients.source, clients.target)


def _judged(identity: LinkIdentity, row: TwinRow, state: TargetState, *, last: bool) -> RecoveredPartition | None:
    stamp = SequenceMap.of((identity.producer_id, identity.producer_epoch), row)
    verdict = judge_position(state, stamp, row.inherited_end)
    end, source_end = -1, state.source_end
    if isinstance(verdict, ResumeAt):
        end, sentence = verdict.position, f"ends at {verdict.position}, the source at {source_end}"
    elif isinstance(verdict, StopAt):
        sentence = f"its task will stop: {verdict.kind}: {verdict.sentence}"
    elif last:
        sentence = f"its task must check again: {verdict.sentence}"
    else:
        return None
    return RecoveredPartition(row, end, source_end, sentence)


def _first_progress(partition: RecoveredPartition, now_ms: int) -> ProgressRecord:
    """Returns the first progress row: earlier progress was in the lost store."""
    row, end, source_end = partition.row, partition.end, partition.source_end
    return ProgressRecord(
        link=row.link,
        topic=row.topic,
        partition=row.partition,
        from_offset=end,
        to_offset=end,
        records=0,
        bytes=0,
        batches=0,
        source_end=source_end,
        first_ms=now_ms,
        last_ms=now_ms,
        lag_records=max(0, source_end - end),
    )


@dataclass(frozen=True, slots=True)
class TakeOverLinkStep:
    """`holder`: the present one; empty: this store."""

    link: str
    holder: str
    store: str
    writes: str

    def sentence(self, *, done: bool) -> str:
        would = "" if done else "would be "
        how = f"taken over from {self.holder}" if self.holder else "kept"
        return f"{self.link}: {would}{how} by this store, {self.store}, {self.writes}"


@dataclass(frozen=True, slots=True)
class RestorePartitionStep:
    link: str
    found: RecoveredPartition

    def sentence(self, *, done: bool) -> str:
        row = self.found.row
        anchor = f"sequence {row.base_sequence} at offset {row.base_offset}"
        would = "" if done else "would be "
        return f"{self.link}: {would}restored: {row.topic}-{row.partition} {self.found.sentence}; {anchor}"


@dataclass(frozen=True, slots=True)
class SkippedTopicStep:
    link: str
    topic: str
    why: str

    def sentence(self, *, done: bool) -> str:
        return f"{self.link}: {'not' if done else 'would not be'} restored: {self.topic} {self.why}"


RecoverStep = TakeOverLinkStep | RestorePartitionStep | SkippedTopicStep


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverPlan(Plan[RecoverStep]):
    """`recovery`: as seen while no mirror ran under this `lease`."""

    link: str
    recovery: Recovery
    lease: LeaseRow | None = None


def plan(name: str, settings: Settings, store: Store, *, tell: Tell) -> RecoverPlan:
    """Plans the recovery of this link; inspects each twin. RefusedError while a mirror runs the link here; `tell` gets
    what is waited for.
    """
    link = settings.link(name)
    lease = refuse_while_mirror_runs(store, name, settings.mirror.lease_s, tell)
    with open_recoverer(settings, link, store) as recoverer:
        recovery = recoverer.look()
    if not recovery.whole or recovery.identity is None:
        remarks = (f"{name}: {LOST_FOR_GOOD}",) if recovery.identity else ()
        steps = tuple(build_recover_steps(name, recovery, store))
        return RecoverPlan(steps, remarks=remarks, link=name, recovery=recovery, lease=lease)
    nothing = (
        f"{name}: nothing is lost and nothing has to be done: this store, {store.place}, writes the link as producer"
        f" {recovery.identity.producer_id} and knows all {len(recovery.found):,} partitions recorded on {link.target}"
    )
    known = {row.topic for row in store.twins.of(name)}
    left = [SkippedTopicStep(name, topic, why) for topic, why in recovery.left if topic not in known]
    shown = (nothing, *(step.sentence(done=True) for step in left))
    return RecoverPlan(shown=shown, link=name, recovery=recovery, lease=lease)


def act(planned: RecoverPlan, settings: Settings, store: Store, *, by: str) -> Iterator[RecoverStep]:
    """Executes all steps, the link first. RefusedError when a mirror has begun since."""
    if not planned.steps:
        return
    link = settings.link(planned.link)
    with hold_mirror_lease(store, link.name, planned.lease, by), open_recoverer(settings, link, store) as recoverer:
        recoverer.recover(planned.recovery, by)
    yield from planned.steps


def build_recover_steps(link: str, recovery: Recovery, store: Store) -> Iterator[RecoverStep]:
    writes = "which has never begun to write"
    if recovery.kept:
        writes = f"which continues with the twins it knows, as producer {recovery.kept.producer_id}; none is restored"
    elif recovery.identity:
        writes = f"as producer {recovery.identity.producer_id}"
    holder, claim = "no store", recovery.claim
    if claim:
        described = f"store {claim.store[:8]} (host {claim.host}, since {format_time(claim.since_ms)})"
        holder = "" if claim.store == recovery.own else described
    yield TakeOverLinkStep(link, holder, store.place, writes)
    yield from (RestorePartitionStep(link, found) for found in recovery.found)
    yield from (SkippedTopicStep(link, topic, why) for topic, why in recovery.left)
