"""Which partitions' blanks go into the next marker request, and what its answer proves.

Pure over tracks; the lane hands the requests out and is told the answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from twinshore.fleet import NamedPartition
from twinshore.fleet.incidents import IncidentKind, IncidentSide
from twinshore.fleet.sentences import followed
from twinshore.kafka.errors import Code, describe
from twinshore.mirror.lane.answers import LOOKS_MAX, RIGHTS, Means, meaning
from twinshore.mirror.lane.cutting import Blank, Halt
from twinshore.mirror.lane.marking import Marked, Run
from twinshore.mirror.lane.track import Phase, Track

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
