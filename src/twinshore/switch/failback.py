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
            SwitchStep.RESCUE: lambda record: rescue_steps.save_unreplicated(
                record, record.names(), old, new, store, self._home_of
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

    def _claim(self, record: SwitchState) -> StepOutcome:
        if why := describe_other_claims(claim_topics(self._store, record)):
            return StepFailed(why)
        why = claim_on_cluster(self._old, HomesTopic(self._old), record)
        why = why or self._elsewhere(record)  # read only now: a switch may have moved it before the claim
        return StepFailed(why) if why else StepDone(record)

    def _let_go(self, record: SwitchState) -> StepOutcome:
        if waits := self._mirror.check_alive():
            return waits
        return stop_replication(self._store, record)

    def _look(self, record: SwitchState) -> StepOutcome:
        """Done once two checks saw the same, and no transaction is open."""
        if why := self._changed(record):
            return StepFailed(why)
        now = read_log_ends(self._old, record.topics)
        if now.unsettled and not record.anyway:
            return StepPending(now.unsettled)
        found = ranges_to_json(
            find_doubtful_ranges(
                inspect_old_home(self._old, self._new, self._store, record.back, record.topics, every=True)
            )
        )
        topics = tuple(replace(one, ends=now.ends[one.topic]) for one in record.topics)
        looked = replace(record, tails=found, topics=topics)
        if looked != record:
            return StepPending(f"the twins on {record.old} are looked at a second time", looked)
        live = self._readers(record)
        return StepPending(live, looked) if live else StepDone(looked)

    def _home_of(self, record: SwitchState, tail: UnreplicatedRange) -> rescue_steps.HomeToCompare:
        return rescue_steps.home_to_compare(record.back, tail, self._new, self._store, tail.first)

    def _commit(self, record: SwitchState) -> StepOutcome:
        """Checks that the twins may be deleted and are as inspected, and that no group reads them."""
        ends = read_log_ends(self._old, record.topics).ends
        if grown := [one.topic for one in record.topics if one.ends != ends[one.topic]]:
            return StepFailed(f"somebody writes to {join_names(grown, NAMED_MAX)} on {record.old}")
        if refused := self._guard.refusal(record.names()):
            return StepFailed(refused.message)
        if why := self._elsewhere(record) or self._changed(record) or self._readers(record):
            return StepFailed(why)
        parts = {(one.topic, number) for one in record.topics for number in range(one.partitions)}
        upto = self._new.list_offsets([TopicPartition(*where) for where in sorted(parts)], OffsetKind.LAST_STABLE)
        topics = tuple(
            replace(one, points=tuple(upto[TopicPartition(one.topic, number)] for number in range(one.partitions)))
            for one in record.topics
        )
        return StepDone(replace(record, topics=topics), "from here on the rebuild goes on")

    # -- past it

    def _rebuild(self, record: SwitchState) -> StepOutcome:
        outcome = rescue_steps.recreate_topics(
            record, record.topics, self._old, self._store, self._mirror, self._guard, self._not_yet
        )
        if all(one.old_id not in rescue_steps.read_topic_ids(self._old, one.topic).values() for one in record.topics):
            resume_replication(self._store, record)  # only now may the mirror write again
        return outcome

    def _not_yet(self, record: SwitchState, one: TopicMove) -> StepPending | None:
        if why := describe_topic_changes(self._old, [one], new=False):
            return StepPending(f"{why}; save what was not saved, and delete it by hand: this goes on then")
        if why := self._readers(replace(record, topics=(one,))):
            return StepPending(why)
        fresh = find_doubtful_ranges(
            inspect_old_home(self._old, self._new, self._store, record.back, [one], every=True)
        )
        more = rescue_steps.find_unsaved_ranges(record, fresh, one.topic, self._new)
        return (
            rescue_steps.save_more_ranges(record, more, self._old, self._new, self._store, self._home_of)
            if more
            else None
        )

    def _refill(self, record: SwitchState) -> StepOutcome:
        parts = [(one.topic, number) for one in record.topics for number in range(one.partitions)]
        if waits := describe_unfilled(record.topics, read_high_watermarks(self._old, parts)):
            return self._mirror.waiting(waits)
        offsets = count_phrase(sum(point for one in record.topics for point in one.points), "offset")
        return StepDone(record, f"filled again from {record.new}, {offsets} and what came since")

    def _release(self, record: SwitchState) -> StepOutcome:
        return release_claims(self._store, record, (self._old,), self._now_ms())

    # -- what may have changed

    def _elsewhere(self, record: SwitchState) -> str:
        homes = self._store.homes.of(pair_name(self._link))
        for one in record.topics:
            home = homes.get(one.topic)
            if home is not None and (home.home != record.new or (one.term and home.term != one.term)):
                return f"topic {one.topic} is at home on {home.home} in term {home.term} by now"
        return ""

    def _changed(self, record: SwitchState) -> str:
        return describe_topic_changes(self._old, record.topics, new=False) or describe_topic_changes(
            self._new, record.topics, new=True
        )

    def _readers(self, record: SwitchState) -> str:
        live = () if record.anyway else read_group_offsets(self._old, record.names())[1]
        if not live:
            return ""
        groups = join_names(live, NAMED_MAX)
        return f"group {groups} has members on {record.old}: stop its consumers, or say --anyway"


def why_not_mapped(record: SwitchState, old: KafkaCluster, store: Store) -> str:
    """Returns why the twins cannot continue mapped; empty if they can."""
    for tail in ranges_from_json(record.tails):
        if tail.beside:
            where = f"where {tail.topic}-{tail.partition} of {record.old} parts from {record.new}"
            return f"{where} is not known, and it may be below the switch: leave --mapped out"
    identity = store.links.identity(record.back)
    if identity is None:
        return f"nobody knows as whom {record.back} writes"
    rows = _rows(record, store)
    seen = old.describe_producers([TopicPartition(row.topic, row.partition) for row in rows]) if rows else {}
    for row in rows:
        for one in seen[TopicPartition(row.topic, row.partition)]:
            if one.producer_id == identity.producer_id and one.epoch < identity.producer_epoch + row.epoch:
                return (
                    f"{record.back} wrote {row.topic} before the switch, and would number it twice: leave --mapped out"
                )
    return ""


def continue_mapped(record: SwitchState, old: KafkaCluster, store: Store) -> tuple[str, ...]:
    topics = topics_of_ranges(ranges_from_json(record.tails))
    store.offset_runs.continue_exact(list(_extents(record, old, store)))
    for row in store.incidents.rows(record.back, open_only=True):
        if row.incident.topic in topics and row.incident.kind in DIVERGENCE_KINDS:
            store.incidents.close(row.id, now_ms=wall_ms(), came_to="the twin goes on behind it, mapped")
    return topics


def _extents(record: SwitchState, old: KafkaCluster, store: Store) -> Iterator[tuple[TwinRow, tuple[OffsetRun, ...]]]:
    identity = store.links.identity(record.back)
    rows = _rows(record, store)
    if identity is None or not rows:
        return
    parts = [TopicPartition(row.topic, row.partition) for row in rows]
    starts, ends = (old.list_offsets(parts, kind) for kind in (OffsetKind.EARLIEST, OffsetKind.LOG_END))
    seen = old.describe_producers(parts)
    firsts = {TopicPartition(one.topic, one.partition): one.first - one.gone for one in ranges_from_json(record.tails)}
    carried = {TopicPartition(at.topic, at.partition): at.to_offset for at in store.progress.positions(record.back)}
    points = {TopicPartition(one.topic, number): at for one in record.topics for number, at in enumerate(one.points)}
    ours = link_producer_ids(store, record.back)
    for row, named in zip(rows, parts, strict=True):
        if named in firsts:
            parts_at = firsts[named]
        else:
            begin = max(points[named], carried.get(named, -1), starts[named])
            parts_at = _own_upto(old, named, min(begin, ends[named]), ends[named], ours)
        written = [one for one in seen[named] if one.producer_id == identity.producer_id]
        sequence = next_sequence(written[0].last_sequence, 1) if written else 0
        known = OffsetRun(SourceOffset(starts[named]), TargetOffset(starts[named]), max(0, parts_at - starts[named]), 0)
        behind = OffsetRun(SourceOffset(parts_at), TargetOffset(ends[named]), 0, sequence)
        yield row, (known, behind) if known.length else (behind,)


def _own_upto(old: KafkaCluster, named: TopicPartition, begin: int, end: int, ours: Container[int]) -> int:
    """Returns how far a partition that had not diverged equals its home. The next record goes after foreign ones."""
    at, stray = begin, False
    while at < end and not stray:
        upto, stray = scan_own_batches(old, named, at, end, ours)
        if upto == at and not stray:
            raise KafkaError(f"{old.name}: {named} cannot be read from offset {at} on", retriable=True)
        at = upto
    return at


def _rows(record: SwitchState, store: Store) -> list[TwinRow]:
    """A twin is mapped as a whole, so this includes all partitions of the diverged topics."""
    topics: Collection[str] = topics_of_ranges(ranges_from_json(record.tails))
    return [row for row in store.twins.of(record.back) if row.topic in topics]


class FailbackSteps(StepExecutor):
    def __init__(
        self,
        link: Link,
        back: Link,
        settings: Settings,
        store: Store,
        old: KafkaCluster,
        new: KafkaCluster,
        words: HomeAnnouncer,
        writers: WriterAccess,
        now_ms: Callable[[], int],
        guard: DeletionGuard,
    ) -> None:
        self._link, self._store, self._now_ms, self._guard = link, store, now_ms, guard
        self._old, self._new, self._words = old, new, words
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
            SwitchStep.STOP_REPLICATION: lambda record: stop_replication(store, record),
            SwitchStep.CONTINUE_MAPPED: self._go_on,
            SwitchStep.LET_OFFSETS_FOLLOW: lambda record: rescue_steps.let_groups_follow_home(
                record, back, settings, store, now_ms()
            ),
            SwitchStep.RESTORE_OFFSETS: rescue_steps.RestoreGroupOffsets(old, back, settings, store, now_ms),
            SwitchStep.RELEASE: self._release,
        }
        self._undoing = {
            SwitchStep.CLAIM: self._release,
        }

    # -- before the point of no return

    def _claim(self, record: SwitchState) -> StepOutcome:
        if why := describe_other_claims(claim_topics(self._store, record)):
            return StepFailed(why)
        if why := self._words.claim(record):
            return StepFailed(why)
        # Read only now: another switch may have moved it before the claim.
        homes = self._store.homes.of(pair_name(self._link))
        for one in record.topics:
            home = homes.get(one.topic)
            if home is None or home.home != record.new or home.term != one.term:
                where = f"at home on {home.home} in term {home.term}" if home else "at home nowhere"
                return StepFailed(f"topic {one.topic} is {where} by now")
        return StepDone(record)

    def _tell(self, record: SwitchState) -> StepOutcome:
        why = self._words.tell(record)
        return StepFailed(why) if why else StepDone(record)

    def _look(self, record: SwitchState) -> StepOutcome:
        """Done once the cluster ends no more transactions, the reverse link has checked every partition, and two checks
        saw the same.
        """
        if waits := describe_loading_coordinator(self._old):
            return StepPending(waits)
        if why := describe_topic_changes(self._old, record.topics, new=False):
            return StepFailed(why)
        if due := open_transactions(self._old, record.names()):
            return StepPending(f"{self._old.name} still ends transactions on {join_names(list(due), NAMED_MAX)}")
        if waits := read_log_ends(self._old, record.topics).unsettled:
            return StepPending(waits)
        seen = inspect_old_home(self._old, self._new, self._store, record.back, record.topics)
        unknown = [f"{one.topic}-{one.partition}" for one in seen if has_unchecked_records(one)]
        if (unknown or find_unreplicated_ranges(seen)) and (no_sign := self._first.check_alive()):
            return no_sign
        if unknown:
            return StepPending(f"the mirror of {record.back} has not looked at {join_names(unknown, NAMED_MAX)} yet")
        found = ranges_to_json(find_unreplicated_ranges(seen))
        if others := find_differing_partitions(seen, topics_of_ranges(find_unreplicated_ranges(seen))):
            return StepFailed(explain_differing_partitions(others, record.old, record.new))
        looked = replace(record, tails=found)
        if found != record.tails:
            return StepPending("what never crossed is looked at a second time", looked)
        parted = topics_of_ranges(find_unreplicated_ranges(seen))
        deletes = parted and record.kind is not SwitchKind.MAPPED_FAILBACK
        _, live = read_group_offsets(self._old, parted) if deletes else ({}, ())
        if live:
            return StepPending(_reads(live, record), looked)
        return StepDone(looked, _found_in_words(find_unreplicated_ranges(seen), record))

    def _rescue(self, record: SwitchState) -> StepOutcome:
        return rescue_steps.save_unreplicated(
            record, topics_of_ranges(ranges_from_json(record.tails)), self._old, self._new, self._store, self._home_of
        )

    def _home_of(self, record: SwitchState, tail: UnreplicatedRange) -> rescue_steps.HomeToCompare:
        return rescue_steps.home_to_compare(record.back, tail, self._new, self._store, 0)

    def _commit(self, record: SwitchState) -> StepOutcome:
        """Checks that what is deleted next may be deleted and is saved, and that no group reads it."""
        if why := describe_topic_changes(self._old, record.topics, new=False):
            return StepFailed(why)
        found = ranges_from_json(record.tails)
        seen = inspect_old_home(self._old, self._new, self._store, record.back, record.topics)
        if unknown := [f"{one.topic}-{one.partition}" for one in seen if has_unchecked_records(one)]:
            return StepPending(f"the mirror of {record.back} has not looked at {join_names(unknown, NAMED_MAX)} yet")
        if more := find_changed_ranges(found, find_unreplicated_ranges(seen)):
            return StepFailed(f"somebody writes on {record.old}: {join_names([str(one) for one in more], NAMED_MAX)}")
        if others := find_differing_partitions(seen, topics_of_ranges(found)):
            return StepFailed(explain_differing_partitions(others, record.old, record.new))
        if record.kind is SwitchKind.MAPPED_FAILBACK:
            why = why_not_mapped(record, self._old, self._store)
            return StepFailed(why) if why else StepDone(record, "from here on the fail-back goes on")
        if refused := self._guard.refusal(topics_of_ranges(found)):
            return StepFailed(refused.message)
        if found and (no_sign := self._at_last.check_alive()):
            return no_sign
        if found and (live := read_group_offsets(self._old, topics_of_ranges(found))[1]):
            return StepFailed(_reads(live, record))
        return StepDone(record, "from here on the fail-back goes on")

    # -- past it

    def _go_on(self, record: SwitchState) -> StepOutcome:
        names = continue_mapped(record, self._old, self._store)
        return StepDone(
            record, f"{join_names(list(names), NAMED_MAX)} continues on {record.old}, mapped" if names else ""
        )

    def _rebuild(self, record: SwitchState) -> StepOutcome:
        return rescue_steps.recreate_topics(
            record, self._parted(record), self._old, self._store, self._at_last, self._guard, self._not_yet
        )

    def _not_yet(self, record: SwitchState, one: TopicMove) -> StepPending | None:
        """Checks again right before the topic is deleted: `commit` may be long ago, and on another host."""
        if why := describe_topic_changes(self._old, [one], new=False):
            return StepPending(f"{why}; save what was not saved, and delete it by hand: this goes on then")
        if live := read_group_offsets(self._old, [one.topic])[1]:
            return StepPending(_reads(live, record))
        seen = inspect_old_home(self._old, self._new, self._store, record.back, [one])
        if unknown := [f"{at.topic}-{at.partition}" for at in seen if has_unchecked_records(at)]:
            return StepPending(f"the mirror of {record.back} has not looked at {join_names(unknown, NAMED_MAX)} yet")
        if others := find_differing_partitions(seen, [one.topic]):
            return StepPending(explain_differing_partitions(others, record.old, record.new))
        more = rescue_steps.find_unsaved_ranges(record, find_unreplicated_ranges(seen), one.topic, self._new)
        return (
            rescue_steps.save_more_ranges(record, more, self._old, self._new, self._store, self._home_of)
            if more
            else None
        )

    def _refill(self, record: SwitchState) -> StepOutcome:
        anew_ones = self._parted(record)
        parts = [(one.topic, number) for one in anew_ones for number in range(one.partitions)]
        if waits := describe_unfilled(anew_ones, read_high_watermarks(self._old, parts)):
            return self._at_last.waiting(waits)
        return StepDone(record, f"filled again up to where it was at home on {record.old}" if parts else "")

    def _release(self, record: SwitchState) -> StepOutcome:
        return release_claims(self._store, record, (self._new, self._old), self._now_ms())

    def _parted(self, record: SwitchState) -> list[TopicMove]:
        names = topics_of_ranges(ranges_from_json(record.tails))
        return [one for one in record.topics if one.topic in names]


def _reads(live: tuple[str, ...], record: SwitchState) -> str:
    groups = join_names(live, NAMED_MAX)
    return (
        f"group {groups} has members on {record.old}: stop its consumers, or point them to {record.new}; members of "
        "before its brokers went are forgotten by themselves"
    )


def _found_in_words(found: tuple[UnreplicatedRange, ...], record: SwitchState) -> str:
    if not found:
        return f"nothing diverged: {record.old} holds nothing that {record.new} lacks"
    said = []
    if told := [str(one) for one in found if not one.beside]:
        said.append(f"{join_names(told, NAMED_MAX)} of {record.old} never crossed{describe_deleted_offsets(found)}")
    if others := [f"{one.topic}-{one.partition}" for one in found if one.beside]:
        where = f"where {join_names(others, NAMED_MAX)} of {record.old} parts from {record.new} is not known"
        said.append(f"{where}: all that {record.new} lacks is saved")
    return "; ".join(said)
