"""One partition at one moment: its replicas, who leads, what its clients know, and which harm it shows; and the names
of what can happen to it. Pure.

Brokers and records are numbered from 1; 0 is nobody, or nothing. All values are tuples, so that a search can keep them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum, StrEnum
from itertools import pairwise
from typing import NamedTuple

from twinshore.loss.settings import Commit, Fault, Flush, Harm, Reset, Setup


class Deed(StrEnum):
    SEND = "send"
    FETCH = "fetch"
    FOLLOW = "follow"
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


FAULTS = {
    Deed.CRASH: Fault.CRASH,
    Deed.POWER: Fault.POWER,
    Deed.CUT: Fault.CUT,
    Deed.SLOW: Fault.SLOW,
    Deed.UNANSWERED: Fault.ANSWER,
    Deed.READER: Fault.READER,
    Deed.REST: Fault.REST,
    Deed.DELETE: Fault.RETENTION,
}


class Move(NamedTuple):
    """`broker` does it, or suffers it. `other`: the record that is sent, or the broker that is elected."""

    deed: Deed
    broker: int = 0
    other: int = 0

    @property
    def is_fault(self) -> bool:
        return self.deed in FAULTS


NOWHERE = -1


class Entry(NamedTuple):
    record: int
    epoch: int


class Sent(IntEnum):
    """How a record stands with its producer. REFUSED: it heard an error, or nothing; it may try again."""

    NOT_YET = 0
    WAITING = 1
    ACKNOWLEDGED = 2
    REFUSED = 3


class Replica(NamedTuple):
    """`high`: the high watermark as it knows it. `flushed`: entries on disk. `epoch`: the latest leader's it heard of.

    `leads`: it takes itself for the leader; one that is cut off does so for longer than the controller. `view`: how
    many were in sync when it was cut off. `told`: its log's end, as the leader knows it from its last fetch.
    `eligible`: it may lead though it is not in sync (ELR). `waiting`: records whose producer waits for its answer.
    """

    log: tuple[Entry, ...] = ()
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
        """By brokers and the controller."""
        return self.up and not self.cut

    def holds(self, record: int) -> bool:
        return any(entry.record == record for entry in self.log)

    def cut_to(self, end: int) -> Replica:
        return self._replace(log=self.log[:end], flushed=min(self.flushed, end), high=min(self.high, end))


class Reader(NamedTuple):
    """`place`: the offset it reads next, `committed`: where another one would go on; both may be NOWHERE. `hand`: the
    record that it has and did not handle yet."""

    place: int
    committed: int
    hand: int
    handled: tuple[int, ...]


class Partition(NamedTuple):
    """`leader`: by the controller. `start`: where its epoch begins in the log. `last`: who led last, where ELR is on
    and nobody may lead. `seen`: the latest epoch that the producer knows. `first`: retention has deleted all below this
    offset; logs keep it here, as their offsets do not change."""

    replicas: tuple[Replica, ...]
    leader: int
    epoch: int
    start: int
    last: int
    sent: tuple[int, ...]
    seen: int
    reader: Reader | None
    first: int = 0

    def of(self, broker: int) -> Replica:
        return self.replicas[broker - 1]

    def with_replica(self, broker: int, replica: Replica) -> Partition:
        replicas = list(self.replicas)
        replicas[broker - 1] = replica
        return Partition(tuple(replicas), *self[1:])

    @property
    def brokers(self) -> range:
        return range(1, len(self.replicas) + 1)

    @property
    def in_sync(self) -> tuple[int, ...]:
        return tuple([broker for broker, one in enumerate(self.replicas, 1) if one.in_sync])

    @property
    def led(self) -> Replica | None:
        """The leader's replica, where the controller has one and it runs."""
        leader = self.replicas[self.leader - 1] if self.leader else None
        return leader if leader is not None and leader.up else None

    @property
    def acknowledged(self) -> tuple[int, ...]:
        return tuple(at for at, status in enumerate(self.sent, 1) if status == Sent.ACKNOWLEDGED)

    def answered(self, records: tuple[int, ...], status: Sent) -> Partition:
        """These records stand so with their producer now."""
        if not records:
            return self
        sent = tuple(int(status) if at in records else old for at, old in enumerate(self.sent, 1))
        return self._replace(sent=sent)


def begin(setup: Setup) -> Partition:
    """Broker 1 leads, and all are in sync but those that are away. Where all are there nothing is written yet. Where
    some are away, record 1 was acknowledged before it begins: whoever is in sync has it, and the others do not."""
    there, held = setup.replicas - setup.away, 1 if setup.away else 0
    flushed = held if setup.flush is Flush.EACH else 0
    whole = Replica((Entry(1, 0),) * held, flushed, held, told=held)
    gone = Replica(up=False, in_sync=False)
    replicas = (whole._replace(leads=True), *[whole] * (there - 1), *[gone] * setup.away)
    sent = (int(Sent.ACKNOWLEDGED),) * held + (int(Sent.NOT_YET),) * setup.records
    # Its consumer is there from the beginning on; a group with a reset has committed nothing yet.
    committed = 0 if setup.reset is Reset.NONE or setup.commit is Commit.TOGETHER else NOWHERE
    reader = None if setup.commit is Commit.NONE else Reader(0, committed, 0, (0,) * len(sent))
    return Partition(replicas, 1, 0, 0, 0, sent, 0, reader)


class Damage(NamedTuple):
    harm: Harm
    record: int
    says: str


def damages(state: Partition) -> Iterator[Damage]:
    """By the log of the leader that the controller has, if it runs: followers will cut theirs to it."""
    leader = state.led
    if leader is None:
        return
    records = [entry.record for entry in leader.log]
    acknowledged = state.acknowledged
    for record in acknowledged:
        count = records.count(record)
        if count == 0:
            yield Damage(Harm.LOST, record, f"Record {record} was acknowledged, and the leader's log does not have it")
        if count > 1:
            yield Damage(Harm.TWICE, record, f"Record {record} is in the leader's log {count} times")
    firsts = [record for at, record in enumerate(records) if record in acknowledged and record not in records[:at]]
    for one, other in pairwise(firsts):
        if one > other:
            yield Damage(Harm.REORDERED, other, f"Record {other} stands behind record {one}, which was sent later")
    yield from _read(state, records)


def _read(state: Partition, records: list[int]) -> Iterator[Damage]:
    reader = state.reader
    if reader is None:
        return
    for at, record in enumerate(records[: max(reader.place, state.first)]):
        if record in state.acknowledged and not reader.handled[record - 1] and reader.hand != record:
            passed = f"Record {record} is in the log, and the group has passed it unhandled"
            deleted = f"Record {record} was deleted by retention, and the group had not handled it"
            yield Damage(Harm.LOST, record, deleted if at < state.first else passed)
    for record, count in enumerate(reader.handled, 1):
        if count > 1:
            yield Damage(Harm.TWICE, record, f"Record {record} was handled {count} times")
