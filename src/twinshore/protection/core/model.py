"""Values of protection: levels, what each side answered, what the mirror says, and what a gate asks for.

With protection, an acknowledgement means that the home and the twin have the record. A *gate* holds the answer to a
write until the twin has it: the proxy holds Produce responses, the Python library holds delivery reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from twinshore.config.model import FIRST_TERM
from twinshore.kafka.protocol.error_codes import Code


class ProtectionLevel(StrEnum):
    """`ASYNC`: acknowledged by the home. `SYNC`: by both sides; by the home alone once the twin is away and that is
    written down. `STRICT`: by both sides, always.
    """

    ASYNC = "async"
    SYNC = "sync"
    STRICT = "strict"


class AfterFailover(StrEnum):
    """What a promoted twin does, which has no twin of its own yet: acknowledge alone, or refuse writes."""

    ALONE = "alone"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class ProtectionSettings:
    """`alone_after_s`: how long a `SYNC` gate waits for the twin before it acknowledges alone. `stalled_after_s`: an
    answer held so long shows that nothing is replicated, and writes are refused before they are sent. `ttl_s`: how long
    a written permission to acknowledge alone holds.
    """

    level: ProtectionLevel
    alone_after_s: float = 5.0
    stalled_after_s: float = 3.0
    ttl_s: float = 10.0


@dataclass(frozen=True, slots=True)
class SideView:
    """What a side's leader answered of a partition, asked and heard by the gate's clock. `epoch`: the leader's."""

    topic_id: str
    epoch: int
    watermark: int
    asked_s: float
    heard_s: float


@dataclass(frozen=True, slots=True)
class ReachedEpoch:
    """What the mirror says of a partition: the twin `target_id` is a copy of `source_id`, and has a record of the
    source's leader epoch `epoch`. `is_stopped`: an incident stops the partition. `term`: the home's.
    """

    source_id: str
    target_id: str
    epoch: int
    is_stopped: bool = False
    term: int = FIRST_TERM


class ReadFrom(StrEnum):
    """What consumers of a protected topic are shown: all that the home has, or what both sides have."""

    HOME = "home"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class ReadEnd:
    """Both sides have the home's records below `offset` that are of leader epochs up to `epoch`. -1: nothing is known
    to be on both.
    """

    offset: int = -1
    epoch: int = -1


class WaitCause(StrEnum):
    """Why a write is not confirmed."""

    REPLICATION = "the twin does not have it yet"
    TWIN_AWAY = "the twin does not answer"
    HOME_AWAY = "the home does not answer"
    NO_TWIN = "the partition has no twin"
    STOPPED = "replication of the partition is stopped"
    EPOCH = "the mirror has not reached the home's leader epoch"
    IDENTITY = "a topic was deleted and created again"


class GateState(StrEnum):
    """What an acknowledgement of a partition means now. `CATCHING_UP`: acknowledgements wait again, and the twin still
    lacks records that were acknowledged alone. `STALLED`: nothing is replicated, so writes are refused unsent.
    """

    PROTECTED = "protected"
    CATCHING_UP = "catching up"
    STALLED = "stalled"
    ALONE = "alone"


class ProtectionIncidentKind(StrEnum):
    TOO_EARLY = "too early"
    WATERMARK_FELL = "watermark fell"


@dataclass(frozen=True, slots=True)
class Confirm:
    """Pass the answer on. `is_alone`: only the home is known to have the record."""

    write: int
    is_alone: bool = False


@dataclass(frozen=True, slots=True)
class RefuseWrite:
    """Answer with `code`, which makes clients try again: the home may have the record."""

    write: int
    code: Code
    cause: WaitCause


@dataclass(frozen=True, slots=True)
class WriteAlone:
    """Write down outside the home that acknowledgements from offset `since` on may be the home's alone."""

    since: int
    cause: WaitCause


@dataclass(frozen=True, slots=True)
class ClearAlone:
    """Remove what `WriteAlone` wrote: the twin has all that was acknowledged alone."""


@dataclass(frozen=True, slots=True)
class ReportProtection:
    """Report an incident at the partition's `offset`."""

    kind: ProtectionIncidentKind
    offset: int


@dataclass(frozen=True, slots=True)
class AskEpochEnd:
    """Ask the home's leader of `home_epoch` where `epoch` ends in its log."""

    topic_id: str
    epoch: int
    home_epoch: int


GateCommand = Confirm | RefuseWrite | WriteAlone | ClearAlone | ReportProtection | AskEpochEnd
