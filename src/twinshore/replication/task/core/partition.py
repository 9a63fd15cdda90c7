"""One partition of a task: where it is fetched, sent and acknowledged, and in which phase.

Phases change only as `TRANSITIONS` allows; the diagram in ARCHITECTURE.md is made from that. Passing trouble is
reported once it has lasted, and again while it lasts.

A mapped twin uses sequences in the same way, but each batch is appended at the twin's end. Positions stay the source's.
Offsets without visible records take none on the twin. They are skipped once everything before is replicated.

A handoff is what one task reports of a partition to the next task, which then needs no inspection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import ClassVar, NamedTuple, Self

from twinshore.config.incident_policy import POLICY_WAIT, IncidentKind, IncidentPolicy
from twinshore.config.model import OffsetRun, SourceOffset, TargetOffset, TopicPartition, append_runs, source_end
from twinshore.kafka.protocol.error_codes import error_kind
from twinshore.kafka.protocol.fetch import FetchedPartitionById
from twinshore.kafka.protocol.record_batch import sequence_of
from twinshore.replication.task.core.accounting import (
    PendingProgress,
    ProgressLog,
    SourceState,
    latest_batches,
    truncate_pending,
)
from twinshore.replication.task.core.batches import (
    OffsetGap,
    OutgoingBatch,
    ParsedFetch,
    PartitionStopped,
    PooledBuffer,
    SequenceMap,
    clip_gaps,
    subtract_gaps,
)
from twinshore.replication.task.core.error_actions import retry_pause_s
from twinshore.replication.task.core.known_end import FAR_FUTURE_MS, UNKNOWN_S, KnownLogEnd, UnresolvedRequests
from twinshore.replication.task.core.messages import (
    NO_EPOCH_OFFSET,
    EpochOffset,
    Handoff,
    PartitionConfig,
    PartitionIncident,
    PartitionProgress,
    WrittenPosition,
    position_after,
    subtract_landed,
)
from twinshore.replication.task.core.position import (
    InspectAgain,
    PositionVerdict,
    ResumeAt,
    TargetState,
    judge_position,
)

TROUBLE_REPORT_S = 30.0
NEVER_S = -1.0
AWAY_KINDS = {"source": IncidentKind.SOURCE_AWAY, "target": IncidentKind.TARGET_AWAY}
THROTTLED_REASON = "a quota of the target's throttles the mirror; give its user or client id more"


class SendQueue(deque[tuple[OutgoingBatch | OffsetGap, PooledBuffer | None]]):
    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.choked = 0, False
        # No batch that waits has an older time stamp.
        self.oldest_ms = FAR_FUTURE_MS

    def put(self, piece: OutgoingBatch | OffsetGap, buffer: PooledBuffer | None) -> None:
        """Appends `piece`. `buffer` is its buffer, if the bytes are not its own. The use is counted here; the code that
        drops or sends the piece must count it off.
        """
        self.append((piece, buffer))
        if buffer:
            buffer.uses += 1
        self.bytes += piece.size
        if not isinstance(piece, OffsetGap) and piece.max_timestamp < self.oldest_ms:
            self.oldest_ms = piece.max_timestamp

    def drop(self) -> None:
        for _, buffer in self:
            if buffer:
                buffer.uses -= 1
        self.clear()
        self.bytes, self.oldest_ms = 0, FAR_FUTURE_MS

    def leave(self, holds: Container[PooledBuffer]) -> None:
        for number, (piece, buffer) in enumerate(self):
            if buffer and buffer in holds and not isinstance(piece, OffsetGap):
                self[number] = (piece._replace(body=bytes(piece.body), room=None), None)
                buffer.uses -= 1

    def kept_ms(self, now_ms: int, kept_ms: int) -> int:
        """Until when a broker that keeps a sequence for `kept_ms` knows any of these batches, if received last."""
        if self.oldest_ms + kept_ms < now_ms:  # That one may have been sent since.
            behind = [piece.max_timestamp for piece, _ in self if not isinstance(piece, OffsetGap)]
            self.oldest_ms = min(behind, default=FAR_FUTURE_MS)
        return self.oldest_ms + kept_ms


@dataclass(slots=True)
class TroubleTimer:
    """Times one trouble. `since_s`: when it began. `told_s`: when it was last reported."""

    since_s: float = NEVER_S
    told_s: float = NEVER_S

    def lasts(self, now_s: float, since_s: float = NEVER_S) -> float:
        """Notes the trouble; a new one began at `since_s`. Returns how long it has lasted if a report is due, else 0.
        The incident log keeps one row.
        """
        if self.since_s == NEVER_S:
            self.since_s = now_s if since_s == NEVER_S else since_s
        if now_s - max(self.since_s, self.told_s) < TROUBLE_REPORT_S:
            return 0.0
        self.told_s = now_s
        return now_s - self.since_s

    def over(self) -> bool:
        """Returns whether the trouble had been reported."""
        reported = self.told_s != NEVER_S
        self.since_s = self.told_s = NEVER_S
        return reported


@dataclass(slots=True)
class PartitionTroubles:
    """Troubles of one partition. `vain`: the twin's end cannot be found. `target`: its leader accepts nothing.
    `source`: the source's leader gives nothing.
    """

    vain: TroubleTimer = field(default_factory=TroubleTimer)
    target: TroubleTimer = field(default_factory=TroubleTimer)
    source: TroubleTimer = field(default_factory=TroubleTimer)


@dataclass(frozen=True, slots=True)
class PartitionLeaders:
    """The leaders on both sides, -1 for none. `recreated`: the side whose topic was deleted and created again.
    `absent`: the side without the topic.
    """

    source: int = -1
    source_epoch: int = -1
    target: int = -1
    recreated: str = ""
    absent: str = ""
    target_epoch: int = -1

    @property
    def twin_led(self) -> tuple[int, int]:
        """Leader and leader epoch of the twin; another pair may have another log."""
        return self.target, self.target_epoch


NO_LEADERS = PartitionLeaders()


class Phase(StrEnum):
    UNVERIFIED = "unverified"
    VERIFYING = "verifying"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPED = "stopped"


# From which phase to which, and when.
TRANSITIONS: tuple[tuple[Phase, Phase, str], ...] = (
    (Phase.UNVERIFIED, Phase.VERIFYING, "both sides are read"),
    (Phase.UNVERIFIED, Phase.RUNNING, "the previous task handed over"),
    (Phase.VERIFYING, Phase.RUNNING, "the twin ends where it may"),
    (Phase.VERIFYING, Phase.UNVERIFIED, "a response is missing or old"),
    (Phase.RUNNING, Phase.DRAINING, "the end is in doubt, responses are awaited"),
    (Phase.RUNNING, Phase.UNVERIFIED, "the end is in doubt, no response is awaited"),
    (Phase.DRAINING, Phase.UNVERIFIED, "the last response came"),
    *((phase, Phase.STOPPED, "an incident") for phase in Phase if phase is not Phase.STOPPED),
)
_ALLOWED = frozenset((before, after) for before, after, _ in TRANSITIONS)


def may_transition(before: Phase, after: Phase) -> bool:
    return before is after or (before, after) in _ALLOWED


class SentBatch(NamedTuple):
    """One partition of a produce request in flight. `head`: the header for this twin. `led`: the source's leader epoch
    when the source last showed the whole batch.
    """

    replicator: PartitionReplicator
    batch: OutgoingBatch
    buffer: PooledBuffer | None
    head: bytes
    led: int


@dataclass(slots=True, eq=False)
class PartitionReplicator:
    """The state of one partition; mutable, owned by one task. acked <= sent <= fetched; [sent, fetched) waits in
    `waiting`.

    Gaps take offsets and no sequences; `stamp` is that of `sent`. `begins`: how often replication began; earlier
    fetches are void. `fence`: the coordinator epoch of our markers. `cut_to`: where the twin's log should begin (-1:
    done).
    """

    mapped: ClassVar[bool] = False
    config: PartitionConfig
    stamp: SequenceMap
    source_key: tuple[bytes, int]
    target_id: bytes
    phase: Phase = Phase.UNVERIFIED
    leaders: PartitionLeaders = NO_LEADERS
    # Leader and epoch of the twin when its end was last certain.
    led: tuple[int, int] = (-1, -1)
    # The connection to its leader broke in standby or during an inspection: a known end may be outdated.
    doubted: bool = False
    absences: int = 0
    leaving: bool = False
    begins: int = 0
    fetched: int = 0
    sent: int = 0
    acked: int = 0
    write_from: int = 0
    in_flight: int = 0
    waiting: SendQueue = field(default_factory=SendQueue)
    partition_bytes_max: int = 0
    fence: int = 0
    cut_to: int = -1
    # An inspection found all below its end too old for a drop-oldest queue.
    old: EpochOffset = NO_EPOCH_OFFSET
    source: SourceState = field(default_factory=SourceState)
    progress_log: ProgressLog = field(default_factory=ProgressLog)
    # What is known of the twin's end, and what may still land there.
    known_end: KnownLogEnd = field(default_factory=KnownLogEnd)
    zombies: UnresolvedRequests = field(default_factory=UnresolvedRequests)
    # Earlier offsets are still replicated; then the partition stops for this.
    stop_after: PartitionStopped | None = None
    # The target refuses this, and so all after it: the partition stops once nothing is in flight.
    refusal: PartitionStopped | None = None
    retry_at_s: float = 0.0
    # Consecutive inspections, and how many of them a response caused.
    failures: int = 0
    refusals: int = 0
    troubles: PartitionTroubles = field(default_factory=PartitionTroubles)
    # Drops for age or for want of room, reported once progress has passed them.
    dropped: list[PartitionIncident] = field(default_factory=list)
    # Source offsets missing below the twin's inspected end, as far as inspected: no
    # progress counts them.
    missed: tuple[OffsetGap, ...] = ()

    @classmethod
    def of(cls, config: PartitionConfig, producer: tuple[int, int], fence: int, partition_bytes_max: int) -> Self:
        return cls(
            config=config,
            stamp=SequenceMap.of(producer, config),
            source_key=(bytes.fromhex(config.source_topic_id), config.partition),
            target_id=bytes.fromhex(config.target_topic_id),
            progress_log=ProgressLog(to=config.receipt_to, epoch=config.receipt_epoch),
            zombies=UnresolvedRequests.none() if config.untouched else UnresolvedRequests(epoch=config.receipt_epoch),
            fence=fence,
            partition_bytes_max=partition_bytes_max,
        )

    @property
    def named(self) -> TopicPartition:
        return TopicPartition(self.config.topic, self.config.partition)

    def incident(
        self, kind: IncidentKind, begin: int, end: int, sentence: str, policy: IncidentPolicy
    ) -> PartitionIncident:
        return PartitionIncident(self.config.topic, self.config.partition, kind, begin, end, sentence, policy)

    def enter(self, phase: Phase) -> None:
        """The only way from one phase to another."""
        assert may_transition(self.phase, phase), f"{self.named} cannot go from {self.phase} to {phase}"
        self.phase = phase

    def begin(
        self, position: int, *, armed_until_ms: int, leader_epoch: int, source_start: int = 0, next_sequence: int = -1
    ) -> None:
        """Starts at the twin's end, `position`. Fetches from the last reported progress if lower: unreported offsets
        are read and reported, not sent.
        """
        self.enter(Phase.RUNNING)
        self.begins, config = self.begins + 1, self.config
        if next_sequence < 0:
            next_sequence = sequence_of(config.base_offset, config.base_sequence, position)
        self.stamp = self.stamp._replace(base_offset=position, base_sequence=next_sequence)
        self.write_from = position
        self.fetched = self.sent = self.acked = min(position, max(self.progress_log.to, source_start))
        if self.fetched < position:
            leader_epoch = self.progress_log.epoch if self.fetched == self.progress_log.to else -1
        self.known_end.armed_until_ms, self.source.epoch = armed_until_ms, leader_epoch
        self._drop_anew()
        self.clear_trouble(self.troubles.vain)
        self.known_end.begun()
        self.on_begin(position)

    def on_begin(self, position: int) -> None:
        """Ends `begin`. A mapped twin has more to set."""

    def fits(self, handoff: Handoff) -> bool:  # noqa: ARG002
        """Whether the handoff fits this task's knowledge."""
        return True

    def take_over(self, handoff: Handoff) -> None:
        """Starts from a handoff, without an inspection."""
        if handoff.position > self.progress_log.to:  # reported already, and lost by the target
            self.progress_log.to, self.progress_log.epoch = handoff.position, -1
        known = {"armed_until_ms": handoff.armed_until_ms, "leader_epoch": handoff.leader_epoch}
        self.begin(handoff.position, **known, next_sequence=handoff.next_sequence)
        self.led, self.source.led = (handoff.target, handoff.target_epoch), handoff.source_led

    def resume(self, resume: ResumeAt, state: TargetState, *, fence: int, armed_ms: int, cut_to: int) -> None:
        """Starts from an inspection. `fence` and `armed_ms` are the task's. `cut_to`: the limit for cutting the twin's
        log.
        """
        self.zombies.landed(resume.position)
        self.fence = max(fence, state.fence + 1)
        self.cut_to = cut_to if state.log_start < cut_to else -1
        self.missed = tuple(OffsetGap(begin, end) for begin, end in (*state.unseen, *state.dropped))
        self.begin(
            resume.position,
            armed_until_ms=resume.last_timestamp + armed_ms if resume.last_timestamp >= 0 else 0,
            leader_epoch=state.source_epoch,
            source_start=state.source_start,
            next_sequence=resume.next_sequence,
        )
        self.source.end, self.source.start = state.source_end, state.source_start
        self.known_end.begun(self.known_end.looked_at_s)
        progress_log = self.progress_log
        if self.fetched == progress_log.to == resume.position and progress_log.epoch < 0:
            progress_log.epoch, progress_log.source = state.wrote_epoch, (-1, -1)  # to be told

    def note_untold(self, now_ms: int, epoch: int) -> None:
        """Notes replicated offsets that were never reported and that the source has lost, or progress would have a gap.
        `epoch`: the leader epoch below the twin's end.
        """
        progress_log = self.progress_log
        if progress_log.to < self.fetched:
            known = epoch if self.fetched == self.write_from else -1
            gaps = clip_gaps(self.missed, progress_log.to, self.fetched)
            progress_log.noted.append(
                PendingProgress(progress_log.to, self.fetched, seen_ms=now_ms, gaps=gaps, epoch=known)
            )
            progress_log.last_ms = now_ms

    def judge(self, state: TargetState, anchor: SequenceMap) -> PositionVerdict:
        return judge_position(state, anchor, self.config.inherited, carried=self.progress_log.to >= 0)

    def lands(self, batch: OutgoingBatch, base: int) -> bool:
        """Whether a batch may have this base offset on the target."""
        return base == batch.base

    def arrived(self, end: int) -> None:
        self.acked = end
        if not self.in_flight:
            self.known_end.arrived()
            self.zombies.clear_if_expired(self.known_end.sent_s)

    def may_mark(self) -> bool:
        """Whether markers may go now. No sequence guards them, so no request of this link may be in flight or still
        land.
        """
        if self.in_flight:
            return False
        if self.zombies.until_s:
            self.settle(self.zombies.until_s)
            return False
        return True

    def send_gap(self, most: int, now_s: float) -> OffsetGap:
        """Takes up to `most` offsets of the first gap, as in flight."""
        gap, _ = self.waiting.popleft()
        assert isinstance(gap, OffsetGap)
        run = gap._replace(end=min(gap.end, gap.base + most))
        if run.end < gap.end:
            self.waiting.appendleft((gap._replace(base=run.end), None))
        self.in_flight += 1
        self.known_end.sent(now_s, bare=True)
        self.sent = run.end
        self.stamp = self.stamp.after(run.skipped)
        return run

    def unsure(self, now_s: float, now_ms: int) -> bool:
        """Whether the next batch must wait for the twin's end."""
        guarded = self.mapped or (not self.known_end.bare and self.known_end.armed_until_ms >= now_ms)
        return not guarded and self.known_end.stale(now_s)

    def may_send(self, batch: OutgoingBatch, now_s: float, now_ms: int, kept_ms: int) -> bool:
        """Whether the next batch may go now. A broker keeps a sequence for `kept_ms` after the time stamp of its last
        batch. After that, only this task keeps the order.
        """
        certain, zombies = self.known_end, self.zombies
        alone = certain.bare or certain.armed_until_ms < now_ms
        if (self.in_flight and alone) or self.unsure(now_s, now_ms):
            return False
        until_ms = batch.max_timestamp + kept_ms
        if zombies.until_s and (
            min(zombies.kept_ms, until_ms, self.waiting.kept_ms(now_ms, kept_ms)) < now_ms
            or zombies.may_be_mistaken_for(self.head_of(batch), batch.end, self._led(), moved=self.moved(batch))
        ):
            # After this batch a zombie request would be appended at any log end, and this batch after an old one that
            # lands before; or this batch would be acknowledged though a zombie request landed instead. Let them land
            # first, then inspect again.
            self.settle(zombies.until_s)
            return False
        certain.armed_until_ms = min(certain.armed_until_ms, until_ms)
        certain.sent(now_s, bare=False)
        return True

    def head_of(self, batch: OutgoingBatch) -> bytes:
        """The next batch's header on this twin."""
        return self.stamp.head(batch)

    def moved(self, batch: OutgoingBatch) -> bool:  # noqa: ARG002
        """Whether the previous task may have used these sequences for other offsets, or written markers there."""
        return self.config.thinned_to >= 0

    def _led(self) -> int:
        return max(self.source.led, self.leaders.source_epoch)

    def full(self) -> bool:
        """Whether too much waits to fetch more. Merged batches are copies, which no buffer limits."""
        self.waiting.choked = self.waiting.bytes >= 2 * self.partition_bytes_max
        return self.waiting.choked

    def take(self, done: ParsedFetch, pooled_buffer: PooledBuffer, now_ms: int) -> None:
        """Queues a parsed fetch. Batches that were not joined may point into `pooled_buffer`."""
        if done.noted_to > self.fetched:
            self.sent = self.acked = max(self.acked, done.noted_to)
        for piece in done.batches:
            buffer = None if isinstance(piece, OffsetGap) else piece.room
            if buffer is None and not isinstance(piece, OffsetGap) and isinstance(piece.body, memoryview):
                buffer = pooled_buffer
            self.queue(piece, buffer)
        if done.end > self.fetched:
            missed = clip_gaps(self.missed, self.fetched, min(done.end, self.write_from)) if self.missed else ()
            taken = [entry for entry in done.carried if entry.base < done.end]
            taken = [entry for entry in taken if not clip_gaps(missed, entry.base, entry.base + 1)] if missed else taken
            size, batches = sum(entry.size for entry in taken), sum(entry.batches for entry in taken)
            producers = latest_batches([producer for entry in taken for producer in entry.producers])
            gaps = (*subtract_gaps(done.gaps, missed), *missed) if missed else tuple(done.gaps)
            epoch = -1 if done.stopped else done.leader_epoch
            self.progress_log.noted.append(
                PendingProgress(self.fetched, done.end, size, batches, now_ms, producers, gaps, epoch)
            )
        self.fetched, self.source.epoch, self.progress_log.last_ms = done.end, done.leader_epoch, now_ms

    def queue(self, piece: OutgoingBatch | OffsetGap, buffer: PooledBuffer | None) -> None:
        self.waiting.put(piece, buffer)

    def again(self, now_s: float, *, refused: bool = False) -> None:
        """Inspects the twin again after a failure, later each time."""
        self.failures += 1
        self.refusals += refused
        self.settle(now_s + retry_pause_s(self.failures))

    def refused(self, stopped: PartitionStopped) -> None:
        """Notes a refusal. The first reason counts; later ones follow from that."""
        self.refusal = self.refusal or stopped
        self.waiting.drop()

    def clear_trouble(self, trouble: TroubleTimer) -> None:
        """Ends a trouble. If reported, the next progress is sent even without new offsets."""
        if trouble.over():
            self.progress_log.source = (-1, -1)

    def settle(self, retry_at_s: float) -> None:
        """Stops sending after a wrong or missing response. An inspection follows once all responses are in."""
        self.waiting.drop()
        self.stop_after = self.refusal = None
        self.enter(Phase.DRAINING if self.in_flight else Phase.UNVERIFIED)
        self.retry_at_s = max(self.retry_at_s, retry_at_s)

    def looks(self, now_s: float) -> None:
        """Starts an inspection, from the reported progress; no more is reported until the result."""
        self.progress_log.noted.clear()
        self.enter(Phase.VERIFYING)
        self.led, self.doubted = self.leaders.twin_led, False
        self.known_end.looked_at_s, self.source.led = now_s, self.leaders.source_epoch

    def doubt(self, now_s: float) -> None:
        """The connection to the twin's leader broke, perhaps with a loss of its log end: only an inspection tells."""
        self.doubted = self.phase in (Phase.UNVERIFIED, Phase.VERIFYING)
        if self.phase is Phase.RUNNING:
            self.settle(now_s)

    def on_leader_change(self) -> None:
        """Another leader or epoch may have another log, so a known end is void."""
        lost = self.leaders.target < 0  # Data without a leader would keep buffers that other partitions need.
        twin = lost or (self.led[0] >= 0 and self.led != self.leaders.twin_led)
        if self.phase is Phase.RUNNING and (twin or self._source_unsure()):
            self.settle(0.0)

    def _source_unsure(self) -> bool:
        """Whether the source has a new leader epoch and no fetch would reveal lost records: the fetch would name no
        epoch, or begin below the twin's end.
        """
        anew = self.source.led != self.leaders.source_epoch >= 0
        return anew and (self.fetched < self.write_from or (self.source.epoch < 0 and self.fetched > 0))

    def settled(self) -> None:
        """Call after each response: the last one in flight ends the draining."""
        if self.phase is Phase.DRAINING and not self.in_flight:
            self.enter(Phase.UNVERIFIED)

    def set_back(self) -> None:
        """Frees the buffers; these offsets are fetched again."""
        self.waiting.drop()
        self.stop_after = None
        before, self.fetched = self.fetched, self.sent
        epoch = truncate_pending(self.progress_log.noted, self.sent, self.progress_log.stand)
        if self.sent < before:
            self.source.epoch = epoch
            self._drop_anew()

    def _drop_anew(self) -> None:
        end = max(self.fetched, self.write_from)
        self.dropped = [row for row in self.dropped if row.to_offset <= end]

    def drops(self) -> list[PartitionIncident]:
        """Takes the drops that progress has passed."""
        incidents = [row for row in self.dropped if row.to_offset <= self.progress_log.to]
        if incidents:
            self.dropped = self.dropped[len(incidents) :]
        return incidents

    def account(self, now_s: float) -> PartitionProgress | None:
        """Progress since the last call. None if there is none and the source is unchanged."""
        may_tell = partial(self.zombies.reportable_epoch, now_s=now_s)
        return self.progress_log.account(self.named, self.acked, self.source, may_tell)

    # -- troubles

    def report_source_error(self, part: FetchedPartitionById, now_s: float) -> list[PartitionIncident]:
        kind = error_kind(part.error)
        name = kind.name if part.error else "another history"
        self.source.unread += 1
        self.settle(now_s + retry_pause_s(self.source.unread))
        return self.report_source_silent(f"answers {name} to fetches at offset {self.fetched}", kind.sentence, now_s)

    def report_source_silent(
        self, what: str, why: str, now_s: float, since_s: float = NEVER_S
    ) -> list[PartitionIncident]:
        """The source's leader gives nothing. The incident ends once the offset there is replicated or, without a record
        there, the source can be read.
        """
        self.source.heard = False
        span = self.fetched, self.fetched + (self.source.end > self.fetched)
        return self._report("source", f"the source's leader {what}", why, span, now_s, since_s)

    def report_not_taken(
        self, error: int | None, piece: OutgoingBatch | OffsetGap, now_s: float, what: str = ""
    ) -> list[PartitionIncident]:
        """The twin's leader did not accept a batch or markers, or did not report the end before a request. `error`:
        None without an answer.
        """
        self.again(now_s, refused=bool(error))
        where = f"{what}offsets {piece.base} to {piece.end - 1}"
        did, why = f"did not take {where}", "it does not end where it did, or did not report its end"
        if error:
            kind = error_kind(error)
            did, why = f"answers {kind.name} to {where}", kind.sentence
        return self._report_target(did, why, (piece.base, piece.end), now_s)

    def report_throttled(self, now_s: float) -> list[PartitionIncident]:
        if self.known_end.sent_s > self.troubles.target.since_s != NEVER_S:
            self.clear_trouble(self.troubles.target)
        piece = self.waiting[0][0]
        did = f"lets us send nothing of offsets {piece.base} to {piece.end - 1}"
        return self._report_target(did, THROTTLED_REASON, (piece.base, piece.end), now_s)

    def report_unanswered(self, now_s: float, *, throttled: bool = False) -> list[PartitionIncident]:
        span = self.acked, max(self.acked, self.sent)
        did = f"has not answered the requests for offsets {span[0]} to {span[1] - 1}"
        why = THROTTLED_REASON if throttled else "it may hang, or wait for replicas or for a coordinator"
        return self._report_target(did, why, span, now_s, self.known_end.sent_s)

    def _report_target(
        self, what: str, why: str, span: tuple[int, int], now_s: float, since_s: float = NEVER_S
    ) -> list[PartitionIncident]:
        """Nothing lands on the twin. The incident ends once the offsets of `span` do."""
        return self._report("target", f"the twin's leader {what}", why, span, now_s, since_s)

    def _report(
        self, side: str, what: str, why: str, span: tuple[int, int], now_s: float, since_s: float
    ) -> list[PartitionIncident]:
        trouble = self.troubles.source if side == "source" else self.troubles.target
        if not (lasted_s := trouble.lasts(now_s, since_s)):
            return []
        sentence = f"{what}, for {lasted_s:.0f} s by now: {why}"
        return [self.incident(AWAY_KINDS[side], *span, sentence, POLICY_WAIT)]

    def report_end_unknown(
        self, why: str, now_s: float, since_s: float = NEVER_S, side: str = "target"
    ) -> list[PartitionIncident]:
        """The twin's end cannot be found. `side`: the one that is away."""
        if not self.troubles.vain.lasts(now_s, since_s):
            return []
        span, sentence = (self.progress_log.to, self.progress_log.to), f"the twin's end cannot be found: {why}"
        return [self.incident(AWAY_KINDS[side], *span, sentence, POLICY_WAIT)]

    def note_source_readable(self) -> None:
        """The source can be read: the next progress is sent even without new offsets."""
        self.source.unread, self.source.heard = 0, True
        self.clear_trouble(self.troubles.source)

    def note_target_accepts(self) -> None:
        self.failures = self.refusals = 0
        self.clear_trouble(self.troubles.target)


START_POSITION = WrittenPosition(0, 0, 0)


@dataclass(slots=True, eq=False)
class MappedPartitionReplicator(PartitionReplicator):
    """A partition with a mapped twin. `reach`: how far the twin is certainly written. `unreported_runs`: new offset
    runs. `skipped_offsets`: offsets were skipped since the last record.
    """

    mapped: ClassVar[bool] = True
    reach: WrittenPosition = START_POSITION
    unreported_runs: list[OffsetRun] = field(default_factory=list)
    skipped_offsets: bool = False
    gaps: deque[OffsetGap] = field(default_factory=deque)

    def judge(self, state: TargetState, anchor: SequenceMap) -> PositionVerdict:  # noqa: ARG002
        """The inspection brings the verdict."""
        return state.verdict or InspectAgain("the twin was looked at before it was known to be mapped")

    def fits(self, handoff: Handoff) -> bool:
        """Whether `handoff` and `reach` are of one position; an older `reach` would pair wrong offsets."""
        return handoff.next_sequence == self.reach.sequence

    def resume(self, resume: ResumeAt, state: TargetState, *, fence: int, armed_ms: int, cut_to: int) -> None:  # noqa: ARG002
        super(MappedPartitionReplicator, self).resume(resume, state, fence=fence, armed_ms=armed_ms, cut_to=-1)
        self.unreported_runs = append_runs(None, [*self.unreported_runs, *state.offset_runs])
        if state.offset_runs:
            self.reach = position_after(state.offset_runs[-1])
            landed = [(offset_run.source, source_end(offset_run)) for offset_run in state.offset_runs]
            self.dropped = subtract_landed(self.dropped, landed)

    def on_begin(self, position: int) -> None:
        self.gaps.clear()
        last, began = self.reach.last_source, self.config.reached
        behind = last + 1 if last >= 0 or not began else began.source  # if nothing has landed: where it began
        self.skipped_offsets = position != behind
        self.reach = self.reach._replace(source=position, sequence=self.stamp.base_sequence, warm=False)

    def lands(self, batch: OutgoingBatch, base: int) -> bool:
        """Notes where a batch landed, unless something before failed; an inspection finds the rest."""
        reach, length = self.reach, batch.end - batch.base
        if base < reach.target:
            return False
        if self.phase is Phase.RUNNING:
            offset_run = OffsetRun(SourceOffset(batch.base), TargetOffset(base), length, reach.sequence)
            last = self.unreported_runs[-1] if self.unreported_runs else None
            self.unreported_runs[-1:] = append_runs(last, [offset_run])
            self.reach = position_after(offset_run)
        return True

    def arrived(self, end: int) -> None:
        super(MappedPartitionReplicator, self).arrived(end)
        while self.gaps and self.gaps[0].base == self.acked:
            self._pass(self.gaps.popleft())

    def queue(self, piece: OutgoingBatch | OffsetGap, buffer: PooledBuffer | None) -> None:
        if isinstance(piece, OutgoingBatch):
            super(MappedPartitionReplicator, self).queue(piece, buffer)
        elif not self.waiting and not self.in_flight and self.acked == piece.base:
            self._pass(piece)
        else:
            self.gaps.append(piece)

    def may_send(self, batch: OutgoingBatch, now_s: float, now_ms: int, kept_ms: int) -> bool:
        if not super(MappedPartitionReplicator, self).may_send(batch, now_s, now_ms, kept_ms):
            return False
        for gap in self._before(batch):
            self._send_past(gap)
        return True

    def head_of(self, batch: OutgoingBatch) -> bytes:
        return self.stamp.after(sum(gap.end - gap.base for gap in self._before(batch))).head(batch)

    def settle(self, retry_at_s: float) -> None:
        super(MappedPartitionReplicator, self).settle(retry_at_s)
        self.gaps.clear()

    def set_back(self) -> None:
        super(MappedPartitionReplicator, self).set_back()
        while self.gaps and self.gaps[-1].base >= self.sent:
            self.gaps.pop()

    def account(self, now_s: float) -> PartitionProgress | None:
        """Reports offset runs at once, perhaps before the progress of their fetch."""
        carried = super(MappedPartitionReplicator, self).account(now_s)
        if not self.unreported_runs:
            return carried
        runs, self.unreported_runs = tuple(self.unreported_runs), []
        if carried is None:
            source_end = max(self.source.end, self.progress_log.to)
            carried = self.progress_log.nothing(self.named, self.source.start, source_end)
        return replace(carried, offset_runs=runs)

    def moved(self, batch: OutgoingBatch) -> bool:
        """Also if skipped offsets once held a record."""
        return self.skipped_offsets or self.config.thinned_to >= 0 or bool(self._before(batch))

    def _before(self, batch: OutgoingBatch) -> list[OffsetGap]:
        return [gap for gap in self.gaps if self.sent <= gap.base < batch.base]

    def _pass(self, gap: OffsetGap) -> None:
        if gap.base >= self.sent:
            self._send_past(gap)
        self.acked = gap.end

    def _send_past(self, gap: OffsetGap) -> None:
        self.sent, self.skipped_offsets = gap.end, True
        self.stamp = self.stamp.after(gap.end - gap.base)


def make_replicator(
    config: PartitionConfig, producer: tuple[int, int], fence: int, partition_bytes_max: int
) -> PartitionReplicator:
    if config.reached is None:
        return PartitionReplicator.of(config, producer, fence, partition_bytes_max)
    replicator = MappedPartitionReplicator.of(config, producer, fence, partition_bytes_max)
    replicator.reach = config.reached
    return replicator


def update_written_positions(
    replicators: Mapping[TopicPartition, PartitionReplicator], reached: Mapping[TopicPartition, WrittenPosition]
) -> None:
    """Sets how far mapped twins are written, from the coordinator."""
    for partition, reach in reached.items():
        replicator = replicators.get(partition)
        if isinstance(replicator, MappedPartitionReplicator):
            replicator.reach = reach


def written_positions(
    replicators: Mapping[TopicPartition, PartitionReplicator], partitions: list[TopicPartition]
) -> dict[TopicPartition, WrittenPosition]:
    """How far those of `partitions` that are mapped are written."""
    known = [replicators.get(partition) for partition in partitions]
    mapped = [replicator for replicator in known if isinstance(replicator, MappedPartitionReplicator)]
    return {
        replicator.named: replicator.reach.passed(replicator.progress_log.to)._replace(warm=replicator.begins > 0)
        for replicator in mapped
    }


UNKNOWN_POSITION = -1


def make_handoff(replicator: PartitionReplicator, now_s: float) -> Handoff | None:
    """Returns where the twin ends, if certain. If not, and requests may still land, returns only that: otherwise a
    successor would wait too briefly, or mistake them for its own. Else None.
    """
    zombies = replicator.zombies
    idle = replicator.phase is Phase.RUNNING and not replicator.in_flight
    certain = idle and replicator.acked >= max(replicator.write_from, replicator.old.end)
    if not certain and zombies.still_s(now_s) <= 0:
        return None
    target, target_epoch = replicator.led
    # Of an uncertain end only an inspection tells where a mapped twin's sequences continue.
    moved = (replicator.mapped and not certain) or zombies.may_have_moved(replicator.stamp.sequence)
    return Handoff(
        topic=replicator.config.topic,
        partition=replicator.config.partition,
        position=replicator.acked if certain else UNKNOWN_POSITION,
        leader_epoch=replicator.source.epoch,
        armed_until_ms=replicator.known_end.armed_until_ms,
        calm=certain and not zombies.until_s,
        next_sequence=replicator.stamp.sequence(replicator.acked),
        target=target,
        target_epoch=target_epoch,
        source_led=replicator.source.led,
        stray_epoch=zombies.epoch,
        strays_s=zombies.still_s(now_s),
        strays_moved=moved,
    )


def accept_handoff(replicator: PartitionReplicator, handoff: Handoff, now_s: float) -> bool:
    """Applies the previous task's report, and returns whether that spares an inspection; not after a broken connection.
    Requests that may still land count in any case.
    """
    if replicator.phase not in (Phase.UNVERIFIED, Phase.VERIFYING):
        return False
    fits = (
        handoff.position != UNKNOWN_POSITION
        and replicator.phase is Phase.UNVERIFIED
        and not replicator.doubted
        and replicator.fits(handoff)
    )
    if fits or not handoff.calm:
        until_s = UNKNOWN_S if handoff.strays_s < 0 else now_s + handoff.strays_s
        replicator.zombies.left(handoff.stray_epoch, until_s, calm=handoff.calm, moved=handoff.strays_moved)
    if fits:
        replicator.take_over(handoff)
        replicator.on_leader_change()
    return fits
