"""What the core of a pump wants done, as values. Each is carried out before the next is asked for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from twinshore.fleet import NamedPartition
from twinshore.mirror.lane.cutting import Hold
from twinshore.mirror.lane.fetch_book import FetchOrder
from twinshore.mirror.lane.orders import Carried, Handover, Stoppage, TrackOrder
from twinshore.mirror.lane.quota import Learnt
from twinshore.mirror.lane.resting import Rest
from twinshore.mirror.lane.runs import Marks
from twinshore.mirror.lane.track import Sent

if TYPE_CHECKING:
    from twinshore.mirror.core.source_flow import SourceFlow
    from twinshore.mirror.core.target_flow import TargetFlow

# -- to brokers


class EndsOf(NamedTuple):
    """Names the connection to a leader that only asks where logs end."""

    node: int


class Flight(NamedTuple):
    """A produce request; or markers with the question behind them; or, `asking`, the question before them, and where
    other twins end."""

    sent: list[Sent]
    sent_s: float
    marks: list[Marks]
    asking: bool = False
    rests: Sequence[Rest] = ()
    size: int = 0


class Send(NamedTuple):
    """Put this request on its way; `flow.written` is to be told once the kernel has all of it."""

    flow: TargetFlow
    flight: Flight


class Fetch(NamedTuple):
    """Ask the source; the answer is to be received into the buffer of `hold`."""

    flow: SourceFlow
    order: FetchOrder
    bytes_max: int
    wait_ms: int
    hold: Hold


class Receive(NamedTuple):
    """Look whether something has come of which nobody was woken."""

    flow: SourceFlow | TargetFlow


class Wake(NamedTuple):
    """Until so many bytes are there, counted from the oldest request that is unanswered, nobody need be woken."""

    flow: TargetFlow
    due_bytes: int


class Detach(NamedTuple):
    """Copy what the kernel has not taken: the buffers in which it lies are wanted elsewhere."""

    flow: TargetFlow


class HangUp(NamedTuple):
    """Close this connection."""

    flow: SourceFlow | TargetFlow


# -- to the errands


class Learn(NamedTuple):
    """Know what the twins of these partitions are called."""

    tracks: Sequence[TrackOrder]


class Dial(NamedTuple):
    """Open a connection to a broker: a line of the source, a leader on the target, or who asks for that one."""

    side: str
    node: int
    key: object


class AskRoutes(NamedTuple):
    """Ask both sides who leads what the lane carries."""


class Look(NamedTuple):
    """Look at these twins."""

    partitions: list[NamedPartition]


class Cut(NamedTuple):
    """Cut the twins of these partitions below the offsets."""

    before: dict[NamedPartition, int]


class MarkByUnits(NamedTuple):
    """Write these markers by closed units."""

    marks: list[Marks]


# -- to the desk


class SayReady(NamedTuple):
    """Every connection is there, or was tried."""


class Beat(NamedTuple):
    """What was carried and met since the last one, and the question for a longer grant, which counts from `asked_s` on
    the pump's own clock. The desk says that moment back, since several questions may be on their way."""

    carried: list[Carried]
    incidents: list[Stoppage]
    speed: dict[str, float]
    asked_s: float


class Used(NamedTuple):
    """What throttles were used for, for the desk to share them out anew."""

    used: dict[str, list[float]]


class Released(NamedTuple):
    """A partition stands still and is ours no more."""

    named: NamedPartition
    handover: Handover | None
    carried: Carried | None


class Pace(NamedTuple):
    """What quotas let through on one line. `stream`: which of the lines to a source's node; -1 for the target's one."""

    side: str
    node: int
    stream: int
    learnt: Learnt


class Done(NamedTuple):
    """The last word: where each partition stands. `unread_s`: so long a broker may still take what it was sent.
    `paces`: for the next pump's lines."""

    carried: list[Carried]
    incidents: list[Stoppage]
    handovers: list[Handover]
    speed: dict[str, float]
    unread_s: float
    paces: list[Pace]


Command = (
    Send
    | Fetch
    | Receive
    | Wake
    | Detach
    | HangUp
    | Learn
    | Dial
    | AskRoutes
    | Look
    | Cut
    | MarkByUnits
    | SayReady
    | Beat
    | Used
    | Released
    | Done
)
