"""Steps of a fail-back, a mapped fail-back, and a rebuild. Errors of a step are raised, and may be temporary. `now_ms`:
the clock of `SwitchState.deed_ms`.

Fail-back: `old` is the cluster that returned, `new` the topics' home; `link` led from old to new, `back` replicates the
topics now. Topics that have not diverged stay. For the others, unreplicated records are saved first. Kafka cannot cut
the end off a log, so the topic is deleted, and the mirror refills it.

Mapped fail-back: twins continue after their unreplicated records, with mapped offsets; nothing is deleted or copied
again. The first offset run is exact, up to the divergence. All writes to the store are one idempotent transaction.

Rebuild: `old` is the cluster of the spoilt twin, `new` its home; `link` (`back` in the switch state) replicates the
topics. The mirror stops before the twins are inspected, and recreates them once they are deleted. The twins' cluster
keeps a claim, so that a switch without the store cannot move a topic to an incomplete twin. `points` are the log ends
of the home at the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator
from dataclasses import replace

from twinshore.config.errors import KafkaError
from twinshore.config.model import Link, OffsetRun, SourceOffset, TargetOffset, TopicPartition
from twinshore.config.sentences import count_phrase, join_names
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.record_batch import next_sequence
from twinshore.replication.core.ownership import pair_name
from twinshore.replication.sync.topic_deletion import DeletionGuard
from twinshore.routing.homes_topic import HomesTopic
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store
from twinshore.switch import rescue_steps
from twinshore.switch.announce import (
    HomeAnnouncer,
    claim_on_cluster,
    claim_topics,
    describe_other_claims,
    release_claims,
    resume_replication,
    stop_replication,
)
from twinshore.switch.core.steps import (
    StepDone,
    StepFailed,
    StepOutcome,
    StepPending,
    SwitchKind,
    SwitchState,
    SwitchStep,
    TopicMove,
)
from twinshore.switch.core.unreplicated import (
    DIVERGENCE_KINDS,
    UnreplicatedRange,
    describe_deleted_offsets,
    describe_unfilled,
    explain_differing_partitions,
    find_changed_ranges,
    find_differing_partitions,
    find_doubtful_ranges,
    find_unreplicated_ranges,
    has_unchecked_records,
    ranges_from_json,
    ranges_to_json,
    topics_of_ranges,
)
from twinshore.switch.drain import MirrorWatch, describe_topic_changes, open_transactions, read_log_ends
from twinshore.switch.handover import read_group_offsets
from twinshore.switch.rescue_steps import (
    describe_loading_coordinator,
    inspect_old_home,
    link_producer_ids,
    read_high_watermarks,
    scan_own_batches,
)
from twinshore.switch.step_runner import StepExecutor
from twinshore.switch.write_access import WriterAccess

NAMED_MAX = 5


class RebuildSteps(StepExecutor):
    def __init__(
        self,
        link: Link,
        settings: Settings,
        store: Store,
        old: KafkaCluster,
        new: KafkaCluster,
        now_ms: Callable[[], int],
        guard: DeletionGuard,
    ) -> None:
        self._link, self._store, self._old, self._new, self._now_ms = link, store, old, new, now_ms
        self._guard = guard
        self._mirror = MirrorWatch(store, link.name, settings.mirror.lease_s)
        self._doing = {
            SwitchStep.CLAIM: self._claim,
            SwitchStep.STOP_REPLICATION: self._let_go,
            SwitchStep.INSPECT: self._look,
            SwitchStep.RESCUE: lambda state: rescue_steps.save_unreplicated(
                state, state.names(), old, new, store, self._home_of
            ),
            SwitchStep.COMMIT: self._commit,
            SwitchStep.REBUILD: self._rebuild,
            SwitchStep.REFILL: self._refill,
            SwitchStep.RESTORE_OFFSETS: rescue_steps.RestoreGroupOffsets(old, link, settings, store, now_ms),
            SwitchStep.RELEASE: self._release,
        }
        self._undoing = {
            SwitchStep.CLAIM: self._release,
        }

    # -- before the point of no return

    def _claim(self, state: SwitchState) -> StepOutcome:
        if why := describe_other_claims(claim_topics(self._store, state)):
            return StepFailed(why)
        why = claim_on_cluster(self._old, HomesTopic(self._old), state)
        why = why or self._elsewhere(state)  # read only now: a switch may have moved it before the claim
        return StepFailed(why) if why else StepDone(state)

    def _let_go(self, state: SwitchState) -> StepOutcome:
        if waits := self._mirror.check_alive():
            return waits
        return stop_replication(self._store, state)

    def _look(self, state: SwitchState) -> StepOutcome:
        """Done once two checks saw the same, and no transaction is open."""
        if why := self._changed(state):
            return StepFailed(why)
        now = read_log_ends(self._old, state.topics)
        if now.unsettled and not state.anyway:
            return StepPending(now.unsettled)
        found = ranges_to_json(
            find_doubtful_ranges(
                inspect_old_home(self._old, self._new, self._store, state.back, state.topics, every=True)
            )
        )
        topics = tuple(replace(move, ends=now.ends[move.topic]) for move in state.topics)
        switch_state = replace(state, tails=found, topics=topics)
        if switch_state != state:
            return StepPending(f"the twins on {state.old} are looked at a second time", switch_state)
        live = self._readers(state)
        return StepPending(live, switch_state) if live else StepDone(switch_state)

    def _home_of(self, state: SwitchState, offset_range: UnreplicatedRange) -> rescue_steps.HomeToCompare:
        return rescue_steps.home_to_compare(state.back, offset_range, self._new, self._store, offset_range.first)

    def _commit(self, state: SwitchState) -> StepOutcome:
        """Checks that the twins may be deleted and are as inspected, and that no group reads them."""
        ends = read_log_ends(self._old, state.topics).ends
        if grown := [move.topic for move in state.topics if move.ends != ends[move.topic]]:
            return StepFailed(f"somebody writes to {join_names(grown, NAMED_MAX)} on {state.old}")
        if refused := self._guard.refusal(state.names()):
            return StepFailed(refused.message)
        if why := self._elsewhere(state) or self._changed(state) or self._readers(state):
            return StepFailed(why)
        parts = {(move.topic, number) for move in state.topics for number in range(move.partitions)}
        upto = self._new.list_offsets([TopicPartition(*where) for where in sorted(parts)], OffsetKind.LAST_STABLE)
        topics = tuple(
            replace(move, points=tuple(upto[TopicPartition(move.topic, number)] for number in range(move.partitions)))
            for move in state.topics
        )
        return StepDone(replace(state, topics=topics), "from here on the rebuild goes on")

    # -- past it

    def _rebuild(self, state: SwitchState) -> StepOutcome:
        outcome = rescue_steps.recreate_topics(
            state, state.topics, self._old, self._store, self._mirror, self._guard, self._not_yet
        )
        if all(move.old_id not in rescue_steps.read_topic_ids(self._old, move.topic).values() for move in state.topics):
            resume_replication(self._store, state)  # only now may the mirror write again
        return outcome

    def _not_yet(self, state: SwitchState, move: TopicMove) -> StepPending | None:
        if why := describe_topic_changes(self._old, [move], new=False):
            return StepPending(f"{why}; save what was not saved, and delete it by hand: this goes on then")
        if why := self._readers(replace(state, topics=(move,))):
            return StepPending(why)
        fresh = find_doubtful_ranges(
            inspect_old_home(self._old, self._new, self._store, state.back, [move], every=True)
        )
        more = rescue_steps.find_unsaved_ranges(state, fresh, move.topic, self._new)
        return (
            rescue_steps.save_more_ranges(state, more, self._old, self._new, self._store, self._home_of)
            if more
            else None
        )

    def _refill(self, state: SwitchState) -> StepOutcome:
        parts = [(move.topic, number) for move in state.topics for number in range(move.partitions)]
        if waits := describe_unfilled(state.topics, read_high_watermarks(self._old, parts)):
            return self._mirror.waiting(waits)
        offsets = count_phrase(sum(point for move in state.topics for point in move.points), "offset")
        return StepDone(state, f"filled again from {state.new}, {offsets} and what came since")

    def _release(self, state: SwitchState) -> StepOutcome:
        return release_claims(self._store, state, (self._old,), self._now_ms())

    # -- what may have changed

    def _elsewhere(self, state: SwitchState) -> str:
        homes = self._store.homes.of(pair_name(self._link))
        for move in state.topics:
            home = homes.get(move.topic)
            if home is not None and (home.home != state.new or (move.term and home.term != move.term)):
                return f"topic {move.topic} is at home on {home.home} in term {home.term} by now"
        return ""

    def _changed(self, state: SwitchState) -> str:
        return describe_topic_changes(self._old, state.topics, new=False) or describe_topic_changes(
            self._new, state.topics, new=True
        )

    def _readers(self, state: SwitchState) -> str:
        live = () if state.anyway else read_group_offsets(self._old, state.names())[1]
        if not live:
            return ""
        groups = join_names(live, NAMED_MAX)
        return f"group {groups} has members on {state.old}: stop its consumers, or say --anyway"


def why_not_mapped(state: SwitchState, old: KafkaCluster, store: Store) -> str:
    """Returns why the twins cannot continue mapped; empty if they can."""
    for offset_range in ranges_from_json(state.tails):
        if offset_range.beside:
            where = f"where {offset_range.topic}-{offset_range.partition} of {state.old} parts from {state.new}"
            return f"{where} is not known, and it may be below the switch: leave --mapped out"
    identity = store.links.identity(state.back)
    if identity is None:
        return f"nobody knows as whom {state.back} writes"
    rows = _rows(state, store)
    seen = old.describe_producers([TopicPartition(row.topic, row.partition) for row in rows]) if rows else {}
    for row in rows:
        for one in seen[TopicPartition(row.topic, row.partition)]:
            if one.producer_id == identity.producer_id and one.epoch < identity.producer_epoch + row.epoch:
                return (
                    f"{state.back} wrote {row.topic} before the switch, and would number it twice: leave --mapped out"
                )
    return ""


def continue_mapped(state: SwitchState, old: KafkaCluster, store: Store) -> tuple[str, ...]:
    topics = topics_of_ranges(ranges_from_json(state.tails))
    store.offset_runs.continue_exact(list(_offset_runs(state, old, store)))
    for row in store.incidents.rows(state.back, open_only=True):
        if row.incident.topic in topics and row.incident.kind in DIVERGENCE_KINDS:
            store.incidents.close(row.id, now_ms=wall_ms(), came_to="the twin goes on behind it, mapped")
    return topics


def _offset_runs(
    state: SwitchState, old: KafkaCluster, store: Store
) -> Iterator[tuple[TwinRow, tuple[OffsetRun, ...]]]:
    identity = store.links.identity(state.back)
    rows = _rows(state, store)
    if identity is None or not rows:
        return
    partitions = [TopicPartition(row.topic, row.partition) for row in rows]
    starts, ends = (old.list_offsets(partitions, kind) for kind in (OffsetKind.EARLIEST, OffsetKind.LOG_END))
    seen = old.describe_producers(partitions)
    firsts = {
        TopicPartition(offset_range.topic, offset_range.partition): offset_range.first - offset_range.gone
        for offset_range in ranges_from_json(state.tails)
    }
    carried = {
        TopicPartition(position.topic, position.partition): position.to_offset
        for position in store.progress.positions(state.back)
    }
    points = {TopicPartition(move.topic, number): at for move in state.topics for number, at in enumerate(move.points)}
    ours = link_producer_ids(store, state.back)
    for row, partition in zip(rows, partitions, strict=True):
        if partition in firsts:
            parts_at = firsts[partition]
        else:
            begin = max(points[partition], carried.get(partition, -1), starts[partition])
            parts_at = _own_upto(old, partition, min(begin, ends[partition]), ends[partition], ours)
        written = [one for one in seen[partition] if one.producer_id == identity.producer_id]
        sequence = next_sequence(written[0].last_sequence, 1) if written else 0
        known = OffsetRun(
            SourceOffset(starts[partition]), TargetOffset(starts[partition]), max(0, parts_at - starts[partition]), 0
        )
        behind = OffsetRun(SourceOffset(parts_at), TargetOffset(ends[partition]), 0, sequence)
        yield row, (known, behind) if known.length else (behind,)


def _own_upto(old: KafkaCluster, partition: TopicPartition, begin: int, end: int, ours: Container[int]) -> int:
    """Returns how far a partition that had not diverged equals its home. The next record goes after foreign ones."""
    at, foreign = begin, False
    while at < end and not foreign:
        upto, foreign = scan_own_batches(old, partition, at, end, ours)
        if upto == at and not foreign:
            raise KafkaError(f"{old.name}: {partition} cannot be read from offset {at} on", retriable=True)
        at = upto
    return at


def _rows(state: SwitchState, store: Store) -> list[TwinRow]:
    """A twin is mapped as a whole, so this includes all partitions of the diverged topics."""
    topics: Collection[str] = topics_of_ranges(ranges_from_json(state.tails))
    return [row for row in store.twins.of(state.back) if row.topic in topics]


class FailbackSteps(StepExecutor):
    def __init__(
        self,
        link: Link,
        back: Link,
        settings: Settings,
        store: Store,
        old: KafkaCluster,
        new: KafkaCluster,
        announcer: HomeAnnouncer,
        writers: WriterAccess,
        now_ms: Callable[[], int],
        guard: DeletionGuard,
    ) -> None:
        self._link, self._store, self._now_ms, self._guard = link, store, now_ms, guard
        self._old, self._new, self._announcer = old, new, announcer
        mirror = (store, back.name, settings.mirror.lease_s)
        # A rescue may take long, so the mirror is checked again right before anything is deleted.
        self._first, self._at_last = MirrorWatch(*mirror), MirrorWatch(*mirror)
        self._doing = {
            SwitchStep.CLAIM: self._claim,
            SwitchStep.ANNOUNCE_HOME: self._tell,
            SwitchStep.BLOCK_WRITES: writers.guard,
            SwitchStep.INSPECT: self._look,
            SwitchStep.RESCUE: self._rescue,
            SwitchStep.COMMIT: self._commit,
            SwitchStep.REBUILD: self._rebuild,
            SwitchStep.REFILL: self._refill,
            SwitchStep.STOP_REPLICATION: lambda state: stop_replication(store, state),
            SwitchStep.CONTINUE_MAPPED: self._go_on,
            SwitchStep.LET_OFFSETS_FOLLOW: lambda state: rescue_steps.let_groups_follow_home(
                state, back, settings, store, now_ms()
            ),
            SwitchStep.RESTORE_OFFSETS: rescue_steps.RestoreGroupOffsets(old, back, settings, store, now_ms),
            SwitchStep.RELEASE: self._release,
        }
        self._undoing = {
            SwitchStep.CLAIM: self._release,
        }

    # -- before the point of no return

    def _claim(self, state: SwitchState) -> StepOutcome:
        if why := describe_other_claims(claim_topics(self._store, state)):
            return StepFailed(why)
        if why := self._announcer.claim(state):
            return StepFailed(why)
        # Read only now: another switch may have moved it before the claim.
        homes = self._store.homes.of(pair_name(self._link))
        for move in state.topics:
            home = homes.get(move.topic)
            if home is None or home.home != state.new or home.term != move.term:
                where = f"at home on {home.home} in term {home.term}" if home else "at home nowhere"
                return StepFailed(f"topic {move.topic} is {where} by now")
        return StepDone(state)

    def _tell(self, state: SwitchState) -> StepOutcome:
        why = self._announcer.tell(state)
        return StepFailed(why) if why else StepDone(state)

    def _look(self, state: SwitchState) -> StepOutcome:
        """Done once the cluster ends no more transactions, the reverse link has checked every partition, and two checks
        saw the same.
        """
        if waits := describe_loading_coordinator(self._old):
            return StepPending(waits)
        if why := describe_topic_changes(self._old, state.topics, new=False):
            return StepFailed(why)
        if due := open_transactions(self._old, state.names()):
            return StepPending(f"{self._old.name} still ends transactions on {join_names(list(due), NAMED_MAX)}")
        if waits := read_log_ends(self._old, state.topics).unsettled:
            return StepPending(waits)
        partitions = inspect_old_home(self._old, self._new, self._store, state.back, state.topics)
        unknown = [
            f"{partition.topic}-{partition.partition}" for partition in partitions if has_unchecked_records(partition)
        ]
        if (unknown or find_unreplicated_ranges(partitions)) and (no_sign := self._first.check_alive()):
            return no_sign
        if unknown:
            return StepPending(f"the mirror of {state.back} has not looked at {join_names(unknown, NAMED_MAX)} yet")
        found = ranges_to_json(find_unreplicated_ranges(partitions))
        if others := find_differing_partitions(partitions, topics_of_ranges(find_unreplicated_ranges(partitions))):
            return StepFailed(explain_differing_partitions(others, state.old, state.new))
        switch_state = replace(state, tails=found)
        if found != state.tails:
            return StepPending("what never crossed is looked at a second time", switch_state)
        parted = topics_of_ranges(find_unreplicated_ranges(partitions))
        deletes = parted and state.kind is not SwitchKind.MAPPED_FAILBACK
        _, live = read_group_offsets(self._old, parted) if deletes else ({}, ())
        if live:
            return StepPending(_reads(live, state), switch_state)
        return StepDone(switch_state, _found_in_words(find_unreplicated_ranges(partitions), state))

    def _rescue(self, state: SwitchState) -> StepOutcome:
        return rescue_steps.save_unreplicated(
            state, topics_of_ranges(ranges_from_json(state.tails)), self._old, self._new, self._store, self._home_of
        )

    def _home_of(self, state: SwitchState, offset_range: UnreplicatedRange) -> rescue_steps.HomeToCompare:
        return rescue_steps.home_to_compare(state.back, offset_range, self._new, self._store, 0)

    def _commit(self, state: SwitchState) -> StepOutcome:
        """Checks that what is deleted next may be deleted and is saved, and that no group reads it."""
        if why := describe_topic_changes(self._old, state.topics, new=False):
            return StepFailed(why)
        found = ranges_from_json(state.tails)
        partitions = inspect_old_home(self._old, self._new, self._store, state.back, state.topics)
        if unknown := [
            f"{partition.topic}-{partition.partition}" for partition in partitions if has_unchecked_records(partition)
        ]:
            return StepPending(f"the mirror of {state.back} has not looked at {join_names(unknown, NAMED_MAX)} yet")
        if more := find_changed_ranges(found, find_unreplicated_ranges(partitions)):
            return StepFailed(
                f"somebody writes on {state.old}: {join_names([str(offset_range) for offset_range in more], NAMED_MAX)}"
            )
        if others := find_differing_partitions(partitions, topics_of_ranges(found)):
            return StepFailed(explain_differing_partitions(others, state.old, state.new))
        if state.kind is SwitchKind.MAPPED_FAILBACK:
            why = why_not_mapped(state, self._old, self._store)
            return StepFailed(why) if why else StepDone(state, "from here on the fail-back goes on")
        if refused := self._guard.refusal(topics_of_ranges(found)):
            return StepFailed(refused.message)
        if found and (no_sign := self._at_last.check_alive()):
            return no_sign
        if found and (live := read_group_offsets(self._old, topics_of_ranges(found))[1]):
            return StepFailed(_reads(live, state))
        return StepDone(state, "from here on the fail-back goes on")

    # -- past it

    def _go_on(self, state: SwitchState) -> StepOutcome:
        names = continue_mapped(state, self._old, self._store)
        return StepDone(
            state, f"{join_names(list(names), NAMED_MAX)} continues on {state.old}, mapped" if names else ""
        )

    def _rebuild(self, state: SwitchState) -> StepOutcome:
        return rescue_steps.recreate_topics(
            state, self._parted(state), self._old, self._store, self._at_last, self._guard, self._not_yet
        )

    def _not_yet(self, state: SwitchState, move: TopicMove) -> StepPending | None:
        """Checks again right before the topic is deleted: `commit` may be long ago, and on another host."""
        if why := describe_topic_changes(self._old, [move], new=False):
            return StepPending(f"{why}; save what was not saved, and delete it by hand: this goes on then")
        if live := read_group_offsets(self._old, [move.topic])[1]:
            return StepPending(_reads(live, state))
        partitions = inspect_old_home(self._old, self._new, self._store, state.back, [move])
        if unknown := [
            f"{partition.topic}-{partition.partition}" for partition in partitions if has_unchecked_records(partition)
        ]:
            return StepPending(f"the mirror of {state.back} has not looked at {join_names(unknown, NAMED_MAX)} yet")
        if others := find_differing_partitions(partitions, [move.topic]):
            return StepPending(explain_differing_partitions(others, state.old, state.new))
        more = rescue_steps.find_unsaved_ranges(state, find_unreplicated_ranges(partitions), move.topic, self._new)
        return (
            rescue_steps.save_more_ranges(state, more, self._old, self._new, self._store, self._home_of)
            if more
            else None
        )

    def _refill(self, state: SwitchState) -> StepOutcome:
        anew_ones = self._parted(state)
        parts = [(move.topic, number) for move in anew_ones for number in range(move.partitions)]
        if waits := describe_unfilled(anew_ones, read_high_watermarks(self._old, parts)):
            return self._at_last.waiting(waits)
        return StepDone(state, f"filled again up to where it was at home on {state.old}" if parts else "")

    def _release(self, state: SwitchState) -> StepOutcome:
        return release_claims(self._store, state, (self._new, self._old), self._now_ms())

    def _parted(self, state: SwitchState) -> list[TopicMove]:
        names = topics_of_ranges(ranges_from_json(state.tails))
        return [move for move in state.topics if move.topic in names]


def _reads(live: tuple[str, ...], state: SwitchState) -> str:
    groups = join_names(live, NAMED_MAX)
    return (
        f"group {groups} has members on {state.old}: stop its consumers, or point them to {state.new}; members of "
        "before its brokers went are forgotten by themselves"
    )


def _found_in_words(found: tuple[UnreplicatedRange, ...], state: SwitchState) -> str:
    if not found:
        return f"nothing diverged: {state.old} holds nothing that {state.new} lacks"
    said = []
    if told := [str(offset_range) for offset_range in found if not offset_range.beside]:
        said.append(f"{join_names(told, NAMED_MAX)} of {state.old} never crossed{describe_deleted_offsets(found)}")
    if others := [f"{offset_range.topic}-{offset_range.partition}" for offset_range in found if offset_range.beside]:
        where = f"where {join_names(others, NAMED_MAX)} of {state.old} parts from {state.new} is not known"
        said.append(f"{where}: all that {state.new} lacks is saved")
    return "; ".join(said)
