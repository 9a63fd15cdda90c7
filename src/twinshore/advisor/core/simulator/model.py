"""Simulator model of one partition: configuration, state, anomalies, and transitions of brokers, producer and consumer.

Brokers and records are numbered from 1; 0 is none. All values are hashable tuples, so that a search can store states.

Rules are Kafka's in KRaft mode, with leader epochs unless the configuration says `high-watermark`. With `elr`, a
replica that leaves the in-sync set while fewer than `min.insync.replicas` stay remains eligible, and the high watermark
does not advance.

The producer sends numbered records in order and retries refused or unanswered ones. The consumer reads one record at a
time, below the high watermark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from itertools import pairwise
from typing import NamedTuple


class ProducerAcks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


class FlushMode(StrEnum):
    """When a record is on disk: when the system writes it, or before it is visible (`flush.messages=1`)."""

    NEVER = "never"
    EACH = "each"


class TruncationMode(StrEnum):
    """How a follower truncates its log: at its own high watermark, or by leader epochs (since KIP-101)."""

    HIGH_WATERMARK = "high-watermark"
    EPOCH = "epoch"


class CommitMode(StrEnum):
    """Whether there is a consumer, and when offsets are committed. `auto`: at any time after a record was returned.
    `together`: the offset is stored with the result, in one transaction of the application's store.
    """

    NONE = "none"
    AUTO = "auto"
    BEFORE = "before"
    AFTER = "after"
    WITH_RESULTS = "together"


class AutoOffsetReset(StrEnum):
    """Where a consumer without a committed offset starts (auto.offset.reset). `none`: the offset is never lost."""

    NONE = "none"
    EARLIEST = "earliest"
    LATEST = "latest"


class FaultKind(StrEnum):
    """`crash` keeps what the process wrote; `power` loses what is not on disk. `cut`: from brokers and controller, not
    from clients. `answer`: a request or response is lost. `reader`: the consumer process dies.

    `rest`: the group is away until its offset expires. `retention`: the oldest record is deleted. Both need a reset.
    """

    CRASH = "crash"
    POWER = "power"
    CUT = "cut"
    SLOW = "slow"
    LOST_RESPONSE = "answer"
    READER = "reader"
    REST = "rest"
    RETENTION = "retention"


class Anomaly(StrEnum):
    LOST = "lost"
    TWICE = "twice"
    REORDERED = "reordered"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """`elr`: eligible leader replicas (KIP-966). `in_flight`: the producer sends on without waiting for responses.

    `away`: replicas that start down and out of sync; one further record was acknowledged before. `capped`: a
    min.insync.replicas above the number of replicas means all of them, as since Kafka 3.7. Before, acks=all then
    accepts nothing.
    """

    replicas: int = 3
    records: int = 2
    acks: ProducerAcks = ProducerAcks.ALL
    min_insync: int = 1
    unclean: bool = False
    flush: FlushMode = FlushMode.NEVER
    truncation: TruncationMode = TruncationMode.EPOCH
    elr: bool = False
    idempotent: bool = True
    retries: bool = True
    in_flight: bool = True
    commit: CommitMode = CommitMode.NONE
    faults: frozenset[FaultKind] = frozenset(FaultKind)
    away: int = 0
    reset: AutoOffsetReset = AutoOffsetReset.NONE
    capped: bool = True

    @property
    def able(self) -> frozenset[FaultKind]:
        """Faults that can happen: some need a consumer, a reset, or a second broker. An offset in the application's
        store never expires.
        """
        never = set[FaultKind]()
        if self.commit is CommitMode.NONE:
            never |= {FaultKind.READER}
        if self.commit is CommitMode.NONE or self.reset is AutoOffsetReset.NONE:
            never |= {FaultKind.REST, FaultKind.RETENTION}
        if self.commit is CommitMode.WITH_RESULTS:
            never |= {FaultKind.REST}
        if self.replicas == 1:
            never |= {FaultKind.CUT, FaultKind.SLOW}
        return self.faults - never

    @property
    def effective_min_insync(self) -> int:
        return min(self.min_insync, self.replicas) if self.capped else self.min_insync


class ModelAction(StrEnum):
    SEND = "send"
    FETCH = "fetch"
    LET_OFFSETS_FOLLOW = "follow"
    SHRINK = "shrink"
    NOTICE = "notice"
    ELECT = "elect"
    RESTART = "restart"
    HEAL = "heal"
    RECOVER = "recover"
    GIVE_UP = "give up"
    POLL = "poll"
    HANDLE = "handle"
    COMMIT = "commit"
    SEEK = "seek"
    CRASH = "crash"
    POWER = "power"
    CUT = "cut"
    SLOW = "slow"
    UNANSWERED = "unanswered"
    READER = "reader"
    REST = "rest"
    DELETE = "delete"


FAULT_BY_ACTION = {
    ModelAction.CRASH: FaultKind.CRASH,
    ModelAction.POWER: FaultKind.POWER,
    ModelAction.CUT: FaultKind.CUT,
    ModelAction.SLOW: FaultKind.SLOW,
    ModelAction.UNANSWERED: FaultKind.LOST_RESPONSE,
    ModelAction.READER: FaultKind.READER,
    ModelAction.REST: FaultKind.REST,
    ModelAction.DELETE: FaultKind.RETENTION,
}


class ModelEvent(NamedTuple):
    """`broker` acts or suffers. `other`: the record that is sent, or the broker that is elected."""

    deed: ModelAction
    broker: int = 0
    other: int = 0

    @property
    def is_fault(self) -> bool:
        return self.deed in FAULT_BY_ACTION


NO_OFFSET = -1


class ModelLogEntry(NamedTuple):
    record: int
    epoch: int


class SendState(IntEnum):
    """The producer's view of a record. REFUSED: an error or no response; the producer may retry."""

    NOT_YET = 0
    WAITING = 1
    ACKNOWLEDGED = 2
    REFUSED = 3


class ModelReplica(NamedTuple):
    """`high`: the replica's known high watermark. `flushed`: entries on disk. `epoch`: latest known leader epoch.

    `leads`: the broker acts as leader, also when cut off and replaced. `view`: size of the in-sync set when cut off.
    `told`: log end at the last fetch, as the leader knows. `eligible`: may lead though out of sync (ELR). `waiting`:
    records whose producer waits for a response.
    """

    log: tuple[ModelLogEntry, ...] = ()
    flushed: int = 0
    high: int = 0
    up: bool = True
    cut: bool = False
    slow: bool = False
    epoch: int = 0
    leads: bool = False
    view: int = 0
    told: int = 0
    in_sync: bool = True
    eligible: bool = False
    waiting: tuple[int, ...] = ()

    @property
    def reachable(self) -> bool:
        """Whether brokers and the controller reach the broker."""
        return self.up and not self.cut

    def holds(self, record: int) -> bool:
        return any(entry.record == record for entry in self.log)

    def cut_to(self, end: int) -> ModelReplica:
        return self._replace(log=self.log[:end], flushed=min(self.flushed, end), high=min(self.high, end))


class ModelConsumer(NamedTuple):
    """`place`: the next offset to read. `committed`: where a successor would continue. Both may be NO_OFFSET. `hand`: a
    record returned but not yet handled.
    """

    place: int
    committed: int
    hand: int
    handled: tuple[int, ...]


class ModelPartition(NamedTuple):
    """`leader`: by the controller. `start`: where the leader's epoch begins in the log. `last`: the last leader, if ELR
    is on and none may lead. `seen`: the latest epoch known to the producer. `first`: retention has deleted everything
    below, though logs keep the entries here.
    """

    replicas: tuple[ModelReplica, ...]
    leader: int
    epoch: int
    start: int
    last: int
    sent: tuple[int, ...]
    seen: int
    reader: ModelConsumer | None
    first: int = 0

    def of(self, broker: int) -> ModelReplica:
        return self.replicas[broker - 1]

    def with_replica(self, broker: int, replica: ModelReplica) -> ModelPartition:
        replicas = list(self.replicas)
        replicas[broker - 1] = replica
        return ModelPartition(tuple(replicas), *self[1:])

    @property
    def brokers(self) -> range:
        return range(1, len(self.replicas) + 1)

    @property
    def in_sync(self) -> tuple[int, ...]:
        return tuple([broker for broker, one in enumerate(self.replicas, 1) if one.in_sync])

    @property
    def led(self) -> ModelReplica | None:
        """The controller's leader, if it runs."""
        leader = self.replicas[self.leader - 1] if self.leader else None
        return leader if leader is not None and leader.up else None

    @property
    def acknowledged(self) -> tuple[int, ...]:
        return tuple(at for at, status in enumerate(self.sent, 1) if status == SendState.ACKNOWLEDGED)

    def answered(self, records: tuple[int, ...], status: SendState) -> ModelPartition:
        if not records:
            return self
        sent = tuple(int(status) if at in records else old for at, old in enumerate(self.sent, 1))
        return self._replace(sent=sent)


def build_initial_state(config: ModelConfig) -> ModelPartition:
    """Broker 1 leads, and all brokers but those `away` are in sync.

    With brokers away, record 1 was acknowledged before, and only the in-sync brokers have it. Otherwise nothing is
    written.
    """
    there, held = config.replicas - config.away, 1 if config.away else 0
    flushed = held if config.flush is FlushMode.EACH else 0
    whole = ModelReplica((ModelLogEntry(1, 0),) * held, flushed, held, told=held)
    gone = ModelReplica(up=False, in_sync=False)
    replicas = (whole._replace(leads=True), *[whole] * (there - 1), *[gone] * config.away)
    sent = (int(SendState.ACKNOWLEDGED),) * held + (int(SendState.NOT_YET),) * config.records
    # The consumer exists from the beginning; a group with a reset has committed nothing yet.
    committed = 0 if config.reset is AutoOffsetReset.NONE or config.commit is CommitMode.WITH_RESULTS else NO_OFFSET
    reader = None if config.commit is CommitMode.NONE else ModelConsumer(0, committed, 0, (0,) * len(sent))
    return ModelPartition(replicas, 1, 0, 0, 0, sent, 0, reader)


class AnomalyCase(NamedTuple):
    harm: Anomaly
    record: int
    says: str


def find_anomalies(state: ModelPartition) -> Iterator[AnomalyCase]:
    """Judges by the log of the controller's leader, if it runs: followers will truncate to it."""
    leader = state.led
    if leader is None:
        return
    records = [entry.record for entry in leader.log]
    acknowledged = state.acknowledged
    for record in acknowledged:
        count = records.count(record)
        if count == 0:
            yield AnomalyCase(
                Anomaly.LOST, record, f"Record {record} was acknowledged, and the leader's log does not have it"
            )
        if count > 1:
            yield AnomalyCase(Anomaly.TWICE, record, f"Record {record} is in the leader's log {count} times")
    firsts = [record for at, record in enumerate(records) if record in acknowledged and record not in records[:at]]
    for one, other in pairwise(firsts):
        if one > other:
            yield AnomalyCase(
                Anomaly.REORDERED, other, f"Record {other} stands behind record {one}, which was sent later"
            )
    yield from _read(state, records)


def _read(state: ModelPartition, records: list[int]) -> Iterator[AnomalyCase]:
    reader = state.reader
    if reader is None:
        return
    for at, record in enumerate(records[: max(reader.place, state.first)]):
        if record in state.acknowledged and not reader.handled[record - 1] and reader.hand != record:
            passed = f"Record {record} is in the log, and the group has passed it unhandled"
            deleted = f"Record {record} was deleted by retention, and the group had not handled it"
            yield AnomalyCase(Anomaly.LOST, record, deleted if at < state.first else passed)
    for record, count in enumerate(reader.handled, 1):
        if count > 1:
            yield AnomalyCase(Anomaly.TWICE, record, f"Record {record} was handled {count} times")


Transitions = Iterator[tuple[ModelEvent, ModelPartition]]


def replication_transitions(config: ModelConfig, state: ModelPartition) -> Transitions:
    for broker in state.brokers:
        replica = state.of(broker)
        if replica.reachable and broker != state.leader:
            if config.truncation is TruncationMode.HIGH_WATERMARK and state.leader and replica.epoch < state.epoch:
                yield ModelEvent(ModelAction.LET_OFFSETS_FOLLOW, broker), _followed(state, broker)
            elif _can_fetch(state, broker):
                yield ModelEvent(ModelAction.FETCH, broker), _fetched(config, state, broker)
        yield from _shrunk(config, state, broker)
        if not replica.reachable:
            yield from _noticed(config, state, broker)
        elif not state.leader and _may_lead(config, state, broker):
            yield ModelEvent(ModelAction.ELECT, broker), _elected(state, broker)
        yield from _returned(config, state, broker)


def advance_high_watermark(config: ModelConfig, state: ModelPartition, broker: int) -> ModelPartition:
    """Advances the leader's high watermark and answers the producers whose records are below."""
    leader = state.of(broker)
    isolated = leader.cut or state.leader != broker
    in_sync = leader.view if isolated else len(state.in_sync)
    if not config.elr or in_sync >= config.effective_min_insync:
        # A cut-off leader receives no fetches: its own log end counts only if it was alone in sync.
        ends = [] if isolated else [state.of(other).told for other in state.in_sync if other != broker]
        high = leader.high if isolated and in_sync > 1 else min([len(leader.log), *ends])
        leader = leader._replace(high=max(leader.high, high))
    done = tuple(one for one in leader.waiting if any(entry.record == one for entry in leader.log[: leader.high]))
    leader = leader._replace(waiting=tuple(one for one in leader.waiting if one not in done))
    # Too few in sync by now: the producer gets NOT_ENOUGH_REPLICAS_AFTER_APPEND, though the record is there.
    status = SendState.ACKNOWLEDGED if in_sync >= config.effective_min_insync else SendState.REFUSED
    return state.with_replica(broker, leader).answered(done, status)


def append_log(config: ModelConfig, replica: ModelReplica, log: ModelReplica) -> ModelReplica:
    """Returns `replica` with the log of `log`, flushed if the configuration says so."""
    flushed = len(log.log) if config.flush is FlushMode.EACH else replica.flushed
    return replica._replace(log=log.log, flushed=flushed)


def _followed(state: ModelPartition, broker: int) -> ModelPartition:
    """Before KIP-101: a new follower truncates its log to its known high watermark."""
    replica = state.of(broker)
    return state.with_replica(broker, replica.cut_to(replica.high)._replace(epoch=state.epoch, leads=False))


def _can_fetch(state: ModelPartition, broker: int) -> bool:
    leader, replica = state.led, state.of(broker)
    return leader is not None and leader.reachable and not leader.slow and not replica.slow


def find_divergence(one: ModelReplica, other: ModelReplica) -> int:
    """The offset where two logs differ; leader epochs tell a follower the same in several rounds."""
    for at, (ours, theirs) in enumerate(zip(one.log, other.log, strict=False)):
        if ours != theirs:
            return at
    return min(len(one.log), len(other.log))


def _fetched(config: ModelConfig, state: ModelPartition, broker: int) -> ModelPartition:
    """The request reports the follower's log end; the response brings records and the high watermark."""
    leader, replica = state.of(state.leader), state.of(broker)
    by_epoch = config.truncation is TruncationMode.EPOCH
    replica = replica.cut_to(find_divergence(replica, leader) if by_epoch else min(len(replica.log), len(leader.log)))
    end = len(replica.log)
    caught_up = end >= leader.high and end >= state.start
    replica = replica._replace(told=end, epoch=state.epoch, leads=False)
    if caught_up and not replica.in_sync:
        replica = replica._replace(in_sync=True, eligible=False)
    state = _eligible(config, state.with_replica(broker, replica), ())
    state = advance_high_watermark(config, state, state.leader)
    leader = state.of(state.leader)
    longer = replica._replace(log=replica.log + leader.log[end:])
    replica = append_log(config, state.of(broker), longer)
    return state.with_replica(broker, replica._replace(high=min(leader.high, len(replica.log))))


def _eligible(config: ModelConfig, state: ModelPartition, left: tuple[int, ...]) -> ModelPartition:
    """A broker that left the in-sync set stays eligible while the set is too small."""
    if not config.elr:
        return state
    few = len(state.in_sync) < min(config.min_insync, config.replicas)
    for broker in state.brokers:
        replica = state.of(broker)
        eligible = few and not replica.in_sync and (replica.eligible or broker in left)
        if eligible != replica.eligible:
            state = state.with_replica(broker, replica._replace(eligible=eligible))
    return state


def _removed(config: ModelConfig, state: ModelPartition, brokers: tuple[int, ...]) -> ModelPartition:
    for broker in brokers:
        state = state.with_replica(broker, state.of(broker)._replace(in_sync=False))
    return _eligible(config, state, brokers)


def _shrunk(config: ModelConfig, state: ModelPartition, broker: int) -> Transitions:
    """The leader drops a slow follower, or all followers if the leader itself is slow."""
    leader = state.led
    if leader is None or leader.cut:
        return
    if broker == state.leader and leader.slow:
        dropped = tuple(one for one in state.in_sync if one != broker)
    else:
        replica = state.of(broker)
        dropped = (broker,) if broker != state.leader and replica.in_sync and replica.slow else ()
    if dropped:
        after = _removed(config, state, dropped)
        yield ModelEvent(ModelAction.SHRINK, broker), advance_high_watermark(config, after, state.leader)


def _noticed(config: ModelConfig, state: ModelPartition, broker: int) -> Transitions:
    """The controller removes an unreachable broker from the in-sync set, unless it is the last there and ELR is off."""
    replica = state.of(broker)
    stays = not config.elr and state.in_sync == (broker,)
    if broker != state.leader and (stays or not replica.in_sync):
        return
    after = state if stays or not replica.in_sync else _removed(config, state, (broker,))
    if broker != state.leader:
        # A cut-off leader does not learn of this.
        listens = after.led is not None and not after.led.cut
        yield (
            ModelEvent(ModelAction.NOTICE, broker),
            advance_high_watermark(config, after, after.leader) if listens else after,
        )
        return
    after = after._replace(leader=0, last=broker if config.elr and not after.in_sync else 0)
    heirs = [one for one in after.brokers if after.of(one).reachable and _may_lead(config, after, one)]
    for heir in heirs:
        yield ModelEvent(ModelAction.NOTICE, broker, heir), _elected(after, heir)
    if not heirs:
        yield ModelEvent(ModelAction.NOTICE, broker), after


def _may_lead(config: ModelConfig, state: ModelPartition, broker: int) -> bool:
    """Among reachable brokers: one in sync; else, with ELR, an eligible one or the last leader; else any, if unclean
    election is allowed.
    """
    replica, in_sync = state.of(broker), state.in_sync
    if replica.in_sync:
        return True
    able = [one for one in state.brokers if state.of(one).reachable]
    if any(state.of(one).in_sync for one in able):
        return False
    if config.elr and not in_sync:
        eligible = [one for one in state.brokers if state.of(one).eligible]
        if not eligible and state.last in able:
            return broker == state.last
        if any(one in able for one in eligible):
            return broker in eligible
    return config.unclean


def _elected(state: ModelPartition, broker: int) -> ModelPartition:
    epoch, replica = state.epoch + 1, state.of(broker)
    clean = replica.in_sync
    for other in state.brokers:
        old = state.of(other)
        kept = old.in_sync if clean else other == broker
        eligible = old.eligible and other != broker and (clean or replica.eligible)
        state = state.with_replica(other, old._replace(told=0, in_sync=kept, eligible=eligible))
    leader = state.of(broker)._replace(leads=True, epoch=epoch)
    return state.with_replica(broker, leader)._replace(leader=broker, epoch=epoch, start=len(leader.log), last=0)


def _returned(config: ModelConfig, state: ModelPartition, broker: int) -> Transitions:
    replica = state.of(broker)
    # The controller must have noticed the broker's absence. Without ELR the last in-sync replica stays in sync.
    missed = broker != state.leader and (not replica.in_sync or (not config.elr and state.in_sync == (broker,)))
    if not replica.up and missed:
        # The stop was not orderly, so ELR does not trust the log any more.
        eligible = replica.eligible and not config.elr
        yield (
            ModelEvent(ModelAction.RESTART, broker),
            state.with_replica(broker, replica._replace(up=True, eligible=eligible)),
        )
    if replica.up and replica.cut:
        yield ModelEvent(ModelAction.HEAL, broker), _healed(config, state, broker)
    if replica.up and replica.slow:
        yield ModelEvent(ModelAction.RECOVER, broker), state.with_replica(broker, replica._replace(slow=False))


def _healed(config: ModelConfig, state: ModelPartition, broker: int) -> ModelPartition:
    replica = state.of(broker)._replace(cut=False, view=0)
    if state.leader == broker:
        return advance_high_watermark(config, state.with_replica(broker, replica), broker)
    refused = replica.waiting
    replica = replica._replace(leads=False, waiting=())
    return state.with_replica(broker, replica).answered(refused, SendState.REFUSED)


def producer_transitions(config: ModelConfig, state: ModelPartition, *, faults: bool) -> Transitions:
    """Sends without fault. With `faults`: a lost response, or with acks=0 a lost record."""
    for record in _next_records(config, state):
        for broker in state.brokers:
            replica = state.of(broker)
            if replica.epoch < state.seen or not (replica.leads or broker == state.leader):
                continue
            if not replica.up:
                if config.acks is ProducerAcks.NONE and not faults:
                    yield (
                        ModelEvent(ModelAction.SEND, broker, record),
                        state.answered((record,), SendState.ACKNOWLEDGED),
                    )
                continue
            move = ModelEvent(ModelAction.UNANSWERED if faults else ModelAction.SEND, broker, record)
            after = _unanswered(config, state, broker, record) if faults else _sent(config, state, broker, record)
            if after != state:
                yield move, after


def producer_timeout_transitions(state: ModelPartition) -> Transitions:
    """A producer that waits for a cut-off leader turns to the new one."""
    for broker in state.brokers:
        replica = state.of(broker)
        if replica.waiting and state.leader not in (0, broker):
            after = state.with_replica(broker, replica._replace(waiting=())).answered(
                replica.waiting, SendState.REFUSED
            )
            yield ModelEvent(ModelAction.GIVE_UP, broker), after._replace(seen=state.epoch)


def _next_records(config: ModelConfig, state: ModelPartition) -> list[int]:
    again = [at for at, status in enumerate(state.sent, 1) if status == SendState.REFUSED] if config.retries else []
    fresh = [at for at, status in enumerate(state.sent, 1) if status == SendState.NOT_YET]
    busy = SendState.WAITING in state.sent or bool(again)
    return again[:1] + (fresh[:1] if config.in_flight or not busy else [])


def _takes(config: ModelConfig, state: ModelPartition, broker: int, record: int) -> bool:
    """Whether this leader accepts the record, or already has it."""
    replica = state.of(broker)
    in_sync = replica.view if replica.cut or state.leader != broker else len(state.in_sync)
    if config.acks is ProducerAcks.ALL and in_sync < config.effective_min_insync:
        return False
    if not config.idempotent or replica.holds(record):
        return True
    # A sequence gap is refused. A gap that the cluster lost is passed with a new producer epoch (KIP-360).
    return all(replica.holds(one) or state.sent[one - 1] == SendState.ACKNOWLEDGED for one in range(1, record))


def _written(config: ModelConfig, state: ModelPartition, broker: int, record: int) -> ModelPartition:
    replica = state.of(broker)
    if not (config.idempotent and replica.holds(record)):
        replica = append_log(
            config, replica, replica._replace(log=(*replica.log, ModelLogEntry(record, replica.epoch)))
        )
    return state.with_replica(broker, replica)._replace(seen=max(state.seen, replica.epoch))


def _sent(config: ModelConfig, state: ModelPartition, broker: int, record: int) -> ModelPartition:
    if not _takes(config, state, broker, record):
        return state.answered((record,), SendState.REFUSED) if config.in_flight else state
    state = _written(config, state, broker, record)
    if config.acks is not ProducerAcks.ALL:
        return advance_high_watermark(config, state.answered((record,), SendState.ACKNOWLEDGED), broker)
    replica = state.of(broker)
    state = state.with_replica(broker, replica._replace(waiting=(*replica.waiting, record)))
    return advance_high_watermark(config, state.answered((record,), SendState.WAITING), broker)


def _unanswered(config: ModelConfig, state: ModelPartition, broker: int, record: int) -> ModelPartition:
    if config.acks is ProducerAcks.NONE:
        return state.answered((record,), SendState.ACKNOWLEDGED)
    if not _takes(config, state, broker, record):
        return state
    return advance_high_watermark(
        config, _written(config, state, broker, record).answered((record,), SendState.REFUSED), broker
    )


def consumer_transitions(config: ModelConfig, state: ModelPartition) -> Transitions:
    reader, leader = state.reader, state.led
    if reader is None:
        return
    free = not reader.hand and leader is not None and not leader.cut
    if free and leader is not None and reader.place < state.first and config.reset is not AutoOffsetReset.NONE:
        if _tells_reset(config, state, leader):
            to = state.first if config.reset is AutoOffsetReset.EARLIEST else leader.high
            yield ModelEvent(ModelAction.SEEK, state.leader), _with(state, reader._replace(place=to))
    elif free and leader is not None and reader.place < leader.high:
        record = leader.log[reader.place].record
        yield (
            ModelEvent(ModelAction.POLL, state.leader, record),
            _with(state, reader._replace(place=reader.place + 1, hand=record)),
        )
    if reader.hand and (config.commit is not CommitMode.BEFORE or reader.committed == reader.place):
        handled = tuple(count + (at == reader.hand) for at, count in enumerate(reader.handled, 1))
        committed = reader.place if config.commit is CommitMode.WITH_RESULTS else reader.committed
        after = reader._replace(hand=0, handled=handled, committed=committed)
        yield ModelEvent(ModelAction.HANDLE, 0, reader.hand), _with(state, after)
    may = {CommitMode.AUTO: True, CommitMode.BEFORE: bool(reader.hand), CommitMode.AFTER: not reader.hand}.get(
        config.commit
    )
    if may and reader.committed != reader.place != NO_OFFSET:
        yield ModelEvent(ModelAction.COMMIT), _with(state, reader._replace(committed=reader.place))


def _tells_reset(config: ModelConfig, state: ModelPartition, leader: ModelReplica) -> bool:
    """A new leader reports no end offset before its high watermark reaches the start of its epoch (KIP-207)."""
    old = config.truncation is TruncationMode.HIGH_WATERMARK
    return config.reset is AutoOffsetReset.EARLIEST or old or leader.high >= state.start


def _with(state: ModelPartition, reader: ModelConsumer) -> ModelPartition:
    return state._replace(reader=reader)
