"""What a partition and its clients may suffer. Pure."""

from __future__ import annotations

from twinshore.loss.clients import sends
from twinshore.loss.move import Deed, Move
from twinshore.loss.partition import NOWHERE, Partition, Sent
from twinshore.loss.replication import Moved
from twinshore.loss.settings import Commit, Fault, Reset, Setup


def faults(setup: Setup, state: Partition) -> Moved:
    for broker in state.brokers:
        replica = state.of(broker)
        if not replica.up:
            continue
        if Fault.CRASH in setup.faults:
            yield Move(Deed.CRASH, broker), _down(state, broker, len(replica.log))
        if Fault.POWER in setup.faults and replica.flushed < len(replica.log):
            yield Move(Deed.POWER, broker), _down(state, broker, replica.flushed)
        alone = len(state.replicas) == 1
        if Fault.CUT in setup.faults and not replica.cut and not alone:
            yield (
                Move(Deed.CUT, broker),
                state.with_replica(broker, replica._replace(cut=True, view=_view(state, broker))),
            )
        if Fault.SLOW in setup.faults and not replica.slow and not replica.cut and not alone:
            yield Move(Deed.SLOW, broker), state.with_replica(broker, replica._replace(slow=True))
    if Fault.ANSWER in setup.faults:
        yield from sends(setup, state, faults=True)
    yield from _of_reading(setup, state)


def _of_reading(setup: Setup, state: Partition) -> Moved:
    reader, leader = state.reader, state.led
    if reader is None:
        return
    if Fault.READER in setup.faults:
        yield Move(Deed.READER), state._replace(reader=reader._replace(place=reader.committed, hand=0))
    if setup.reset is Reset.NONE:
        return
    # Where the application keeps its place itself, brokers have none to forget.
    if Fault.REST in setup.faults and reader.committed != NOWHERE and setup.commit is not Commit.TOGETHER:
        gone = reader._replace(place=NOWHERE, committed=NOWHERE, hand=0)
        yield Move(Deed.REST), state._replace(reader=gone)
    if Fault.RETENTION in setup.faults and leader is not None and state.first < leader.high:
        yield Move(Deed.DELETE, 0, leader.log[state.first].record), state._replace(first=state.first + 1)


def _view(state: Partition, broker: int) -> int:
    return len(state.in_sync) if state.leader == broker else 0


def _down(state: Partition, broker: int, end: int) -> Partition:
    replica = state.of(broker)
    refused = replica.waiting
    down = replica.cut_to(end)._replace(up=False, cut=False, slow=False, leads=False, view=0, waiting=())
    return state.with_replica(broker, down).answered(refused, Sent.REFUSED)
