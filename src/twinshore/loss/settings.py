"""What a topic, its producer and its consumer are set to, and what a partition may suffer. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


class Flush(StrEnum):
    """When a record is on disk: whenever the system writes it, or before anybody hears of it (`flush.messages=1`)."""

    NEVER = "never"
    EACH = "each"


class Truncation(StrEnum):
    """What a follower cuts its log by: its own high watermark, or the epochs of leaders since KIP-101."""

    HIGH_WATERMARK = "high-watermark"
    EPOCH = "epoch"


class Commit(StrEnum):
    """Whether somebody reads, and when places are committed: at any moment once a record was handed out, and so on.
    `together`: the place is kept with the result, in one transaction of the application's own store."""

    NONE = "none"
    AUTO = "auto"
    BEFORE = "before"
    AFTER = "after"
    TOGETHER = "together"


class Reset(StrEnum):
    """Where a consumer without a place goes (auto.offset.reset). `none`: its place is never gone."""

    NONE = "none"
    EARLIEST = "earliest"
    LATEST = "latest"


class Fault(StrEnum):
    """A `crash` keeps what the process wrote, `power` loses what is not on disk. `cut`: from brokers and controller,
    not from clients. `answer`: a request or its answer is lost. `reader`: the consumer's process dies. `rest`: its
    group is away until its place is forgotten; `retention`: the oldest record is deleted. Both need a reset."""

    CRASH = "crash"
    POWER = "power"
    CUT = "cut"
    SLOW = "slow"
    ANSWER = "answer"
    READER = "reader"
    REST = "rest"
    RETENTION = "retention"


class Harm(StrEnum):
    LOST = "lost"
    TWICE = "twice"
    REORDERED = "reordered"


@dataclass(frozen=True, slots=True)
class Setup:
    """`elr`: eligible leader replicas (KIP-966). `in_flight`: the producer sends on without waiting for answers.
    `away`: how many replicas are down, and out of sync, when it begins; a record more was acknowledged before.
    `capped`: min.insync.replicas beyond the number of replicas asks for all of them, as since Kafka 3.7; before,
    nothing with acks=all is taken then."""

    replicas: int = 3
    records: int = 2
    acks: Acks = Acks.ALL
    min_insync: int = 1
    unclean: bool = False
    flush: Flush = Flush.NEVER
    truncation: Truncation = Truncation.EPOCH
    elr: bool = False
    idempotent: bool = True
    retries: bool = True
    in_flight: bool = True
    commit: Commit = Commit.NONE
    faults: frozenset[Fault] = frozenset(Fault)
    away: int = 0
    reset: Reset = Reset.NONE
    capped: bool = True

    @property
    def able(self) -> frozenset[Fault]:
        """Of the faults those that can happen: some need a consumer, some a reset, some a second broker. Where the
        application keeps its place itself, no broker forgets it."""
        never = set[Fault]()
        if self.commit is Commit.NONE:
            never |= {Fault.READER}
        if self.commit is Commit.NONE or self.reset is Reset.NONE:
            never |= {Fault.REST, Fault.RETENTION}
        if self.commit is Commit.TOGETHER:
            never |= {Fault.REST}
        if self.replicas == 1:
            never |= {Fault.CUT, Fault.SLOW}
        return self.faults - never

    @property
    def needed(self) -> int:
        """How many in sync the leader asks for."""
        return min(self.min_insync, self.replicas) if self.capped else self.min_insync
