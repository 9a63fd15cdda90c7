"""The partitions of one task: which are replicated, which brokers lead them, which stop; responses in, requests out.

A response that is costly to parse is parsed in portions, so that the task can renew its lease and serve other
partitions.

This module also decides what takes the offsets that the source has lost, and how far a twin's log may be cut. Filler
records are visible, so they are written only before a twin's first record, and cut off again. Elsewhere invisible
markers take the offsets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Set
from types import MappingProxyType
from typing import NamedTuple

from twinshore.config.errors import KafkaError
from twinshore.config.incident_policy import POLICY_GAP, IncidentKind, IncidentSide
from twinshore.config.model import QueueRules, TopicPartition
from twinshore.kafka.protocol.fetch import FetchedPartitionById, FetchResponseById
from twinshore.kafka.protocol.produce import ProducedPartition
from twinshore.kafka.protocol.transactions import FILLER_RECORDS_MAX, make_filler
from twinshore.replication.task.core import position
from twinshore.replication.task.core.accounting import empty_progress
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
from twinshore.replication.task.core.config import (
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
from twinshore.replication.task.core.error_actions import (
    judge_failed_inspection,
    judge_source_error,
    judge_target_error,
)
from twinshore.replication.task.core.fetching import FetchScheduler, FetchStream, PlannedFetch, needed_fetch_bytes
from twinshore.replication.task.core.handoff import accept_handoff, make_handoff
from twinshore.replication.task.core.markers import MarkerOutcome
from twinshore.replication.task.core.partition import (
    PartitionLeaders,
    PartitionReplicator,
    Phase,
    SentBatch,
    make_replicator,
    note_source_readable,
    note_target_accepts,
    report_batch_not_taken,
    report_end_unknown,
    report_markers_not_taken,
    report_source_error,
    report_unanswered,
    update_written_positions,
)
from twinshore.replication.task.core.position import InspectAgain, ResumeAt, StopAt, TargetState
from twinshore.replication.task.core.resync import (
    MARKERS_MAX,
    IdleTwin,
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


def log_start_limit(seen: TargetState, anchor: int, *, never: bool) -> int:
    """Returns up to where the twin's log may be cut, 0 if not at all. `never`: only the link's filler may go, which is
    all below `anchor`.
    """
    if seen.uncut:
        return 0
    return min(anchor, seen.source_start) if never else seen.source_start


def fill_gap(
    track: PartitionReplicator, seen: TargetState, now_ms: int, *, marked_max: int
) -> tuple[PartitionStopped | None, list[PartitionIncident]]:
    """Queues what takes the offsets up to the source's start: filler before the twin's first record, else at most
    `marked_max` markers. Returns a halt or None, and incidents.
    """
    begin, end, named = track.fetched, seen.source_start, track.named
    if begin >= end:
        return None, []
    sentence = f"the source's log now begins at {end}, the twin ended at {begin}: retention was faster"
    filled_to = _filled_to(track, seen)
    if not track.mapped and (halt := _too_long(track, seen, filled_to, marked_max, sentence)):
        return halt, []
    told: list[PartitionIncident] = []
    # What the source lost since its twin was made; of a gap that grew, only the new part is reported.
    lost_from = max(begin, track.order.base_offset, track.told.gap_to)
    if lost_from < end:
        kind = IncidentKind.RETENTION_GAP
        told = [PartitionIncident(named.topic, named.partition, kind, lost_from, end, sentence, POLICY_GAP)]
        track.told.gap_to = end
    for piece in _pieces(track, begin, filled_to, end):
        track.queue(piece, None)
        blanks = (OffsetGap(piece.base, piece.end),)
        track.told.noted.append(empty_progress(piece.base, piece.end, now_ms, blanks=blanks))
    track.fetched, track.source.epoch = end, -1
    return None, told


def report_unreported_gap(track: PartitionReplicator, seen: TargetState) -> list[PartitionIncident]:
    """Reports offsets that the source has lost and a task ended too soon to report. The twin has no record there: they
    were never replicated, or never visible.
    """
    first = max(track.order.base_offset, track.told.to, track.told.gap_to)
    lost = clip_gaps([OffsetGap(*run) for run in seen.unseen], first, track.fetched)
    if not lost:
        return []
    begin, end, many = lost[0].base, lost[-1].end, sum(run.end - run.base for run in lost)
    sentence = (
        f"the source's log now begins at {seen.source_start}, and a pump ended before it told what crossed below:"
        f" {many} of these offsets hold no record on the twin"
    )
    track.told.gap_to = end
    named = track.named
    return [
        PartitionIncident(named.topic, named.partition, IncidentKind.RETENTION_GAP, begin, end, sentence, POLICY_GAP)
    ]


def _filled_to(track: PartitionReplicator, seen: TargetState) -> int:
    """Filler's limit. A topic once at home on the target has its own records below."""
    begin, order = track.fetched, track.order
    if track.mapped or order.inherited or seen.uncut:
        return begin
    return max(begin, min(seen.source_start, order.base_offset))


def _too_long(
    track: PartitionReplicator, seen: TargetState, filled_to: int, marked_max: int, sentence: str
) -> PartitionStopped | None:
    begin, end, twin = track.fetched, seen.source_start, track.order.twin_named
    if seen.uncut and end - begin > marked_max:
        why = (
            f"offsets {begin} to {end - 1} of twin {twin} must be filled: its source begins at {end}; they are too "
            f"many for markers, and what fills them must be cut off again: {seen.uncut}"
        )
        return PartitionStopped(IncidentKind.RIGHTS_LOST, begin, end, why, IncidentSide.TARGET)
    if end - filled_to > marked_max:
        why = (
            f"more than gap_offsets_max = {marked_max} offsets are missing; delete the twin {twin.topic} on the target,"
            f" wait until `twinshore status` shows {IncidentKind.RECREATED_TOPIC}, then `twinshore mirror begin-again"
            f" {track.named.topic}`"
        )
        return PartitionStopped(IncidentKind.RETENTION_GAP, begin, end, f"{sentence}, and {why}")
    if filled_to - begin > FILLED_OFFSETS_MAX:
        return PartitionStopped(IncidentKind.RETENTION_GAP, begin, end, f"{sentence}, and that is too long to fill")
    return None


def _pieces(track: PartitionReplicator, begin: int, filled_to: int, end: int) -> Iterator[OffsetGap | OutgoingBatch]:
    first = 0 if track.order.inherited else track.order.base_offset
    while begin < filled_to:
        made = make_filler(min(FILLER_RECORDS_MAX, filled_to - begin))
        yield make_outgoing_batch(made.header._replace(base_offset=begin), made.body)
        begin += made.header.count
    if begin < first and not track.mapped:
        yield FilledGap(begin, min(first, end))
        begin = first
    if begin < end:
        yield OffsetGap(begin, end)


def take_due_cuts(tracks: Iterable[PartitionReplicator]) -> dict[TopicPartition, int]:
    """Returns where twins should begin that begin before their sources. Once for each inspection."""
    due = [track for track in tracks if 0 <= track.cut_to <= track.acked]
    found = {track.named: track.cut_to for track in due}
    for track in due:
        track.cut_to = -1
    return found


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
    """One partition of a response, perhaps partly parsed by `cutter`. Valid while the partition is at `at` with the
    same `begins`.
    """

    line: FetchStream
    track: PartitionReplicator
    at: int
    begins: int
    part: FetchedPartitionById
    hold: PooledBuffer
    cutter: BatchParser | None = None


class ParseBacklog:
    """Unparsed partitions, oldest first. Their buffers are in use, and their streams fetch no more."""

    def __init__(self) -> None:
        self._rests: deque[UnparsedPartition] = deque()

    def __bool__(self) -> bool:
        return bool(self._rests)

    def holds(self, line: FetchStream) -> bool:
        return bool(self._rests) and any(rest.line == line for rest in self._rests)

    def keep(
        self, line: FetchStream, parts: Iterable[tuple[PartitionReplicator, FetchedPartitionById]], hold: PooledBuffer
    ) -> None:
        for track, part in parts:
            hold.uses += 1
            self._rests.append(UnparsedPartition(line, track, track.fetched, track.begins, part, hold))

    def go_on_with(
        self,
        line: FetchStream,
        track: PartitionReplicator,
        part: FetchedPartitionById,
        hold: PooledBuffer,
        cutter: BatchParser,
    ) -> None:
        """Puts the rest of a partly parsed partition first."""
        hold.uses += 1
        self._rests.appendleft(UnparsedPartition(line, track, track.fetched, track.begins, part, hold, cutter))

    def next(self, fetches: FetchScheduler) -> UnparsedPartition | None:
        """The next valid one; others are fetched again."""
        while self._rests:
            rest = self._rests.popleft()
            rest.hold.uses -= 1
            track = rest.track
            if track.begins == rest.begins and track.fetched == rest.at and fetches.asks(track, rest.line):
                return rest
            fetches.wake(track)
        return None

    def drop(self) -> None:
        for rest in self._rests:
            rest.hold.uses -= 1
        self._rests.clear()

    def uses(self) -> Iterable[PooledBuffer]:
        return (rest.hold for rest in self._rests)


def feed_from_window(lane: TaskPartitions, now_ms: int) -> None:
    """Feeds partitions from the shared window; a drop-oldest queue first drops stale data."""
    fetches, seat = lane.fetches, lane.fetches.seat
    wanted = seat.hungry() if seat else []
    if not wanted or not seat:
        return
    room = seat.room()
    for track in wanted:
        fed = False
        line = fetches.line_of(track, track.route)
        if seat.drops(track) and fetches.asks(track, line):
            fed = drop_stale_batches(seat, track, now_ms)
        while fetches.asks(track, line) and not track.full():
            if room <= 0 or fetches.buckets.shut():
                seat.later(track)
                break
            found = seat.next(track)
            if found is None:
                # The window may have dropped the data by now: then fetch from the source.
                fetches.ask_again(track)
                break
            one, cut = found
            if seat.drops(track) and lane.refuses(track, cut):
                break
            if fetches.buckets.bounding:
                fetches.buckets.spend(track.order.topic, sum(entry.size for entry in cut.carried))
            if not track.source.heard:
                note_source_readable(track)
            track.source.led, fed = one.led, True
            track.take(cut, NO_BUFFER, now_ms)
            room -= sum(piece.size for piece in cut.parcels)
        if fed:
            lane.wake(track)


def drop_stale_batches(seat: SharedFetchMember, track: PartitionReplicator, now_ms: int) -> bool:
    """Whether waiting data was dropped."""
    found = seat.kept_from(track, now_ms)
    if found is None:
        return False
    to, epoch, why = found
    drop_unsent(track, to, epoch, why, now_ms)
    track.source.led = track.route.source_epoch
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
        reading: SharedFetch | None = None,
        queue: QueueRules | None = None,
    ) -> None:
        """`fence`: a coordinator epoch; brokers then refuse markers with a lower one. `never_cut`: no record of a twin
        is cut off. `reading`: the broadcast's shared fetch, with `queue` as this task's rules.
        """
        self.limits, self.producer, self._fence = limits or TaskLimits(), (producer_id, epoch), fence
        self.tracks: dict[TopicPartition, PartitionReplicator] = {}
        self.fetches = FetchScheduler(self.limits)
        if reading:
            self.fetches.seat = SharedFetchMember(reading, self.fetches.wake, queue or QueueRules())
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
        self.uncut = ParseBacklog()
        self._portion = ParseBudget(self.limits.work_max)
        self.finishing = False
        self._never_cut = never_cut

    def assign(self, orders: Iterable[PartitionConfig]) -> None:
        """Adds partitions; each twin is inspected before the first write."""
        for order in orders:
            if order.named in self.tracks:
                continue
            track = make_replicator(order, self.producer, self._fence, self.limits.partition_bytes_max)
            self.tracks[order.named] = track
            self.fetches.add(track)
            self.stale_routes = True

    def release(self, named: TopicPartition) -> None:
        """Stops fetching and sending a partition; `released` returns it once idle."""
        track = self.tracks.get(named)
        if track is not None:
            track.set_back()
            track.leaving = True
            self.fetches.remove(track)

    def released(self, now_s: float) -> list[tuple[TopicPartition, Handoff | None, PartitionProgress | None]]:
        """Removes released partitions that are idle, and returns handoffs and last progress.

        No other task may start while a broker may accept requests of a lost connection, which only this task knows, or
        while progress is unreported.
        """
        found = []
        for track in [one for one in self.tracks.values() if one.leaving and not one.in_flight]:
            early = any(TopicPartition(one.topic, one.partition) == track.named for one in self._early)
            if track.strays.until_s > now_s or early:
                continue
            found.append((track.named, make_handoff(track, now_s), track.account(now_s)))
            self._tell_drops(track)
            del self.tracks[track.named]
            self._ready.get(track.route.target, {}).pop(track, None)
        return found

    def keep_only(self, named: Set[TopicPartition]) -> None:
        """Before the start of writing: forgets partitions that another task has got."""
        for track in [track for track in self.tracks.values() if track.named not in named]:
            self.fetches.remove(track)
            del self.tracks[track.named]

    def routed(self, named: TopicPartition, route: PartitionLeaders) -> None:
        """Applies leaders from metadata. A new leader never breaks the order, as the twin is inspected again."""
        track = self.tracks.get(named)
        if track is None or track.phase is Phase.STOPPED:
            return
        track.absences = track.absences + 1 if route.absent else 0
        gone = route.recreated or (route.absent if track.absences >= ABSENCES_MAX else "")
        if gone:
            self._stop(
                track, position.stop_for_missing_topic(named, track.acked, gone, recreated=bool(route.recreated))
            )
            return
        if track.route == route:
            return
        before, track.route = track.route, route
        if self.fetches.line_of(track, before) != self.fetches.line_of(track, route):
            self.fetches.forget(track, before)
        if before.target != route.target:
            self._ready.get(before.target, {}).pop(track, None)
        track.on_leader_change()
        self.wake(track)

    def lines(self) -> tuple[set[FetchStream], set[int]]:
        """Returns the connections that running partitions need: source streams, target nodes."""
        running = [t for t in self.tracks.values() if t.phase is not Phase.STOPPED]
        sources = {self.fetches.line_of(t, t.route) for t in running if t.route.source >= 0}
        return sources, {t.route.target for t in running if t.route.target >= 0}

    def _halt(self, track: PartitionReplicator, halt: PartitionStopped) -> None:
        track.stop_after = halt
        self.fetches.forget(track, track.route)
        if not (track.waiting or track.in_flight):
            self._stop(track, halt)

    def refuses(self, track: PartitionReplicator, cut: ParsedFetch) -> bool:
        """Whether a drop-oldest queue must refuse `cut`; then the partition stops."""
        seat = self.fetches.seat
        found = find_transactional(cut) if seat and not seat.rules.transactions else None
        if found:
            self._halt(track, PartitionStopped(IncidentKind.REFUSED, found.base, found.end, NO_TRANSACTIONS_REASON))
        return found is not None

    def drop_too_old(self, track: PartitionReplicator, now_ms: int) -> None:
        """Drops what an inspection found too old for a drop-oldest queue, once the twin's content is reported."""
        seat, (epoch, to) = self.fetches.seat, track.old
        if not seat or not seat.drops(track) or track.phase is not Phase.RUNNING or track.fetched < track.write_from:
            return
        track.old = NO_EPOCH_OFFSET
        if to > track.fetched and seat.rules.max_age_s:
            drop_next(track, to, epoch, describe_age_limit(seat.rules), now_ms)
            self.wake(track)

    def without_too_old(self, track: PartitionReplicator, done: ParsedFetch, now_ms: int) -> ParsedFetch:
        """The part of the task's own read for a drop-oldest queue."""
        seat = self.fetches.seat
        if not seat or not seat.drops(track) or done.halt:
            return done
        if not seat.rules.transactions and (found := find_transactional(done)):
            halt = PartitionStopped(IncidentKind.REFUSED, found.base, found.end, NO_TRANSACTIONS_REASON)
            return done._replace(parcels=[], end=track.fetched, carried=[], blanks=[], halt=halt)
        if not seat.rules.max_age_s or track.fetched < track.write_from:
            return done
        begin = track.fetched
        kept, to = drop_old_batches(done, begin, oldest_kept_ms(seat.rules, now_ms))
        if to >= 0:
            track.dropped.append(dropped_incident(track.named, begin, to, describe_age_limit(seat.rules)))
        return kept

    # -- progress

    def accounts(self, now_s: float) -> list[PartitionProgress]:
        found, self._early = self._early, []
        found += [carried for track in self.tracks.values() if (carried := track.account(now_s))]
        for track in self.tracks.values():
            self._tell_drops(track)
        return found

    def report_early(self, track: PartitionReplicator, now_s: float) -> None:
        """Saves progress before an inspection, which forgets unreported offsets and may take long."""
        self._early += [carried] if (carried := track.account(now_s)) else []

    def handovers(self, now_s: float) -> list[Handoff]:
        return [entry for track in self.tracks.values() if (entry := make_handoff(track, now_s))]

    def settled(self) -> bool:
        return not any(track.in_flight for track in self.tracks.values())

    def _tell_drops(self, track: PartitionReplicator) -> None:
        for row in track.drops() if track.dropped else ():
            append_incident(self.incidents, row)

    def _stop(self, track: PartitionReplicator, halt: PartitionStopped) -> None:
        track.waiting.drop()
        track.enter(Phase.STOPPED)
        self.fetches.forget(track, track.route)
        self._ready.get(track.route.target, {}).pop(track, None)
        self.incidents.append(position.to_partition_incident(track.named, halt))

    def wake(self, track: PartitionReplicator) -> None:
        """Checks the partition with the next fetch of its stream, and sends waiting batches."""
        self.fetches.wake(track)
        if track.waiting and track.route.target >= 0:
            self._ready.setdefault(track.route.target, {})[track] = None

    def take_over(
        self,
        handovers: Iterable[Handoff],
        now_s: float,
        reached: Mapping[TopicPartition, WrittenPosition] = NO_WRITTEN_POSITIONS,
    ) -> None:
        """Starts partitions from handoffs, without an inspection. `reached`: as in `update_written_positions`."""
        update_written_positions(self.tracks, reached)
        for entry in handovers:
            track = self.tracks.get(TopicPartition(entry.topic, entry.partition))
            if track is not None and accept_handoff(track, entry, now_s):
                self.wake(track)

    def finish(self) -> None:
        """Stops fetching and sending."""
        self.finishing = True
        self.uncut.drop()
        self.leave()
        for track in self.tracks.values():
            track.set_back()

    def leave(self) -> None:
        if seat := self.fetches.seat:
            seat.close()

    @property
    def called(self) -> bool:
        """Whether another task has read something for this one, or stopped reading."""
        seat = self.fetches.seat
        return seat is not None and (seat.needs_turn or bool(seat.called))

    # -- inspecting twins

    def take_due_inspections(self, now_s: float, up: Container[int]) -> list[TopicPartition]:
        """Takes the twins to inspect. Only with a connection `up`, whose loss would reveal a crash."""
        found = []
        for track in self.tracks.values():
            if track.phase is Phase.UNVERIFIED and track.retry_at_s <= now_s and track.route.target in up:
                self.report_early(track, now_s)
                track.looks(now_s)
                found.append(track.named)
        return found

    def on_inspected(
        self, named: TopicPartition, seen: TargetState | KafkaError | None, now_s: float, now_ms: int = 1
    ) -> None:
        """Takes an inspection; an error or None if it failed."""
        track = self.tracks.get(named)
        if track is None or track.leaving or track.phase is not Phase.VERIFYING:
            return
        anchor = SequenceMap.of(self.producer, track.order)
        if isinstance(seen, TargetState):
            verdict = InspectAgain("its line broke meanwhile") if track.doubted else track.judge(seen, anchor)
        else:
            verdict = judge_failed_inspection(seen, track.told.to)
        match verdict:
            case ResumeAt() if isinstance(seen, TargetState):
                self._begin(track, verdict, seen, now_ms)
            case StopAt(kind, offset, end, sentence):
                self._stop(track, PartitionStopped(kind, offset, end, sentence))
            case InspectAgain(sentence):
                self.incidents += report_end_unknown(track, sentence, now_s)
                track.again(now_s)

    def _begin(self, track: PartitionReplicator, go: ResumeAt, seen: TargetState, now_ms: int) -> None:
        note_missing_ranges(track, seen.dropped)
        track.strays.seen(track.known_end.looked_at_s, self._confirm_s)
        if go.position < track.order.inherited and not go.next_sequence and track.strays.until_s:
            # Sequences begin again at another offset: a zombie request could land at a wrong one.
            track.settle(track.strays.until_s)
            return
        if track.told.to < 0:
            track.told.to = go.position
        self.incidents.extend(
            position.report_lost_by_target(track.named, go.position, track.told.to, seen.source_start)
        )
        if go.position > track.acked:
            track.clear_trouble(track.troubles.target)  # The request has landed; only its response was lost.
        cut_to = log_start_limit(seen, track.order.base_offset, never=self._never_cut)
        track.resume(go, seen, fence=self._fence, armed_ms=self._armed_ms, cut_to=cut_to)
        self.incidents += report_unreported_gap(track, seen)
        track.note_untold(now_ms, seen.wrote_epoch)
        track.on_leader_change()
        if go.gap_to > go.position and track.phase is Phase.RUNNING:
            trouble, told = fill_gap(track, seen, now_ms, marked_max=self.limits.gap_offsets_max)
            self.incidents.extend(told)
            if trouble:
                self._stop(track, trouble)
                return
        track.old = EpochOffset(seen.young_epoch, seen.young_from)
        self.drop_too_old(track, now_ms)
        self.wake(track)

    # -- fetching

    def fetch_order(self, line: FetchStream) -> PlannedFetch | None:
        if self.finishing or self._joining.full() or self.uncut.holds(line):
            return None
        return self.fetches.order(line)

    def fetched(
        self, line: FetchStream, answer: FetchResponseById, hold: PooledBuffer, now_s: float, now_ms: int
    ) -> None:
        """Takes a fetch response. Batches that point into its buffer are counted on `hold`. `go_on` parses what is too
        much for this turn.
        """
        self.silence.over("source", line)
        parts = self.fetches.answered(line, answer)
        for number, (track, part) in enumerate(parts):
            if track.phase is Phase.RUNNING and not track.refusal:
                if self._portion.left < 0:
                    self.uncut.keep(line, parts[number:], hold)
                    break
                self._take(line, track, part, hold, now_s, now_ms)

    def go_on(self, now_s: float, now_ms: int) -> None:
        """Call once a turn; bounded, so that no lease runs out."""
        self._portion.again()
        if self.fetches.seat:
            feed_from_window(self, now_ms)
        while self._portion.left >= 0 and (one := self.uncut.next(self.fetches)):
            self._take(one.line, one.track, one.part, one.hold, now_s, now_ms, one.cutter)

    def took(self, spent_s: float) -> None:
        """The length of a turn, without waiting."""
        self._portion.took(spent_s)

    def _take(
        self,
        line: FetchStream,
        track: PartitionReplicator,
        part: FetchedPartitionById,
        hold: PooledBuffer,
        now_s: float,
        now_ms: int,
        cutter: BatchParser | None = None,
    ) -> None:
        if part.error or part.diverging_epoch:
            self._source_error(track, part, now_s)
            return
        track.source.end, track.source.start = part.high_watermark, part.log_start
        if not track.source.heard:
            note_source_readable(track)
        seat = self.fetches.seat
        if not len(part.records):
            if seat:
                seat.heads(track, part)
            return
        if cutter is None:
            data, own = part.records, self._joining
            data, joining = seat.begins(track, data, own, now_ms) if seat else (data, own)
            cutter = BatchParser(data, track.fetched, track.write_from, self.limits, joining, part.aborted)
        done = cutter.parse(self._portion.left)
        if seat:
            done = seat.read(track, done, part, cutter.joining, now_ms)
            done = self.without_too_old(track, done, now_ms)
        self._portion.spend(cutter.work)
        if done.end == track.fetched and not done.halt:
            track.partition_bytes_max = needed_fetch_bytes(part.records, track.partition_bytes_max)
            self.wake(track)
            return
        track.take(done, hold, now_ms)
        if cutter.more:
            self.uncut.go_on_with(line, track, part, hold, cutter)
        self.wake(track)
        if done.halt:
            self._halt(track, done.halt)
        elif track.old.end > track.fetched:
            self.drop_too_old(track, now_ms)

    # -- producing

    def produce_order(self, node: int, now_s: float, now_ms: int, bytes_max: int = 1 << 30) -> list[SentBatch]:
        """At most one batch of each partition led by `node`, within the request limit."""
        ready = self._ready.get(node)
        if not ready:
            return []
        sent: list[SentBatch] = []
        size = 0
        for track in list(ready):
            if not track.waiting or track.phase is not Phase.RUNNING:
                del ready[track]
                continue
            parcel, hold = track.waiting[0]
            if isinstance(parcel, OffsetGap) or not track.may_send(parcel, now_s, now_ms, self._armed_ms):
                continue
            track.waiting.popleft()
            track.waiting.bytes -= parcel.size
            if track.waiting.choked and track.waiting.bytes < track.partition_bytes_max:
                self.fetches.wake(track)
            track.in_flight += 1
            track.sent = parcel.end
            sent.append(SentBatch(track, parcel, hold, track.stamp.head(parcel), track.source.led))
            size += parcel.size
            del ready[track]
            if track.waiting:
                ready[track] = None
            if size >= min(bytes_max, self.limits.request_bytes_max):
                break
        return sent

    def produced(self, sent: list[SentBatch], parts: list[ProducedPartition], now_s: float) -> None:
        """Takes a produce response. On an exact twin, another base offset stops the partition."""
        by_key = {(part.topic, part.partition): part for part in parts}
        for entry in sent:
            track, order = entry.track, entry.track.order
            twin, number = order.twin or order.topic, order.partition
            part = by_key.get((twin, number)) or by_key.get((track.target_id, number))
            track.in_flight -= 1
            if track.phase is Phase.RUNNING:
                self._answered(track, entry.parcel, part, now_s)
            elif part is not None and part.error == 0 and not track.lands(entry.parcel, part.base_offset):
                self._misplaced(track, entry.parcel, part.base_offset)
            track.settled()

    def _answered(
        self, track: PartitionReplicator, parcel: OutgoingBatch, part: ProducedPartition | None, now_s: float
    ) -> None:
        if part is None:
            self.incidents += report_batch_not_taken(track, part, parcel, now_s)
        elif part.error == 0 and track.lands(parcel, part.base_offset):
            if not track.in_flight:
                track.known_end.armed_until_ms = parcel.max_timestamp + self._armed_ms
            self._arrived(track, parcel.end)
        elif part.error == 0:
            self._misplaced(track, parcel, part.base_offset)
        else:
            self._target_error(track, parcel, part, now_s)

    def _arrived(self, track: PartitionReplicator, end: int) -> None:
        track.arrived(end)
        if track.failures:
            note_target_accepts(track)
        if track.waiting:
            self._ready.setdefault(track.route.target, {})[track] = None
        elif track.stop_after and not track.in_flight:
            self._stop(track, track.stop_after)

    # -- invisible offsets

    def next_markers(self, node: int, now_s: float, each: int = MARKERS_MAX) -> list[PendingMarkers]:
        """Markers for partitions led by `node`, at most `each` for one."""
        return next_marker_runs(self._ready.get(node, {}), now_s, each)

    def marked(self, sent: list[PendingMarkers], answers: list[MarkerOutcome], now_s: float) -> None:
        """Takes a marker response. Only the log ends, read after, are proof."""
        found = results_by_partition(answers)
        for track, blank in sent:
            answer = found.get(track.order.twin_named)
            track.in_flight -= 1
            if halt := judge_refused_markers(answer, blank, track.refusals):
                self._stop(track, halt)
            elif track.phase is Phase.RUNNING and markers_landed(answer, blank):
                self._arrived(track, blank.end)
            elif track.phase is Phase.RUNNING:
                self.stale_routes = True
                self.incidents += report_markers_not_taken(track, answer, blank, now_s)
            track.settled()

    def next_end_checks(self, node: int, now_s: float, now_ms: int, *, idle: bool) -> list[IdleTwin]:
        """Twins led by `node` whose ends must be queried: before unguarded requests and, if `idle`, where no request
        would reveal a change.
        """
        found = find_unsure_twins(self._ready.get(node, ()), now_s, now_ms)
        return found + find_idle_twins(self.tracks.values(), node) if idle else found

    def on_end_checked(self, asked: Iterable[IdleTwin], answers: list[MarkerOutcome], now_s: float) -> None:
        untold, told = recheck_log_ends(asked, answers, now_s)
        self.stale_routes |= untold
        self.incidents += told

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
        for request in sent:
            for entry in request:
                track = entry.track
                track.in_flight -= 1
                run, heads = (
                    (entry.blank, ())
                    if isinstance(entry, PendingMarkers)
                    else (None, ((entry.head, entry.parcel.base),))
                )
                until_s = read_s + max(self.limits.produce_timeout_s, self._confirm_s)
                kept_ms = track.known_end.armed_until_ms
                track.strays.lost(until_s, kept_ms, run, heads, led=entry.led)
                if track.phase is Phase.RUNNING:
                    track.again(read_s)
                    self.incidents += report_unanswered(track, now_s) if read_s == now_s else []
                track.settled()
        for track in self.tracks.values():
            if track.route.target == node:
                track.doubt(read_s)
        self.stale_routes = True

    def source_lost(self, line: FetchStream) -> None:
        self.fetches.reset(line)
        self.stale_routes = True

    def congested(self, node: int) -> None:
        """Frees the buffers of a target that accepts nothing."""
        for track in self._ready.pop(node, {}):
            track.set_back()
        self.fetches.hold(node, held=True)

    # -- what goes wrong

    def _source_error(self, track: PartitionReplicator, part: FetchedPartitionById, now_s: float) -> None:
        if seat := self.fetches.seat:
            seat.doubt(track)
        if part.diverging_epoch:
            track.set_back()  # only the source lost what is not sent yet
        if found := judge_source_error(part, track.fetched, track.source.unread):
            self._halt(track, found)
            return
        self.stale_routes = True
        self.incidents += report_source_error(track, part, now_s)

    def _target_error(
        self, track: PartitionReplicator, parcel: OutgoingBatch, part: ProducedPartition, now_s: float
    ) -> None:
        if not track.refusal and (found := judge_target_error(part, parcel, track.refusals)):
            track.refused(found)
            self.fetches.forget(track, track.route)
        if not track.refusal:
            self.stale_routes = True
            self.incidents += report_batch_not_taken(track, part, parcel, now_s)
        elif not track.in_flight:
            self._stop(track, track.refusal)

    def _misplaced(self, track: PartitionReplicator, parcel: OutgoingBatch, base: int) -> None:
        if track.phase is not Phase.STOPPED:
            self._stop(track, position.stop_for_misplaced_batch(parcel, base))
