"""Which partitions' blanks go into the next marker request, and what its answer proves.

Pure over tracks; the lane hands the requests out and is told the answers.

Where does the log end? Asked of twins at rest, and before what no sequence guards.

Where the source writes no more, nothing of ours meets what somebody else writes to its twin, nor an end that the target
lost. So the ends of twins to which nothing goes are asked for now and then, all of a leader's in one request. And where
a batch is the next that goes, but the broker could not tell that it does not fit, the end is asked for first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from twinshore.config.incidents import IncidentKind, IncidentSide
from twinshore.config.model import NamedPartition
from twinshore.config.sentences import followed
from twinshore.kafka.protocol.errors import Code, describe
from twinshore.replication.task.core.batches import Blank, Halt
from twinshore.replication.task.core.config import Stoppage
from twinshore.replication.task.core.partition import Phase, Track, unmarked
from twinshore.replication.task.core.position import LOOKS_MAX, RIGHTS, Marked, Means, Run, meaning

MARKERS_MAX = 4000  # In one request: some tens of milliseconds of a broker's time.
_CLUSTER = "ClusterAction or Alter on the cluster"
_GRANTS: dict[int, str] = {
    Code.CLUSTER_AUTHORIZATION_FAILED: f"Grant {_CLUSTER}",
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        f'Grant Describe and Write on transactional ids that begin with "twinshore.", or {_CLUSTER}'
    ),
}
FENCED = frozenset({Code.TRANSACTION_COORDINATOR_FENCED, Code.INVALID_PRODUCER_EPOCH})


class Marks(NamedTuple):
    """One partition of a marker request on its way."""

    track: Track
    blank: Blank

    @property
    def led(self) -> int:
        """The epoch in which the source is led, as nothing else of its partition is on its way."""
        return self.track.source.led

    @property
    def run(self) -> Run:
        named = self.track.order.twin_named
        return Run(named.topic, named.partition, self.blank.end - self.blank.base, self.track.fence, self.track.led[1])


def next_runs(ready: dict[Track, None], now_s: float, each: int = MARKERS_MAX) -> list[Marks]:
    """What the next request to a leader marks, in `each` partition so much at most; each of them waits for the answer
    before anything else."""
    found: list[Marks] = []
    room = MARKERS_MAX
    for track in list(ready):
        if not room:
            break
        blank = track.waiting[0][0] if track.waiting and track.phase is Phase.RUNNING else None
        if isinstance(blank, Blank) and track.may_mark():
            del ready[track]
            run = track.send_blank(min(room, each), now_s)
            room -= run.end - run.base
            found.append(Marks(track, run))
    return found


def standing(asked: Iterable[Marks], ends: Iterable[Marked]) -> tuple[list[Marks], list[Marks]]:
    """Of the runs whose logs' ends were asked for: those that may go, since the twin still ends where they begin and is
    led as it was; and the rest, where only a look can tell what happened."""
    found = by_partition(ends)
    go: list[Marks] = []
    rest: list[Marks] = []
    for one in asked:
        answer = found.get(one.track.order.twin_named)
        stands = answer is not None and answer.error == 0 and answer.end == one.blank.base
        (go if stands else rest).append(one)
    return go, rest


def running(due: Iterable[Marks]) -> tuple[list[Marks], list[Marks]]:
    """Of the runs that may go: those whose partitions nothing befell meanwhile; and the rest, which go no more."""
    marks = list(due)
    return [one for one in marks if one.track.phase is Phase.RUNNING], [
        one for one in marks if one.track.phase is not Phase.RUNNING
    ]


def by_partition(answers: Iterable[Marked]) -> dict[NamedPartition, Marked]:
    return {NamedPartition(answer.topic, answer.partition): answer for answer in answers}


def landed(answer: Marked | None, blank: Blank) -> bool:
    """All markers are in, and nothing else is: the log ends exactly where they do."""
    return answer is not None and answer.error == 0 and answer.end == blank.end


def refused(answer: Marked | None, blank: Blank, refusals: int) -> Halt | None:
    """Why a run that did not land as it should stops the partition; None: a look at the twin tells how to go on."""
    if answer is None:
        return None
    where = f"offsets {blank.base} to {blank.end - 1}"
    if answer.end > blank.end:
        sentence = f"after markers for {where} the twin ends at {answer.end}: someone else writes there"
        return Halt(IncidentKind.POSITION_DISAGREEMENT, blank.base, answer.end, sentence)
    kind = describe(answer.error)
    if answer.error in RIGHTS:
        said = f"the target refuses markers for {where}: {kind.sentence}"
        sentence = followed(said, _GRANTS.get(answer.error, kind.hint))
        return Halt(IncidentKind.RIGHTS_LOST, blank.base, blank.end, sentence, IncidentSide.TARGET)
    if answer.error in FENCED and refusals >= LOOKS_MAX:
        sentence = f"the twin keeps refusing markers for {where} as fenced: another pump of this link is at work"
        return Halt(IncidentKind.POSITION_DISAGREEMENT, blank.base, blank.end, sentence)
    if answer.error in FENCED or meaning(answer.error) is not Means.NEVER:
        return None
    return Halt(
        IncidentKind.REFUSED,
        blank.base,
        blank.end,
        f"the twin refuses markers for {where}: {kind.name}, {kind.sentence}",
        IncidentSide.TARGET,
    )


REST_S = 3.0
UNSEEN = -1


class Rest(NamedTuple):
    """A twin with nothing of ours on its way, as it was when its end was asked for."""

    track: Track
    end: int

    @property
    def run(self) -> Run:
        """No markers: only whose end is asked for, and in which leader epoch."""
        named = self.track.order.twin_named
        return Run(named.topic, named.partition, 0, 0, self.track.led[1])


def at_rest(tracks: Iterable[Track], node: int) -> list[Rest]:
    """The twins led by `node` to which nothing goes. A mapped twin may well hold what others write."""
    return [Rest(track, track.acked) for track in tracks if track.route.target == node and _rests(track)]


def unsure(ready: Iterable[Track], now_s: float, now_ms: int) -> list[Rest]:
    """Of the twins to which something waits to go: those whose ends must be seen first, each until it is answered."""
    found = [Rest(track, _end(track)) for track in ready if _stands(track) and _waits(track, now_s, now_ms)]
    for one in found:
        one.track.certain.asking = True
    return found


def look_again(asked: Iterable[Rest], answers: Iterable[Marked], now_s: float) -> tuple[bool, list[Stoppage]]:
    """Has the twins looked at that end elsewhere though nothing went there since. Returns whether some leader could not
    tell, so that leaders are to be looked up; and what is to be told, where that has lasted."""
    found = by_partition(answers)
    untold, told = False, list[Stoppage]()
    for track, end in asked:
        track.certain.asking = False
        answer = found.get(track.order.twin_named)
        seen = answer.end if answer is not None and not answer.error else UNSEEN
        untold |= seen == UNSEEN
        if _end(track) != end or not _stands(track):
            continue
        if seen == end:
            # As of now, though it was so when the target said it: behind a long line nothing would ever go otherwise.
            track.certain.seen_s = now_s
        elif track.waiting:
            told += unmarked(track, answer, track.waiting[0][0], now_s, "its end, before ")
        elif seen != UNSEEN:
            track.again(now_s)
    return untold, told


def _rests(track: Track) -> bool:
    return _stands(track) and not track.waiting and track.fetched == track.acked >= track.write_from


def _waits(track: Track, now_s: float, now_ms: int) -> bool:
    parcel = bool(track.waiting) and not isinstance(track.waiting[0][0], Blank)
    return parcel and not track.certain.asking and track.unsure(now_s, now_ms)


def _end(track: Track) -> int:
    """Where the twin must end while nothing of ours is on its way. Of a batch that lies there in part, `acked` is where
    that begins."""
    return track.waiting[0][0].base if track.waiting else track.acked


def _stands(track: Track) -> bool:
    idle = not (track.in_flight or track.leaving or track.mapped)
    return idle and track.phase is Phase.RUNNING
