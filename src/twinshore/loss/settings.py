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
    """Whether somebody reads, and when places are committed: at any moment once a record was handed out, and so on."""

    NONE = "none"
    AUTO = "auto"
    BEFORE = "before"
    AFTER = "after"


class Fault(StrEnum):
    """A `crash` keeps what the process wrote, `power` loses what is not on disk. `cut`: from brokers and controller,
    not from clients. `answer`: a request or its answer is lost. `reader`: the consumer's process dies."""

    CRASH = "crash"
    POWER = "power"
    CUT = "cut"
    SLOW = "slow"
    ANSWER = "answer"
    READER = "reader"


class Harm(StrEnum):
    LOST = "lost"
    TWICE = "twice"
    REORDERED = "reordered"


@dataclass(frozen=True, slots=True)
class Setup:
    """`elr`: eligible leader replicas (KIP-966). `in_flight`: the producer sends on without waiting for answers."""

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
