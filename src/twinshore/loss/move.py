"""The names of what can happen to a partition, and which of them are faults. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from twinshore.loss.settings import Fault


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
