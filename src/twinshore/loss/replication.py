"""What brokers, their controller, producers and consumers do: fetch, cut, shrink, elect, come back, send and read.
Pure.

Rules are Kafka's in KRaft mode, with leader epochs, unless the setup says `high-watermark`. With `elr`, a replica that
leaves the in-sync set while fewer than `min.insync.replicas` stay remains eligible, and the high watermark rests.

The producer numbers its records and sends them in that order; what was refused or not answered it sends again. The
consumer reads below the leader's high watermark, one record at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from twinshore.loss.partition import NOWHERE, Deed, Entry, Move, Partition, Reader, Replica, Sent
from twinshore.loss.settings import Acks, Commit, Flush, Reset, Setup, Truncation

Moved = Iterator[tuple[Move, Partition]]


def replication(setup: Setup, state: Partition) -> Moved:
    for broker in state.brokers:
        replica = state.of(broker)
        if replica.reachable and broker != state.leader:
            if setup.truncation is Truncation.HIGH_WATERMARK and state.leader and replica.epoch < state.epoch:
                yield Move(Deed.FOLLOW, broker), _followed(state, broker)
            elif _can_fetch(state, broker):
                yield Move(Deed.FETCH, broker), _fetched(setup, state, broker)
        yield from _shrunk(setup, state, broker)
        if not replica.reachable:
            yield from _noticed(setup, state, broker)
        elif not state.leader and _may_lead(setup, state, broker):
            yield Move(Deed.ELECT, broker), _elected(state, broker)
        yield from _returned(setup, state, broker)


def settled(setup: Setup, state: Partition, broker: int) -> Partition:
    """The leader moves its high watermark, and answers the producers whose records are below it."""
    leader = state.of(broker)
    isolated = leader.cut or state.leader != broker
    in_sync = leader.view if isolated else len(state.in_sync)
    if not setup.elr or in_sync >= setup.needed:
        # Who is cut off hears no fetch: only where it was alone in sync its own end is enough.
        ends = [] if isolated else [state.of(other).told for other in state.in_sync if other != broker]
        high = leader.high if isolated and in_sync > 1 else min([len(leader.log), *ends])
        leader = leader._replace(high=max(leader.high, high))
    done = tuple(one for one in leader.waiting if any(entry.record == one for entry in leader.log[: leader.high]))
    leader = leader._replace(waiting=tuple(one for one in leader.waiting if one not in done))
    # Too few in sync by now: the producer hears NOT_ENOUGH_REPLICAS_AFTER_APPEND, though the record is there.
    status = Sent.ACKNOWLEDGED if in_sync >= setup.needed else Sent.REFUSED
    return state.with_replica(broker, leader).answered(done, status)


def appended(setup: Setup, replica: Replica, log: Replica) -> Replica:
    """`replica` with the log of `log`; what is flushed at once is on disk."""
    flushed = len(log.log) if setup.flush is Flush.EACH else replica.flushed
    return replica._replace(log=log.log, flushed=flushed)


def _followed(state: Partition, broker: int) -> Partition:
    """Before KIP-101: whoever becomes a follower cuts its log to the high watermark that it knows."""
    replica = state.of(broker)
    return state.with_replica(broker, replica.cut_to(replica.high)._replace(epoch=state.epoch, leads=False))


def _can_fetch(state: Partition, broker: int) -> bool:
    leader, replica = state.led, state.of(broker)
    return leader is not None and leader.reachable and not leader.slow and not replica.slow


def common(one: Replica, other: Replica) -> int:
    """Where two logs part. What leaders' epochs and their ends tell a follower, in as many rounds as it takes."""
    for at, (ours, theirs) in enumerate(zip(one.log, other.log, strict=False)):
        if ours != theirs:
            return at
    return min(len(one.log), len(other.log))


def _fetched(setup: Setup, state: Partition, broker: int) -> Partition:
    """The request tells the leader where the follower's log ends; the answer brings records and the high watermark."""
    leader, replica = state.of(state.leader), state.of(broker)
    by_epoch = setup.truncation is Truncation.EPOCH
    replica = replica.cut_to(common(replica, leader) if by_epoch else min(len(replica.log), len(leader.log)))
    end = len(replica.log)
    caught_up = end >= leader.high and end >= state.start
    replica = replica._replace(told=end, epoch=state.epoch, leads=False)
    if caught_up and not replica.in_sync:
        replica = replica._replace(in_sync=True, eligible=False)
    state = _eligible(setup, state.with_replica(broker, replica), ())
    state = settled(setup, state, state.leader)
    leader = state.of(state.leader)
    longer = replica._replace(log=replica.log + leader.log[end:])
    replica = appended(setup, state.of(broker), longer)
    return state.with_replica(broker, replica._replace(high=min(leader.high, len(replica.log))))


def _eligible(setup: Setup, state: Partition, left: tuple[int, ...]) -> Partition:
    """Who left the in-sync set stays eligible while too few are in it; once there are enough, nobody else is."""
    if not setup.elr:
        return state
    few = len(state.in_sync) < min(setup.min_insync, setup.replicas)
    for broker in state.brokers:
        replica = state.of(broker)
        eligible = few and not replica.in_sync and (replica.eligible or broker in left)
        if eligible != replica.eligible:
            state = state.with_replica(broker, replica._replace(eligible=eligible))
    return state


def _removed(setup: Setup, state: Partition, brokers: tuple[int, ...]) -> Partition:
    for broker in brokers:
        state = state.with_replica(broker, state.of(broker)._replace(in_sync=False))
    return _eligible(setup, state, brokers)


def _shrunk(setup: Setup, state: Partition, broker: int) -> Moved:
    """The leader drops who lags: one slow follower, or all where it is slow itself."""
    leader = state.led
    if leader is None or leader.cut:
        return
    if broker == state.leader and leader.slow:
        dropped = tuple(one for one in state.in_sync if one != broker)
    else:
        replica = state.of(broker)
        dropped = (broker,) if broker != state.leader and replica.in_sync and replica.slow else ()
    if dropped:
        after = _removed(setup, state, dropped)
        yield Move(Deed.SHRINK, broker), settled(setup, after, state.leader)


def _noticed(setup: Setup, state: Partition, broker: int) -> Moved:
    """The controller misses a broker: it leaves the in-sync set, unless it is the last one there and ELR is off."""
    replica = state.of(broker)
    stays = not setup.elr and state.in_sync == (broker,)
    if broker != state.leader and (stays or not replica.in_sync):
        return
    after = state if stays or not replica.in_sync else _removed(setup, state, (broker,))
    if broker != state.leader:
        # A leader that is cut off hears nothing of it.
        listens = after.led is not None and not after.led.cut
        yield Move(Deed.NOTICE, broker), settled(setup, after, after.leader) if listens else after
        return
    after = after._replace(leader=0, last=broker if setup.elr and not after.in_sync else 0)
    heirs = [one for one in after.brokers if after.of(one).reachable and _may_lead(setup, after, one)]
    for heir in heirs:
        yield Move(Deed.NOTICE, broker, heir), _elected(after, heir)
    if not heirs:
        yield Move(Deed.NOTICE, broker), after


def _may_lead(setup: Setup, state: Partition, broker: int) -> bool:
    """Of those that can be reached: one in sync; else, with ELR, one that is eligible, or else who led last; else,
    where unclean election is allowed, any."""
    replica, in_sync = state.of(broker), state.in_sync
    if replica.in_sync:
        return True
    able = [one for one in state.brokers if state.of(one).reachable]
    if any(state.of(one).in_sync for one in able):
        return False
    if setup.elr and not in_sync:
        eligible = [one for one in state.brokers if state.of(one).eligible]
        if not eligible and state.last in able:
            return broker == state.last
        if any(one in able for one in eligible):
            return broker in eligible
    return setup.unclean


def _elected(state: Partition, broker: int) -> Partition:
    epoch, replica = state.epoch + 1, state.of(broker)
    clean = replica.in_sync
    for other in state.brokers:
        old = state.of(other)
        kept = old.in_sync if clean else other == broker
        eligible = old.eligible and other != broker and (clean or replica.eligible)
        state = state.with_replica(other, old._replace(told=0, in_sync=kept, eligible=eligible))
    leader = state.of(broker)._replace(leads=True, epoch=epoch)
    return state.with_replica(broker, leader)._replace(leader=broker, epoch=epoch, start=len(leader.log), last=0)


def _returned(setup: Setup, state: Partition, broker: int) -> Moved:
    replica = state.of(broker)
    # The controller has to have missed it first; without ELR who was last in sync stays so all the same.
    missed = broker != state.leader and (not replica.in_sync or (not setup.elr and state.in_sync == (broker,)))
    if not replica.up and missed:
        # It did not stop in good order, so ELR does not trust its log any more.
        eligible = replica.eligible and not setup.elr
        yield Move(Deed.RESTART, broker), state.with_replica(broker, replica._replace(up=True, eligible=eligible))
    if replica.up and replica.cut:
        yield Move(Deed.HEAL, broker), _healed(setup, state, broker)
    if replica.up and replica.slow:
        yield Move(Deed.RECOVER, broker), state.with_replica(broker, replica._replace(slow=False))


def _healed(setup: Setup, state: Partition, broker: int) -> Partition:
    replica = state.of(broker)._replace(cut=False, view=0)
    if state.leader == broker:
        return settled(setup, state.with_replica(broker, replica), broker)
    refused = replica.waiting
    replica = replica._replace(leads=False, waiting=())
    return state.with_replica(broker, replica).answered(refused, Sent.REFUSED)


def sends(setup: Setup, state: Partition, *, faults: bool) -> Moved:
    """Without `faults` what goes well; with them, how an answer is lost, or with acks=0 a record."""
    for record in _next_records(setup, state):
        for broker in state.brokers:
            replica = state.of(broker)
            if replica.epoch < state.seen or not (replica.leads or broker == state.leader):
                continue
            if not replica.up:
                if setup.acks is Acks.NONE and not faults:
                    yield Move(Deed.SEND, broker, record), state.answered((record,), Sent.ACKNOWLEDGED)
                continue
            move = Move(Deed.UNANSWERED if faults else Deed.SEND, broker, record)
            after = _unanswered(setup, state, broker, record) if faults else _sent(setup, state, broker, record)
            if after != state:
                yield move, after


def waits(state: Partition) -> Moved:
    """A producer that waits for a leader which is cut off turns to the new one."""
    for broker in state.brokers:
        replica = state.of(broker)
        if replica.waiting and state.leader not in (0, broker):
            after = state.with_replica(broker, replica._replace(waiting=())).answered(replica.waiting, Sent.REFUSED)
            yield Move(Deed.GIVE_UP, broker), after._replace(seen=state.epoch)


def _next_records(setup: Setup, state: Partition) -> list[int]:
    again = [at for at, status in enumerate(state.sent, 1) if status == Sent.REFUSED] if setup.retries else []
    fresh = [at for at, status in enumerate(state.sent, 1) if status == Sent.NOT_YET]
    busy = Sent.WAITING in state.sent or bool(again)
    return again[:1] + (fresh[:1] if setup.in_flight or not busy else [])


def _takes(setup: Setup, state: Partition, broker: int, record: int) -> bool:
    """Whether this leader appends the record, or has it already."""
    replica = state.of(broker)
    in_sync = replica.view if replica.cut or state.leader != broker else len(state.in_sync)
    if setup.acks is Acks.ALL and in_sync < setup.needed:
        return False
    if not setup.idempotent or replica.holds(record):
        return True
    # A gap in the sequence is refused. One that the cluster lost is passed with a new producer epoch (KIP-360).
    return all(replica.holds(one) or state.sent[one - 1] == Sent.ACKNOWLEDGED for one in range(1, record))


def _written(setup: Setup, state: Partition, broker: int, record: int) -> Partition:
    replica = state.of(broker)
    if not (setup.idempotent and replica.holds(record)):
        replica = appended(setup, replica, replica._replace(log=(*replica.log, Entry(record, replica.epoch))))
    return state.with_replica(broker, replica)._replace(seen=max(state.seen, replica.epoch))


def _sent(setup: Setup, state: Partition, broker: int, record: int) -> Partition:
    if not _takes(setup, state, broker, record):
        return state.answered((record,), Sent.REFUSED) if setup.in_flight else state
    state = _written(setup, state, broker, record)
    if setup.acks is not Acks.ALL:
        return settled(setup, state.answered((record,), Sent.ACKNOWLEDGED), broker)
    replica = state.of(broker)
    state = state.with_replica(broker, replica._replace(waiting=(*replica.waiting, record)))
    return settled(setup, state.answered((record,), Sent.WAITING), broker)


def _unanswered(setup: Setup, state: Partition, broker: int, record: int) -> Partition:
    if setup.acks is Acks.NONE:
        return state.answered((record,), Sent.ACKNOWLEDGED)
    if not _takes(setup, state, broker, record):
        return state
    return settled(setup, _written(setup, state, broker, record).answered((record,), Sent.REFUSED), broker)


def reads(setup: Setup, state: Partition) -> Moved:
    reader, leader = state.reader, state.led
    if reader is None:
        return
    free = not reader.hand and leader is not None and not leader.cut
    if free and leader is not None and reader.place < state.first and setup.reset is not Reset.NONE:
        if _tells_reset(setup, state, leader):
            to = state.first if setup.reset is Reset.EARLIEST else leader.high
            yield Move(Deed.SEEK, state.leader), _with(state, reader._replace(place=to))
    elif free and leader is not None and reader.place < leader.high:
        record = leader.log[reader.place].record
        yield Move(Deed.POLL, state.leader, record), _with(state, reader._replace(place=reader.place + 1, hand=record))
    if reader.hand and (setup.commit is not Commit.BEFORE or reader.committed == reader.place):
        handled = tuple(count + (at == reader.hand) for at, count in enumerate(reader.handled, 1))
        committed = reader.place if setup.commit is Commit.TOGETHER else reader.committed
        after = reader._replace(hand=0, handled=handled, committed=committed)
        yield Move(Deed.HANDLE, 0, reader.hand), _with(state, after)
    may = {Commit.AUTO: True, Commit.BEFORE: bool(reader.hand), Commit.AFTER: not reader.hand}.get(setup.commit)
    if may and reader.committed != reader.place != NOWHERE:
        yield Move(Deed.COMMIT), _with(state, reader._replace(committed=reader.place))


def _tells_reset(setup: Setup, state: Partition, leader: Replica) -> bool:
    """A new leader tells no end before its high watermark has reached where its epoch begins (KIP-207)."""
    old = setup.truncation is Truncation.HIGH_WATERMARK
    return setup.reset is Reset.EARLIEST or old or leader.high >= state.start


def _with(state: Partition, reader: Reader) -> Partition:
    return state._replace(reader=reader)
