"""The partitions of one task: which are replicated, which brokers lead them, which stop; responses in, requests out.

A response that is costly to parse is parsed in portions, so that the task can renew its lease and serve other
partitions.

This module also decides what takes the offsets that the source has lost, and how far a twin's log may be cut. Filler
records are visible, so they are written only before a twin's first record, and cut off again. Elsewhere invisible
markers take the offsets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import NamedTuple

from twinshore.config.errors import KafkaError
from twinshore.config.incident_policy import POLICY_GAP, IncidentKind, IncidentSide
from twinshore.config.model import QueueRules, TopicPartition
from twinshore.kafka.protocol.fetch import FetchedPartitionById, FetchResponseById
from twinshore.kafka.protocol.produce import ProducedPartition
from twinshore.kafka.protocol.transactions import FILLER_RECORDS_MAX, make_filler
from twinshore.replication.task.core import position
from twinshore.replication.task.core.accounting import PendingProgress
from twinshore.replication.task.core.batches import (
    BatchParser,
    BufferPool,
    FilledGap,
    OffsetGap,
    OutgoingBatch,
    ParsedFetch,
    PartitionStopped,
    PooledBuffer,
    SequenceMap,
    clip_gaps,
    make_outgoing_batch,
)
from twinshore.replication.task.core.error_actions import (
    judge_failed_inspection,
    judge_source_error,
    judge_target_error,
)
from twinshore.replication.task.core.fetching import FetchScheduler, PlannedFetch, needed_fetch_bytes
from twinshore.replication.task.core.markers import MarkerOutcome
from twinshore.replication.task.core.messages import (
    NO_EPOCH_OFFSET,
    EpochOffset,
    Handoff,
    PartitionConfig,
    PartitionIncident,
    PartitionProgress,
    TaskLimits,
    WrittenPosition,
    append_incident,
    dropped_incident,
)
from twinshore.replication.task.core.partition import (
    PartitionLeaders,
    PartitionReplicator,
    Phase,
    SentBatch,
    accept_handoff,
    make_handoff,
    make_replicator,
    update_written_positions,
)
from twinshore.replication.task.core.position import InspectAgain, ResumeAt, StopAt, TargetState
from twinshore.replication.task.core.resync import (
    MARKERS_MAX,
    EndOffsetCheck,
    PendingMarkers,
    find_idle_twins,
    find_unsure_twins,
    judge_refused_markers,
    markers_landed,
    next_marker_runs,
    recheck_log_ends,
    results_by_partition,
)
from twinshore.replication.task.core.shared_read import (
    NO_BUFFER,
    FetchStream,
    SharedFetch,
    SharedFetchMember,
    describe_age_limit,
    drop_next,
    drop_old_batches,
    drop_unsent,
    find_transactional,
    note_missing_ranges,
    oldest_kept_ms,
)
from twinshore.replication.task.core.silence import SilenceTracker

FILLED_OFFSETS_MAX = 20_000_000_000  # About an hour of filling.
# A longer turn is too long: a write lease is some seconds, and other tasks renew theirs.
TURN_S_MAX = 0.4
# A dead task's requests land within so many times `undelivered_s` after its lease, or never.
CONFIRM_FACTOR = 1.1
NO_WRITTEN_POSITIONS: Mapping[TopicPartition, WrittenPosition] = MappingProxyType({})
ABSENCES_MAX = 20  # Half a second apart: longer than a new topic takes to reach all brokers.
NO_TRANSACTIONS_REASON = (
    "it holds records of transactions, and a fresh queue may drop a part of one: give the link's queue "
    "transactions = true, or leave the topic to a link that keeps"
)


def log_start_limit(state: TargetState, anchor: int, *, never: bool) -> int:
    """Returns up to where the twin's log may be cut, 0 if not at all. `never`: only the link's filler may go, which is
    all below `anchor`.
    """
    if state.uncut:
        return 0
    return min(anchor, state.source_start) if never else state.source_start


def fill_gap(
    replicator: PartitionReplicator, state: TargetState, now_ms: int, *, marked_max: int
) -> tuple[PartitionStopped | None, list[PartitionIncident]]:
    """Queues what takes the offsets up to the source's start: filler before the twin's first record, else at most
    `marked_max` markers. Returns a halt or None, and incidents.
    """
    begin, end = replicator.fetched, state.source_start
    if begin >= end:
        return None, []
    sentence = f"the source's log now begins at {end}, the twin ended at {begin}: retention was faster"
    filled_to = _filled_to(replicator, state)
    if not replicator.mapped and (stopped := _too_long(replicator, state, filled_to, marked_max, sentence)):
        return stopped, []
    incidents: list[PartitionIncident] = []
    # What the source lost since its twin was made; of a gap that grew, only the new part is reported.
    lost_from = max(begin, replicator.config.base_offset, replicator.progress_log.gap_to)
    if lost_from < end:
        incidents = [replicator.incident(IncidentKind.RETENTION_GAP, lost_from, end, sentence, POLICY_GAP)]
        replicator.progress_log.gap_to = end
    for piece in _pieces(replicator, begin, filled_to, end):
        replicator.queue(piece, None)
        gaps = (OffsetGap(piece.base, piece.end),)
        replicator.progress_log.noted.append(PendingProgress(piece.base, piece.end, seen_ms=now_ms, gaps=gaps))
    replicator.fetched, replicator.source.epoch = end, -1
    return None, incidents


def report_unreported_gap(replicator: PartitionReplicator, state: TargetState) -> list[PartitionIncident]:
    """Reports offsets that the source has lost and a task ended too soon to report. The twin has no record there: they
    were never replicated, or never visible.
    """
    first = max(replicator.config.base_offset, replicator.progress_log.to, replicator.progress_log.gap_to)
    lost = clip_gaps([OffsetGap(*run) for run in state.unseen], first, replicator.fetched)
    if not lost:
        return []
    begin, end, many = lost[0].base, lost[-1].end, sum(run.end - run.base for run in lost)
    sentence = (
        f"the source's log now begins at {state.source_start}, and a task ended before it reported its progress below:"
        f" the twin has no record at {many} of these offsets"
    )
    replicator.progress_log.gap_to = end
    return [replicator.incident(IncidentKind.RETENTION_GAP, begin, end, sentence, POLICY_GAP)]


def _filled_to(replicator: PartitionReplicator, state: TargetState) -> int:
    """Filler's limit. A topic once at home on the target has its own records below."""
    begin, config = replicator.fetched, replicator.config
    if replicator.mapped or config.inherited or state.uncut:
        return begin
    return max(begin, min(state.source_start, config.base_offset))


def _too_long(
    replicator: PartitionReplicator, state: TargetState, filled_to: int, marked_max: int, sentence: str
) -> PartitionStopped | None:
    begin, end, twin = replicator.fetched, state.source_start, replicator.config.twin_named
    if state.uncut and end - begin > marked_max:
        why = (
            f"offsets {begin} to {end - 1} of twin {twin} must be filled: its source begins at {end}; they are too "
            f"many for markers, and what fills them must be cut off again: {state.uncut}"
        )
        return PartitionStopped(IncidentKind.RIGHTS_LOST, begin, end, why, IncidentSide.TARGET)
    if end - filled_to > marked_max:
        why = (
            f"more than gap_offsets_max = {marked_max} offsets are missing; delete the twin {twin.topic} on the target,"
            f" wait until `twinshore status` shows {IncidentKind.RECREATED_TOPIC}, then `twinshore mirror recreate"
            f" {replicator.named.topic}`"
        )
        return PartitionStopped(IncidentKind.RETENTION_GAP, begin, end, f"{sentence}, and {why}")
    if filled_to - begin > FILLED_OFFSETS_MAX:
        return PartitionStopped(IncidentKind.RETENTION_GAP, begin, end, f"{sentence}, and that is too long to fill")
    return None


def _pieces(
    replicator: PartitionReplicator, begin: int, filled_to: int, end: int
) -> Iterator[OffsetGap | OutgoingBatch]:
    first = 0 if replicator.config.inherited else replicator.config.base_offset
    while begin < filled_to:
        made = make_filler(min(FILLER_RECORDS_MAX, filled_to - begin))
        yield make_outgoing_batch(made.header._replace(base_offset=begin), made.body)
        begin += made.header.count
    if begin < first and not replicator.mapped:
        yield FilledGap(begin, min(first, end))
        begin = first
    if begin < end:
        yield OffsetGap(begin, end)


def take_due_cuts(replicators: Iterable[PartitionReplicator]) -> dict[TopicPartition, int]:
    """Returns where twins should begin that begin before their sources. Once for each inspection."""
    due = [replicator for replicator in replicators if 0 <= replicator.cut_to <= replicator.acked]
    starts = {replicator.named: replicator.cut_to for replicator in due}
    for replicator in due:
        replicator.cut_to = -1
    return starts


class ParseBudget:
    """The work to parse in one turn: less while turns are slow, as on a shared processor or with uncompiled loops."""

    def __init__(self, most: int) -> None:
        self.work = self.left = self._most = most
        self._done = 0

    def again(self) -> None:
        self.left = self.work

    def spend(self, work: int) -> None:
        self.left -= work
        self._done += work

    def took(self, spent_s: float) -> None:
        """Ends a turn. One that parsed little does not raise the budget."""
        done, self._done = self._done, 0
        if spent_s > TURN_S_MAX:
            self.work = max(self._most // 100, int(self.work * TURN_S_MAX / spent_s))
        elif spent_s < TURN_S_MAX / 2 and done > self.work // 2:
            self.work = min(self._most, 2 * self.work)


class UnparsedPartition(NamedTuple):
    """One partition of a response, perhaps partly parsed by `parser`. Valid while the partition is at `at` with the
    same `begins`.
    """

    line: FetchStream
    replicator: PartitionReplicator
    at: int
    begins: int
    part: FetchedPartitionById
    buffer: PooledBuffer
    parser: BatchParser | None = None


class ParseBacklog:
    """Unparsed partitions, oldest first. Their buffers are in use, and their streams fetch no more."""

    def __init__(self) -> None:
        self._rests: deque[UnparsedPartition] = deque()

    def __bool__(self) -> bool:
        return bool(self._rests)

    def holds(self, line: FetchStream) -> bool:
        return bool(self._rests) and any(rest.line == line for rest in self._rests)

    def put(self, rest: UnparsedPartition, *, first: bool) -> None:
        """`first`: the rest of a partly parsed partition."""
        rest.buffer.uses += 1
        (self._rests.appendleft if first else self._rests.append)(rest)

    def next(self, scheduler: FetchScheduler) -> UnparsedPartition | None:
        """The next valid one; others are fetched again."""
        while self._rests:
            rest = self._rests.popleft()
            rest.buffer.uses -= 1
            replicator = rest.replicator
            if (
                replicator.begins == rest.begins
                and replicator.fetched == rest.at
                and scheduler.asks(replicator, rest.line)
            ):
                return rest
            scheduler.wake(replicator)
        return None

    def drop(self) -> None:
        for rest in self._rests:
            rest.buffer.uses -= 1
        self._rests.clear()


def feed_from_window(partitions: TaskPartitions, now_ms: int) -> None:
    """Feeds partitions from the shared window; a drop-oldest queue first drops stale data."""
    scheduler, member = partitions.scheduler, partitions.scheduler.member
    replicators = member.hungry() if member else []
    if not replicators or not member:
        return
    room = member.room()
    for replicator in replicators:
        fed = False
        line = scheduler.line_of(replicator, replicator.leaders)
        if member.drops(replicator) and scheduler.asks(replicator, line):
            fed = drop_stale_batches(member, replicator, now_ms)
        while scheduler.asks(replicator, line) and not replicator.full():
            if room <= 0 or scheduler.buckets.shut():
                member.later(replicator)
                break
            next_slice = member.next(replicator)
            if next_slice is None:
                # The window may have dropped the data by now: then fetch from the source.
                scheduler.ask_again(replicator)
                break
            window_slice, parsed = next_slice
            if member.drops(replicator) and partitions.refuses(replicator, parsed):
                break
            if scheduler.buckets.bounding:
                scheduler.buckets.spend(replicator.config.topic, sum(entry.size for entry in parsed.carried))
            if not replicator.source.heard:
                replicator.note_source_readable()
            replicator.source.led, fed = window_slice.led, True
            replicator.take(parsed, NO_BUFFER, now_ms)
            room -= sum(piece.size for piece in parsed.batches)
        if fed:
            partitions.wake(replicator)


def drop_stale_batches(member: SharedFetchMember, replicator: PartitionReplicator, now_ms: int) -> bool:
    """Whether waiting data was dropped."""
    kept = member.kept_from(replicator, now_ms)
    if kept is None:
        return False
    to, epoch, why = kept
    drop_unsent(replicator, to, epoch, why, now_ms)
    replicator.source.led = replicator.leaders.source_epoch
    return True


class TaskPartitions:
    """All that one task knows of its partitions. `stale_routes`: whether leaders must be looked up."""

    def __init__(
        self,
        producer_id: int,
        epoch: int,
        fence: int = 0,
        *,
        state_expiry_ms: int,
        limits: TaskLimits | None = None,
        never_cut: bool = False,
        shared_fetch: SharedFetch | None = None,
        queue: QueueRules | None = None,
    ) -> None:
        """`fence`: a coordinator epoch; brokers then refuse markers with a lower one. `never_cut`: no record of a twin
        is cut off. `shared_fetch`: the broadcast's shared fetch, with `queue` as this task's rules.
        """
        self.limits, self.producer, self._fence = limits or TaskLimits(), (producer_id, epoch), fence
        self.replicators: dict[TopicPartition, PartitionReplicator] = {}
        self.scheduler = FetchScheduler(self.limits)
        if shared_fetch:
            self.scheduler.member = SharedFetchMember(shared_fetch, self.scheduler.wake, queue or QueueRules())
        self.silence = SilenceTracker()
        # By leader: twins with data to send.
        self._ready: dict[int, dict[PartitionReplicator, None]] = {}
        self.incidents: list[PartitionIncident] = []
        self._early: list[PartitionProgress] = []
        self.stale_routes = True
        # Safeguard 2 counts only while the broker surely remembers us.
        self._armed_ms = state_expiry_ms - min(3_600_000, state_expiry_ms // 4)
        self._confirm_s = CONFIRM_FACTOR * self.limits.undelivered_s
        self._joining = BufferPool(self.limits)
        self.backlog = ParseBacklog()
        self._portion = ParseBudget(self.limits.work_max)
        self.finishing = False
        self._never_cut = never_cut

    def assign(self, configs: Iterable[PartitionConfig]) -> None:
        """Adds partitions; each twin is inspected before the first write."""
        for config in configs:
            if config.named in self.replicators:
                continue
            replicator = make_replicator(config, self.producer, self._fence, self.limits.partition_bytes_max)
            self.replicators[config.named] = replicator
            self.scheduler.add(replicator)
            self.stale_routes = True

    def release(self, partition: TopicPartition) -> None:
        """Stops fetching and sending a partition; `released` returns it once idle."""
        replicator = self.replicators.get(partition)
        if replicator is not None:
            replicator.set_back()
            replicator.leaving = True
            self.scheduler.remove(replicator)

    def released(self, now_s: float) -> list[tuple[TopicPartition, Handoff | None, PartitionProgress | None]]:
        """Removes released partitions that are idle, and returns handoffs and last progress.

        No other task may start while a broker may accept requests of a lost connection, which only this task knows, or
        while progress is unreported.
        """
        handed_over = []
        idle = [replicator for replicator in self.replicators.values() if not replicator.in_flight]
        for replicator in [replicator for replicator in idle if replicator.leaving]:
            place = replicator.config.topic, replicator.config.partition
            early = any((progress.topic, progress.partition) == place for progress in self._early)
            if replicator.zombies.until_s > now_s or early:
                continue
            handed_over.append((replicator.named, make_handoff(replicator, now_s), replicator.account(now_s)))
            self._tell_drops(replicator)
            del self.replicators[replicator.named]
            self._ready.get(replicator.leaders.target, {}).pop(replicator, None)
        return handed_over

    def keep_only(self, partitions: Set[TopicPartition]) -> None:
        """Before the start of writing: forgets partitions that another task has got."""
        for partition in [partition for partition in self.replicators if partition not in partitions]:
            self.scheduler.remove(self.replicators.pop(partition))

    def routed(self, partition: TopicPartition, leaders: PartitionLeaders) -> None:
        """Applies leaders from metadata. A new leader never breaks the order, as the twin is inspected again."""
        replicator = self.replicators.get(partition)
        if replicator is None or replicator.phase is Phase.STOPPED:
            return
        replicator.absences = replicator.absences + 1 if leaders.absent else 0
        gone = leaders.recreated or (leaders.absent if replicator.absences >= ABSENCES_MAX else "")
        if gone:
            recreated = bool(leaders.recreated)
            stopped = position.stop_for_missing_topic(partition, replicator.acked, gone, recreated=recreated)
            self._stop(replicator, stopped)
            return
        if replicator.leaders == leaders:
            return
        before, replicator.leaders = replicator.leaders, leaders
        if self.scheduler.line_of(replicator, before) != self.scheduler.line_of(replicator, leaders):
            self.scheduler.forget(replicator, before)
        if before.target != leaders.target:
            self._ready.get(before.target, {}).pop(replicator, None)
        replicator.on_leader_change()
        self.wake(replicator)

    def lines(self) -> tuple[set[FetchStream], set[int]]:
        """Returns the connections that running partitions need: source streams, target nodes."""
        running = [t for t in self.replicators.values() if t.phase is not Phase.STOPPED]
        sources = {self.scheduler.line_of(t, t.leaders) for t in running if t.leaders.source >= 0}
        return sources, {t.leaders.target for t in running if t.leaders.target >= 0}

    def _halt(self, replicator: PartitionReplicator, stopped: PartitionStopped) -> None:
        replicator.stop_after = stopped
        self.scheduler.forget(replicator, replicator.leaders)
        if not (replicator.waiting or replicator.in_flight):
            self._stop(replicator, stopped)

    def refuses(self, replicator: PartitionReplicator, parsed: ParsedFetch) -> bool:
        """Whether a drop-oldest queue must refuse `cut`; then the partition stops."""
        member = self.scheduler.member
        batch = find_transactional(parsed) if member and not member.rules.transactions else None
        if batch:
            stopped = PartitionStopped(IncidentKind.REFUSED, batch.base, batch.end, NO_TRANSACTIONS_REASON)
            self._halt(replicator, stopped)
        return batch is not None

    def drop_too_old(self, replicator: PartitionReplicator, now_ms: int) -> None:
        """Drops what an inspection found too old for a drop-oldest queue, once the twin's content is reported."""
        member, (epoch, to) = self.scheduler.member, replicator.old
        if not member or not member.drops(replicator):
            return
        if replicator.phase is not Phase.RUNNING or replicator.fetched < replicator.write_from:
            return
        replicator.old = NO_EPOCH_OFFSET
        if to > replicator.fetched and member.rules.max_age_s:
            drop_next(replicator, to, epoch, describe_age_limit(member.rules), now_ms)
            self.wake(replicator)

    def without_too_old(self, replicator: PartitionReplicator, done: ParsedFetch, now_ms: int) -> ParsedFetch:
        """The part of the task's own read for a drop-oldest queue."""
        member = self.scheduler.member
        if not member or not member.drops(replicator) or done.stopped:
            return done
        if not member.rules.transactions and (batch := find_transactional(done)):
            stopped = PartitionStopped(IncidentKind.REFUSED, batch.base, batch.end, NO_TRANSACTIONS_REASON)
            return done._replace(batches=[], end=replicator.fetched, carried=[], gaps=[], stopped=stopped)
        if not member.rules.max_age_s or replicator.fetched < replicator.write_from:
            return done
        begin = replicator.fetched
        kept, to = drop_old_batches(done, begin, oldest_kept_ms(member.rules, now_ms))
        if to >= 0:
            replicator.dropped.append(dropped_incident(replicator.named, begin, to, describe_age_limit(member.rules)))
        return kept

    # -- progress

    def accounts(self, now_s: float) -> list[PartitionProgress]:
        progress, self._early = self._early, []
        progress += [carried for replicator in self.replicators.values() if (carried := replicator.account(now_s))]
        for replicator in self.replicators.values():
            self._tell_drops(replicator)
        return progress

    def handovers(self, now_s: float) -> list[Handoff]:
        return [handoff for replicator in self.replicators.values() if (handoff := make_handoff(replicator, now_s))]

    def settled(self) -> bool:
        return not any(replicator.in_flight for replicator in self.replicators.values())

    def _tell_drops(self, replicator: PartitionReplicator) -> None:
        for row in replicator.drops() if replicator.dropped else ():
            append_incident(self.incidents, row)

    def _stop(self, replicator: PartitionReplicator, stopped: PartitionStopped) -> None:
        replicator.waiting.drop()
        replicator.enter(Phase.STOPPED)
        self.scheduler.forget(replicator, replicator.leaders)
        self._ready.get(replicator.leaders.target, {}).pop(replicator, None)
        self.incidents.append(position.to_partition_incident(replicator.named, stopped))

    def wake(self, replicator: PartitionReplicator) -> None:
        """Checks the partition with the next fetch of its stream, and sends waiting batches."""
        self.scheduler.wake(replicator)
        if replicator.waiting and replicator.leaders.target >= 0:
            self._ready.setdefault(replicator.leaders.target, {})[replicator] = None

    def take_over(
        self,
        handoffs: Iterable[Handoff],
        now_s: float,
        reached: Mapping[TopicPartition, WrittenPosition] = NO_WRITTEN_POSITIONS,
    ) -> None:
        """Starts partitions from handoffs, without an inspection. `reached`: as in `update_written_positions`."""
        update_written_positions(self.replicators, reached)
        for handoff in handoffs:
            replicator = self.replicators.get(handoff.named)
            if replicator is not None and accept_handoff(replicator, handoff, now_s):
                self.wake(replicator)

    def finish(self) -> None:
        """Stops fetching and sending."""
        self.finishing = True
        self.backlog.drop()
        self.leave()
        for replicator in self.replicators.values():
            replicator.set_back()

    def leave(self) -> None:
        if member := self.scheduler.member:
            member.close()

    @property
    def called(self) -> bool:
        """Whether another task has read something for this one, or stopped reading."""
        member = self.scheduler.member
        return member is not None and (member.needs_turn or bool(member.called))

    # -- inspecting twins

    def take_due_inspections(self, now_s: float, up: Container[int]) -> list[TopicPartition]:
        """Takes the twins to inspect. Only with a connection `up`, whose loss would reveal a crash."""
        partitions = []
        for replicator in self.replicators.values():
            due = replicator.phase is Phase.UNVERIFIED and replicator.retry_at_s <= now_s
            if due and replicator.leaders.target in up:
                # An inspection forgets unreported offsets, and may take long.
                self._early += [progress] if (progress := replicator.account(now_s)) else []
                replicator.looks(now_s)
                partitions.append(replicator.named)
        return partitions

    def on_inspected(
        self, partition: TopicPartition, seen: TargetState | KafkaError | None, now_s: float, now_ms: int = 1
    ) -> None:
        """Takes an inspection; an error or None if it failed."""
        replicator = self.replicators.get(partition)
        if replicator is None or replicator.leaving or replicator.phase is not Phase.VERIFYING:
            return
        anchor = SequenceMap.of(self.producer, replicator.config)
        if isinstance(seen, TargetState):
            verdict = InspectAgain("its connection broke") if replicator.doubted else replicator.judge(seen, anchor)
        else:
            verdict = judge_failed_inspection(seen, replicator.progress_log.to)
        match verdict:
            case ResumeAt() if isinstance(seen, TargetState):
                self._begin(replicator, verdict, seen, now_ms)
            case StopAt(kind, offset, end, sentence):
                self._stop(replicator, PartitionStopped(kind, offset, end, sentence))
            case InspectAgain(sentence):
                self.incidents += replicator.report_end_unknown(sentence, now_s)
                replicator.again(now_s)

    def _begin(self, replicator: PartitionReplicator, resume: ResumeAt, state: TargetState, now_ms: int) -> None:
        note_missing_ranges(replicator, state.dropped)
        replicator.zombies.seen(replicator.known_end.looked_at_s, self._confirm_s)
        if resume.position < replicator.config.inherited and not resume.next_sequence and replicator.zombies.until_s:
            # Sequences begin again at another offset: a zombie request could land at a wrong one.
            replicator.settle(replicator.zombies.until_s)
            return
        if replicator.progress_log.to < 0:
            replicator.progress_log.to = resume.position
        told_to = replicator.progress_log.to
        self.incidents += position.report_lost_by_target(replicator.named, resume.position, told_to, state.source_start)
        if resume.position > replicator.acked:
            replicator.clear_trouble(replicator.troubles.target)  # The request has landed; only its response was lost.
        cut_to = log_start_limit(state, replicator.config.base_offset, never=self._never_cut)
        replicator.resume(resume, state, fence=self._fence, armed_ms=self._armed_ms, cut_to=cut_to)
        self.incidents += report_unreported_gap(replicator, state)
        replicator.note_untold(now_ms, state.wrote_epoch)
        replicator.on_leader_change()
        if resume.gap_to > resume.position and replicator.phase is Phase.RUNNING:
            trouble, incidents = fill_gap(replicator, state, now_ms, marked_max=self.limits.gap_offsets_max)
            self.incidents.extend(incidents)
            if trouble:
                self._stop(replicator, trouble)
                return
        replicator.old = EpochOffset(state.young_epoch, state.young_from)
        self.drop_too_old(replicator, now_ms)
        self.wake(replicator)

    # -- fetching

    def fetch_order(self, line: FetchStream) -> PlannedFetch | None:
        if self.finishing or self._joining.full() or self.backlog.holds(line):
            return None
        return self.scheduler.order(line)

    def fetched(
        self, line: FetchStream, answer: FetchResponseById, buffer: PooledBuffer, now_s: float, now_ms: int
    ) -> None:
        """Takes a fetch response. Batches that point into its buffer are counted on `buffer`. `go_on` parses what is
        too much for this turn.
        """
        self.silence.over("source", line)
        parts = self.scheduler.answered(line, answer)
        for number, (replicator, part) in enumerate(parts):
            if replicator.phase is Phase.RUNNING and not replicator.refusal:
                if self._portion.left < 0:
                    for later, unparsed in parts[number:]:
                        rest = UnparsedPartition(line, later, later.fetched, later.begins, unparsed, buffer)
                        self.backlog.put(rest, first=False)
                    break
                self._take(line, replicator, part, buffer, now_s, now_ms)

    def go_on(self, now_s: float, now_ms: int) -> None:
        """Call once a turn; bounded, so that no lease runs out."""
        self._portion.again()
        if self.scheduler.member:
            feed_from_window(self, now_ms)
        while self._portion.left >= 0 and (rest := self.backlog.next(self.scheduler)):
            self._take(rest.line, rest.replicator, rest.part, rest.buffer, now_s, now_ms, rest.parser)

    def took(self, spent_s: float) -> None:
        """The length of a turn, without waiting."""
        self._portion.took(spent_s)

    def _take(
        self,
        line: FetchStream,
        replicator: PartitionReplicator,
        part: FetchedPartitionById,
        buffer: PooledBuffer,
        now_s: float,
        now_ms: int,
        parser: BatchParser | None = None,
    ) -> None:
        if part.error or part.diverging_epoch:
            self._source_error(replicator, part, now_s)
            return
        replicator.source.end, replicator.source.start = part.high_watermark, part.log_start
        if not replicator.source.heard:
            replicator.note_source_readable()
        member = self.scheduler.member
        if not len(part.records):
            if member:
                member.heads(replicator, part)
            return
        if parser is None:
            data, own = part.records, self._joining
            data, joining = member.begins(replicator, data, own, now_ms) if member else (data, own)
            parser = BatchParser(data, replicator.fetched, replicator.write_from, self.limits, joining, part.aborted)
        done = parser.parse(self._portion.left)
        if member:
            done = member.read(replicator, done, part, parser.joining, now_ms)
            done = self.without_too_old(replicator, done, now_ms)
        self._portion.spend(parser.work)
        if done.end == replicator.fetched and not done.stopped:
            replicator.partition_bytes_max = needed_fetch_bytes(part.records, replicator.partition_bytes_max)
            self.wake(replicator)
            return
        replicator.take(done, buffer, now_ms)
        if parser.more:
            at, begins = replicator.fetched, replicator.begins
            self.backlog.put(UnparsedPartition(line, replicator, at, begins, part, buffer, parser), first=True)
        self.wake(replicator)
        if done.stopped:
            self._halt(replicator, done.stopped)
        elif replicator.old.end > replicator.fetched:
            self.drop_too_old(replicator, now_ms)

    # -- producing

    def produce_order(self, node: int, now_s: float, now_ms: int, bytes_max: int = 1 << 30) -> list[SentBatch]:
        """At most one batch of each partition led by `node`, within the request limit."""
        ready = self._ready.get(node)
        if not ready:
            return []
        sent: list[SentBatch] = []
        size = 0
        for replicator in list(ready):
            if not replicator.waiting or replicator.phase is not Phase.RUNNING:
                del ready[replicator]
                continue
            batch, buffer = replicator.waiting[0]
            if isinstance(batch, OffsetGap) or not replicator.may_send(batch, now_s, now_ms, self._armed_ms):
                continue
            replicator.waiting.popleft()
            replicator.waiting.bytes -= batch.size
            if replicator.waiting.choked and replicator.waiting.bytes < replicator.partition_bytes_max:
                self.scheduler.wake(replicator)
            replicator.in_flight += 1
            replicator.sent = batch.end
            sent.append(SentBatch(replicator, batch, buffer, replicator.stamp.head(batch), replicator.source.led))
            size += batch.size
            del ready[replicator]
            if replicator.waiting:
                ready[replicator] = None
            if size >= min(bytes_max, self.limits.request_bytes_max):
                break
        return sent

    def produced(self, sent: list[SentBatch], parts: Sequence[ProducedPartition], now_s: float) -> None:
        """Takes a produce response. On an exact twin, another base offset stops the partition."""
        by_key = {(part.topic, part.partition): part for part in parts}
        for entry in sent:
            replicator, config = entry.replicator, entry.replicator.config
            twin, number = config.twin or config.topic, config.partition
            part = by_key.get((twin, number)) or by_key.get((replicator.target_id, number))
            replicator.in_flight -= 1
            if replicator.phase is Phase.RUNNING:
                self._answered(replicator, entry.batch, part, now_s)
            elif part is not None and part.error == 0 and not replicator.lands(entry.batch, part.base_offset):
                self._misplaced(replicator, entry.batch, part.base_offset)
            replicator.settled()

    def _answered(
        self, replicator: PartitionReplicator, batch: OutgoingBatch, part: ProducedPartition | None, now_s: float
    ) -> None:
        if part is None:
            self.incidents += replicator.report_not_taken(None, batch, now_s)
        elif part.error == 0 and replicator.lands(batch, part.base_offset):
            if not replicator.in_flight:
                replicator.known_end.armed_until_ms = batch.max_timestamp + self._armed_ms
            self._arrived(replicator, batch.end)
        elif part.error == 0:
            self._misplaced(replicator, batch, part.base_offset)
        else:
            self._target_error(replicator, batch, part, now_s)

    def _arrived(self, replicator: PartitionReplicator, end: int) -> None:
        replicator.arrived(end)
        if replicator.failures:
            replicator.note_target_accepts()
        if replicator.waiting:
            self._ready.setdefault(replicator.leaders.target, {})[replicator] = None
        elif replicator.stop_after and not replicator.in_flight:
            self._stop(replicator, replicator.stop_after)

    # -- invisible offsets

    def next_markers(self, node: int, now_s: float, each: int = MARKERS_MAX) -> list[PendingMarkers]:
        """Markers for partitions led by `node`, at most `each` for one."""
        return next_marker_runs(self._ready.get(node, {}), now_s, each)

    def marked(self, sent: list[PendingMarkers], answers: list[MarkerOutcome], now_s: float) -> None:
        """Takes a marker response. Only the log ends, read after, are proof."""
        outcomes = results_by_partition(answers)
        for replicator, gap in sent:
            answer = outcomes.get(replicator.config.twin_named)
            replicator.in_flight -= 1
            if stopped := judge_refused_markers(answer, gap, replicator.refusals):
                self._stop(replicator, stopped)
            elif replicator.phase is Phase.RUNNING and markers_landed(answer, gap):
                self._arrived(replicator, gap.end)
            elif replicator.phase is Phase.RUNNING:
                self.stale_routes = True
                self.incidents += replicator.report_not_taken(answer and answer.error, gap, now_s, "markers for ")
            replicator.settled()

    def next_end_checks(self, node: int, now_s: float, now_ms: int, *, idle: bool) -> list[EndOffsetCheck]:
        """Twins led by `node` whose ends must be queried: before unguarded requests and, if `idle`, where no request
        would reveal a change.
        """
        unsure = find_unsure_twins(self._ready.get(node, ()), now_s, now_ms)
        return unsure + find_idle_twins(self.replicators.values(), node) if idle else unsure

    def on_end_checked(self, asked: Iterable[EndOffsetCheck], answers: list[MarkerOutcome], now_s: float) -> None:
        untold, incidents = recheck_log_ends(asked, answers, now_s)
        self.stale_routes |= untold
        self.incidents += incidents

    def lost(
        self,
        node: int,
        sent: Iterable[list[SentBatch] | list[PendingMarkers]],
        now_s: float,
        lands_until_s: float = 0.0,
    ) -> None:
        """A target connection is gone, with these requests. The broker may return without its log ends, so its twins
        are inspected. `lands_until_s`: until then it accepts nothing, by its own throttle.
        """
        read_s = max(now_s, lands_until_s)
        until_s = read_s + max(self.limits.produce_timeout_s, self._confirm_s)
        for request in sent:
            for entry in request:
                replicator = entry.replicator
                replicator.in_flight -= 1
                run = entry.gap if isinstance(entry, PendingMarkers) else None
                heads = () if isinstance(entry, PendingMarkers) else ((entry.head, entry.batch.base),)
                kept_ms = replicator.known_end.armed_until_ms
                replicator.zombies.lost(until_s, kept_ms, run, heads, led=entry.led)
                if replicator.phase is Phase.RUNNING:
                    replicator.again(read_s)
                    self.incidents += replicator.report_unanswered(now_s) if read_s == now_s else []
                replicator.settled()
        for replicator in self.replicators.values():
            if replicator.leaders.target == node:
                replicator.doubt(read_s)
        self.stale_routes = True

    def source_lost(self, line: FetchStream) -> None:
        self.scheduler.reset(line)
        self.stale_routes = True

    def congested(self, node: int) -> None:
        """Frees the buffers of a target that accepts nothing."""
        for replicator in self._ready.pop(node, {}):
            replicator.set_back()
        self.scheduler.hold(node, held=True)

    # -- what goes wrong

    def _source_error(self, replicator: PartitionReplicator, part: FetchedPartitionById, now_s: float) -> None:
        if member := self.scheduler.member:
            member.doubt(replicator)
        if part.diverging_epoch:
            replicator.set_back()  # only the source lost what is not sent yet
        if stopped := judge_source_error(part, replicator.fetched, replicator.source.unread):
            self._halt(replicator, stopped)
            return
        self.stale_routes = True
        self.incidents += replicator.report_source_error(part, now_s)

    def _target_error(
        self, replicator: PartitionReplicator, batch: OutgoingBatch, part: ProducedPartition, now_s: float
    ) -> None:
        if not replicator.refusal and (stopped := judge_target_error(part, batch, replicator.refusals)):
            replicator.refused(stopped)
            self.scheduler.forget(replicator, replicator.leaders)
        if not replicator.refusal:
            self.stale_routes = True
            self.incidents += replicator.report_not_taken(part.error, batch, now_s)
        elif not replicator.in_flight:
            self._stop(replicator, replicator.refusal)

    def _misplaced(self, replicator: PartitionReplicator, batch: OutgoingBatch, base: int) -> None:
        if replicator.phase is not Phase.STOPPED:
            self._stop(replicator, position.stop_for_misplaced_batch(batch, base))
