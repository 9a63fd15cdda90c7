"""What a producer and a consumer do. Pure.

The producer numbers its records and sends them in that order; what was refused or not answered it sends again. The
consumer reads below the leader's high watermark, one record at a time.
"""

from __future__ import annotations

from twinshore.loss.partition import NOWHERE, Deed, Entry, Move, Partition, Reader, Replica, Sent
from twinshore.loss.replication import Moved, appended, settled
from twinshore.loss.settings import Acks, Commit, Reset, Setup, Truncation


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
