"""Steps of a fail-back, a mapped fail-back, and a rebuild. Errors of a step are raised, and may be temporary.

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

from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass, replace

from twinshore.config.errors import KafkaError
from twinshore.config.model import OffsetRun, SourceOffset, TargetOffset, TopicPartition
from twinshore.config.sentences import count_phrase, join_names
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.kafka.protocol.record_batch import next_sequence
from twinshore.replication.core.ownership import pair_name
from twinshore.routing.homes_topic import HomesTopic
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store
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
    TopicMove,
)
from twinshore.switch.core.unreplicated import (
    UNREPLICATED_KINDS,
    OldHomePartition,
    UnreplicatedRange,
    describe_deleted_offsets,
    describe_differing,
    describe_unchecked,
    describe_unfilled,
    find_changed_ranges,
    find_doubtful_ranges,
    find_unreplicated_ranges,
    ranges_from_json,
    ranges_to_json,
    topics_of_ranges,
)
from twinshore.switch.drain import describe_topic_changes, open_transactions, read_log_ends
from twinshore.switch.handover import read_group_offsets
from twinshore.switch.rescue_steps import (
    RestoreGroupOffsets,
    describe_loading_coordinator,
    find_unsaved_ranges,
    inspect_old_home,
    let_groups_follow_home,
    link_producer_ids,
    read_high_watermarks,
    read_topic_ids,
    recreate_topics,
    save_more_ranges,
    save_unreplicated,
    scan_own_batches,
)
from twinshore.switch.step_runner import ClusterSteps
from twinshore.switch.write_access import WriterAccess


@dataclass
class RescueSteps(ClusterSteps):
    """Steps that rescue unreplicated records of twins on `old`, recreate the twins, and refill them along `back`."""

    def __post_init__(self) -> None:
        self.mirror = self.watch_mirror(self.back)
        self.restore = RestoreGroupOffsets(self.old, self.back, self.settings, self.store, self.now_ms)

    def topics_to_refill(self, state: SwitchState) -> Sequence[TopicMove]:
        names = topics_of_ranges(ranges_from_json(state.tails))
        return [move for move in state.topics if move.topic in names]

    def why_not_delete(self, state: SwitchState, move: TopicMove) -> StepPending | None:
        """Checks again right before the topic is deleted: `commit` may be long ago, and on another host."""
        if why := describe_topic_changes(self.old, [move], new=False):
            return StepPending(f"{why}; save what was not saved, and delete it by hand: this goes on then")
        if why := self.describe_members(state, [move.topic]):
            return StepPending(why)
        rebuild = state.kind is SwitchKind.REBUILD
        partitions = inspect_old_home(self.old, self.new, self.store, state.back, [move], every=rebuild)
        fresh = find_doubtful_ranges(partitions) if rebuild else find_unreplicated_ranges(partitions)
        if not rebuild and (why := self.describe_unknown(state, partitions, [move.topic])):
            return StepPending(why)
        more = find_unsaved_ranges(state, fresh, move.topic, self.new)
        return save_more_ranges(state, more, self.old, self.new, self.store) if more else None

    def describe_members(self, state: SwitchState, topics: Collection[str]) -> str:
        """Returns which groups have members that read these topics on `old`; empty if none."""
        live = read_group_offsets(self.old, topics)[1] if topics and not state.anyway else ()
        remedy = f"stop its consumers, or point them to {state.new}; sessions of before an outage time out"
        if state.kind is SwitchKind.REBUILD:
            remedy = "stop its consumers, or say --anyway"
        return f"group {join_names(live)} has members on {state.old}: {remedy}" if live else ""

    def describe_unknown(
        self, state: SwitchState, partitions: Sequence[OldHomePartition], topics: Collection[str]
    ) -> str:
        unchecked = describe_unchecked(partitions, state.back)
        return unchecked or describe_differing(partitions, topics, state.old, state.new)

    def do_rescue(self, state: SwitchState) -> StepOutcome:
        topics = [move.topic for move in self.topics_to_refill(state)]
        return save_unreplicated(state, topics, self.old, self.new, self.store)

    def do_rebuild(self, state: SwitchState) -> StepOutcome:
        topics = self.topics_to_refill(state)
        return recreate_topics(state, topics, self.old, self.store, self.mirror, self.guard, self.why_not_delete)

    def do_refill(self, state: SwitchState) -> StepOutcome:
        topics = self.topics_to_refill(state)
        parts = [(move.topic, number) for move in topics for number in range(move.partitions)]
        if waits := describe_unfilled(topics, read_high_watermarks(self.old, parts)):
            return self.mirror.waiting(waits)
        offsets = count_phrase(sum(point for move in topics for point in move.points), "offset")
        return StepDone(state, f"refilled from {state.new}: {offsets}, and what came since" if parts else "")

    def do_restore_offsets(self, state: SwitchState) -> StepOutcome:
        return self.restore(state)


@dataclass
class RebuildSteps(RescueSteps):
    def topics_to_refill(self, state: SwitchState) -> Sequence[TopicMove]:
        return state.topics

    # -- before the point of no return

    def do_claim(self, state: SwitchState) -> StepOutcome:
        if why := describe_other_claims(claim_topics(self.store, state)):
            return StepFailed(why)
        why = claim_on_cluster(self.old, HomesTopic(self.old), state)
        why = why or self._moved(state)  # read only now: a switch may have moved it before the claim
        return StepFailed(why) if why else StepDone(state)

    def do_stop_replication(self, state: SwitchState) -> StepOutcome:
        return self.mirror.check_alive() or stop_replication(self.store, state)

    def do_inspect(self, state: SwitchState) -> StepOutcome:
        """Done once two checks saw the same, and no transaction is open."""
        if why := self.topic_changes(state):
            return StepFailed(why)
        now = read_log_ends(self.old, state.topics)
        if now.unsettled and not state.anyway:
            return StepPending(now.unsettled)
        partitions = inspect_old_home(self.old, self.new, self.store, state.back, state.topics, every=True)
        tails = ranges_to_json(find_doubtful_ranges(partitions))
        topics = tuple(replace(move, ends=now.ends[move.topic]) for move in state.topics)
        before, state = state, replace(state, tails=tails, topics=topics)
        if before != state:
            return StepPending(f"the twins on {state.old} are inspected a second time", state)
        members = self.describe_members(state, state.names())
        return StepPending(members, state) if members else StepDone(state)

    def do_commit(self, state: SwitchState) -> StepOutcome:
        """Checks that the twins may be deleted and are as inspected, and that no group reads them."""
        ends = read_log_ends(self.old, state.topics).ends
        if grown := [move.topic for move in state.topics if move.ends != ends[move.topic]]:
            return StepFailed(f"a client writes to {join_names(grown)} on {state.old}")
        if refused := self.guard.refusal(state.names()):
            return StepFailed(refused.message)
        if why := self._moved(state) or self.topic_changes(state) or self.describe_members(state, state.names()):
            return StepFailed(why)
        partitions = [TopicPartition(move.topic, number) for move in state.topics for number in range(move.partitions)]
        stable = self.new.list_offsets(partitions, OffsetKind.LAST_STABLE)
        topics = tuple(
            replace(move, points=tuple(stable[TopicPartition(move.topic, number)] for number in range(move.partitions)))
            for move in state.topics
        )
        return StepDone(replace(state, topics=topics), "from here on the rebuild goes on")

    # -- past it

    def do_rebuild(self, state: SwitchState) -> StepOutcome:
        outcome = super().do_rebuild(state)
        if all(move.old_id not in read_topic_ids(self.old, move.topic).values() for move in state.topics):
            resume_replication(self.store, state)  # only now may the mirror write again
        return outcome

    def do_release(self, state: SwitchState) -> StepOutcome:
        return release_claims(self.store, state, (self.old,), self.now_ms())

    undo_claim = do_release

    # -- what may have changed

    def _moved(self, state: SwitchState) -> str:
        homes = self.store.homes.of(pair_name(self.back))
        for move in state.topics:
            home = homes.get(move.topic)
            if home is not None and (home.home != state.new or (move.term and home.term != move.term)):
                return f"topic {move.topic} is at home on {home.home} in term {home.term} by now"
        return ""


def why_not_mapped(state: SwitchState, old: KafkaCluster, store: Store) -> str:
    """Returns why the twins cannot continue mapped; empty if they can."""
    for offset_range in ranges_from_json(state.tails):
        if offset_range.beside:
            where = f"where {offset_range.name} of {state.old} diverges from {state.new}"
            return f"{where} is not known, and it may be below the switch: leave --mapped out"
    identity = store.links.identity(state.back)
    if identity is None:
        return f"the store does not know the producer of {state.back}"
    rows = _rows(state, store)
    seen = old.describe_producers([TopicPartition(row.topic, row.partition) for row in rows]) if rows else {}
    for row in rows:
        for producer in seen[TopicPartition(row.topic, row.partition)]:
            if producer.producer_id == identity.producer_id and producer.epoch < identity.producer_epoch + row.epoch:
                why = f"{state.back} wrote {row.topic} before the switch, and would number it twice"
                return f"{why}: leave --mapped out"
    return ""


def continue_mapped(state: SwitchState, old: KafkaCluster, store: Store) -> tuple[str, ...]:
    topics = topics_of_ranges(ranges_from_json(state.tails))
    store.offset_runs.continue_exact(list(_offset_runs(state, old, store)))
    for row in store.incidents.rows(state.back, open_only=True):
        if row.incident.topic in topics and row.incident.kind in UNREPLICATED_KINDS:
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
    ranges = ranges_from_json(state.tails)
    firsts = {TopicPartition(*offset_range.where): offset_range.first - offset_range.gone for offset_range in ranges}
    progress = {TopicPartition(row.topic, row.partition): row.to_offset for row in store.progress.positions(state.back)}
    points = {TopicPartition(move.topic, number): at for move in state.topics for number, at in enumerate(move.points)}
    ours = link_producer_ids(store, state.back)
    for row, partition in zip(rows, partitions, strict=True):
        if partition in firsts:
            parts_at = firsts[partition]
        else:
            begin = max(points[partition], progress.get(partition, -1), starts[partition])
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


@dataclass
class FailbackSteps(RescueSteps):
    def __post_init__(self) -> None:
        super().__post_init__()
        # A rescue may take long, so the mirror is checked again right before anything is deleted.
        self.first_mirror = self.watch_mirror(self.back)
        self.announcer = HomeAnnouncer(self.old, self.new)

    # -- before the point of no return

    def do_claim(self, state: SwitchState) -> StepOutcome:
        if why := describe_other_claims(claim_topics(self.store, state)) or self.announcer.claim(state):
            return StepFailed(why)
        # Read only now: another switch may have moved it before the claim.
        homes = self.store.homes.of(pair_name(self.link))
        for move in state.topics:
            home = homes.get(move.topic)
            if home is None or home.home != state.new or home.term != move.term:
                where = f"at home on {home.home} in term {home.term}" if home else "at home nowhere"
                return StepFailed(f"topic {move.topic} is {where} by now")
        return StepDone(state)

    def do_announce_home(self, state: SwitchState) -> StepOutcome:
        why = self.announcer.tell(state)
        return StepFailed(why) if why else StepDone(state)

    def do_block_writes(self, state: SwitchState) -> StepOutcome:
        WriterAccess(self.old, self.new, self.link, self.back, self.store).guard(state)
        return StepDone(state)

    def do_inspect(self, state: SwitchState) -> StepOutcome:
        """Done once the cluster ends no more transactions, the reverse link has checked every partition, and two checks
        saw the same.
        """
        if waits := describe_loading_coordinator(self.old):
            return StepPending(waits)
        if why := describe_topic_changes(self.old, state.topics, new=False):
            return StepFailed(why)
        if due := open_transactions(self.old, state.names()):
            return StepPending(f"{self.old.name} still ends transactions on {join_names(list(due))}")
        if waits := read_log_ends(self.old, state.topics).unsettled:
            return StepPending(waits)
        partitions = inspect_old_home(self.old, self.new, self.store, state.back, state.topics)
        found, unchecked = find_unreplicated_ranges(partitions), describe_unchecked(partitions, state.back)
        if (unchecked or found) and (outcome := self.first_mirror.check_alive()):
            return outcome
        if unchecked:
            return StepPending(unchecked)
        topics = topics_of_ranges(found)
        if why := describe_differing(partitions, topics, state.old, state.new):
            return StepFailed(why)
        before, state = state, replace(state, tails=ranges_to_json(found))
        if before != state:
            return StepPending("unreplicated records are looked for a second time", state)
        if state.kind is not SwitchKind.MAPPED_FAILBACK and (why := self.describe_members(state, topics)):
            return StepPending(why, state)
        return StepDone(state, _describe_found(found, state))

    def do_stop_replication(self, state: SwitchState) -> StepOutcome:
        return stop_replication(self.store, state)

    def do_commit(self, state: SwitchState) -> StepOutcome:
        """Checks that what is deleted next may be deleted and is saved, and that no group reads it."""
        if why := describe_topic_changes(self.old, state.topics, new=False):
            return StepFailed(why)
        found = ranges_from_json(state.tails)
        topics = topics_of_ranges(found)
        partitions = inspect_old_home(self.old, self.new, self.store, state.back, state.topics)
        if unchecked := describe_unchecked(partitions, state.back):
            return StepPending(unchecked)
        if changed := find_changed_ranges(found, find_unreplicated_ranges(partitions)):
            return StepFailed(f"a client writes on {state.old}: {join_names(list(map(str, changed)))}")
        if why := describe_differing(partitions, topics, state.old, state.new):
            return StepFailed(why)
        done = StepDone(state, "from here on the fail-back goes on")
        if state.kind is SwitchKind.MAPPED_FAILBACK:
            why = why_not_mapped(state, self.old, self.store)
            return StepFailed(why) if why else done
        if refused := self.guard.refusal(topics):
            return StepFailed(refused.message)
        if found and (outcome := self.mirror.check_alive()):
            return outcome
        why = self.describe_members(state, topics)
        return StepFailed(why) if why else done

    # -- past it

    def do_continue_mapped(self, state: SwitchState) -> StepOutcome:
        names = continue_mapped(state, self.old, self.store)
        return StepDone(state, f"{join_names(names)} continues on {state.old}, mapped" if names else "")

    def do_let_offsets_follow(self, state: SwitchState) -> StepOutcome:
        return let_groups_follow_home(state, self.back, self.settings, self.store, self.now_ms())

    def do_release(self, state: SwitchState) -> StepOutcome:
        return release_claims(self.store, state, (self.new, self.old), self.now_ms())

    undo_claim = do_release


def _describe_found(found: Sequence[UnreplicatedRange], state: SwitchState) -> str:
    if not found:
        return f"nothing diverged: {state.old} holds nothing that {state.new} lacks"
    sentences = []
    if known := [str(offset_range) for offset_range in found if not offset_range.beside]:
        sentences.append(f"{join_names(known)} of {state.old} was not replicated{describe_deleted_offsets(found)}")
    if others := [offset_range.name for offset_range in found if offset_range.beside]:
        where = f"where {join_names(others)} of {state.old} diverges from {state.new} is not known"
        sentences.append(f"{where}: all that {state.new} lacks is saved")
    return "; ".join(sentences)
