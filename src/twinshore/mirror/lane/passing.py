"""Errors that pass by themselves: the partition is tried again, and once they have lasted they are told. Pure."""

from __future__ import annotations

from twinshore.fleet.incidents import POLICY_WAIT, IncidentKind
from twinshore.kafka.errors import describe
from twinshore.mirror.lane.answers import wait_s
from twinshore.mirror.lane.cutting import Blank, Parcel
from twinshore.mirror.lane.marking import Marked
from twinshore.mirror.lane.orders import Stoppage
from twinshore.mirror.lane.track import NONE, Track
from twinshore.wire.fetch import FetchedPartition
from twinshore.wire.produce import ProducedPartition

THROTTLED = "a quota of the target's throttles the mirror; give its user or client id more"


def unread(track: Track, part: FetchedPartition, now_s: float) -> list[Stoppage]:
    """The source's leader did not let it be read."""
    kind = describe(part.error)
    name = kind.name if part.error else "another history"
    track.source.unread += 1
    track.settle(now_s + wait_s(track.source.unread))
    said = f"answers {name} to fetches at offset {track.fetched}"
    return unheard(track, said, kind.sentence, now_s)


def unheard(track: Track, said: str, why: str, now_s: float, since_s: float = NONE) -> list[Stoppage]:
    """Nothing comes from the source's leader. The row is over once what lies there crosses, or once it can be read
    where nothing lies there."""
    track.source.heard = False
    lasted_s = track.troubles.source.lasts(now_s, since_s)
    if not lasted_s:
        return []
    at, named = track.fetched, track.named
    end = at + 1 if track.source.end > at else at
    sentence = f"the source's leader {said}, for {lasted_s:.0f} s by now: {why}"
    return [Stoppage(named.topic, named.partition, IncidentKind.SOURCE_AWAY, at, end, sentence, POLICY_WAIT)]


def untaken(track: Track, part: ProducedPartition | None, parcel: Parcel, now_s: float) -> list[Stoppage]:
    """The twin's leader did not take a batch."""
    return _errs(track, part.error if part is not None else None, parcel, "", now_s)


def unmarked(
    track: Track, answer: Marked | None, piece: Parcel | Blank, now_s: float, what: str = "markers for "
) -> list[Stoppage]:
    """The twin's leader did not take markers, or where the twin ends could not be asked for before something went."""
    return _errs(track, answer.error if answer is not None else None, piece, what, now_s)


def _errs(track: Track, code: int | None, piece: Parcel | Blank, what: str, now_s: float) -> list[Stoppage]:
    track.again(now_s, refused=bool(code))
    where = f"{what}offsets {piece.base} to {piece.end - 1}"
    if code:
        kind = describe(code)
        return stalled(track, f"answers {kind.name} to {where}", kind.sentence, (piece.base, piece.end), now_s)
    said = f"did not take {where}"
    return stalled(track, said, "it does not end where it did, or gave no word of it", (piece.base, piece.end), now_s)


def unsent(track: Track, now_s: float) -> list[Stoppage]:
    """A leader that throttles us is sent nothing of what waits for it."""
    if track.certain.sent_s > track.troubles.target.since_s != NONE:
        track.rid_of(track.troubles.target)
    piece = track.waiting[0][0]
    said = f"lets us send nothing of offsets {piece.base} to {piece.end - 1}"
    return stalled(track, said, THROTTLED, (piece.base, piece.end), now_s)


def unanswered(track: Track, now_s: float, *, throttled: bool = False) -> list[Stoppage]:
    """What was last sent to the twin's leader is on its way still, or its line broke."""
    sent_s, span = track.certain.sent_s, (track.acked, max(track.acked, track.sent))
    said = f"has not answered what it was sent for offsets {span[0]} to {span[1] - 1}"
    why = THROTTLED if throttled else "it may hang, or wait for replicas or for a coordinator"
    return stalled(track, said, why, span, now_s, sent_s)


def stalled(
    track: Track, said: str, why: str, span: tuple[int, int], now_s: float, since_s: float = NONE
) -> list[Stoppage]:
    """Nothing lands on the twin. The row is over once these offsets do."""
    lasted_s = track.troubles.target.lasts(now_s, since_s)
    if not lasted_s:
        return []
    named, sentence = track.named, f"the twin's leader {said}, for {lasted_s:.0f} s by now: {why}"
    return [Stoppage(named.topic, named.partition, IncidentKind.TARGET_AWAY, *span, sentence, POLICY_WAIT)]


def in_vain(
    track: Track, sentence: str, now_s: float, since_s: float = NONE, kind: IncidentKind = IncidentKind.TARGET_AWAY
) -> list[Stoppage]:
    """Nothing crosses since nobody knows where the twin ends; it goes on by itself once that is known. `kind`: who is
    away."""
    if not track.troubles.vain.lasts(now_s, since_s):
        return []
    named, told = track.named, f"where the twin ends cannot be told: {sentence}"
    span = (track.told.to, track.told.to)
    return [Stoppage(named.topic, named.partition, kind, *span, told, POLICY_WAIT)]


def read_again(track: Track) -> None:
    """The source can be read: the next account says so, whether anything crosses or not."""
    track.source.unread, track.source.heard = 0, True
    track.rid_of(track.troubles.source)


def taken_again(track: Track) -> None:
    """The target took something."""
    track.failures = track.refusals = 0
    track.rid_of(track.troubles.target)
