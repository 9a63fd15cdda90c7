"""What an old home that has returned holds and never sent, partition by partition, or a twin that is spoilt. Pure.

The link back tells it: where it found such records it stopped its partition, and elsewhere it goes on. A partition that
it has not looked at yet is waited for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from twinshore.fleet import WireError
from twinshore.fleet.incidents import IncidentKind
from twinshore.fleet.sentences import counted, listed
from twinshore.switch.record import Moved

# Of these the ledger names the first offset that is not the home's; of the others it names one that is not.
EXACT = frozenset({IncidentKind.FOREIGN_WRITE})
PARTED = frozenset({IncidentKind.FOREIGN_WRITE, IncidentKind.TRUNCATION, IncidentKind.POSITION_DISAGREEMENT})

NAMED_MAX = 5

Where = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Stood:
    """A partition of the old home: `start` and `end` of its log, the `point` below which it was at home there, how far
    the link back has `carried` it (-1: not at all), and which incident `stopped` it, at which offset. `strays_at`: the
    first offset behind what was carried that the link did not write, where it has not met that yet; -1 for none.
    `one_past`: whether both homes hold the same right below where they part. `differs`: it holds other records than its
    home below what was carried, though nothing has stopped for it: a proof says so, or one look at its end."""

    topic: str
    partition: int
    start: int
    end: int
    point: int
    carried: int = -1
    stopped: IncidentKind | None = None
    stopped_at: int = -1
    strays_at: int = -1
    one_past: bool = True
    differs: bool = False


@dataclass(frozen=True, slots=True)
class Tail:
    """Offsets `first` up to `end` never crossed, or nobody knows which of them did. `beside`: what the topic's home
    holds as well is not saved. `gone`: so many before `first` were deleted there before anybody saw them. `saved_at`
    and `saved_as`: from which offset of the topic of rescued records the others lie, and under which key; `file`: where
    they were exported to."""

    topic: str
    partition: int
    first: int
    end: int
    records: int = 0
    committed: int = 0
    file: str = ""
    beside: bool = False
    gone: int = 0
    saved_at: int = -1
    saved_as: str = ""

    @property
    def where(self) -> Where:
        return self.topic, self.partition

    def __str__(self) -> str:
        if self.end <= self.first:
            return f"{self.topic}-{self.partition} offset {self.first} on, of which nothing is left,"
        span = f"offset {self.first}" if self.end == self.first + 1 else f"offsets {self.first} to {self.end - 1}"
        return f"{self.topic}-{self.partition} {span}"


def tails(stood: Iterable[Stood]) -> tuple[Tail, ...]:
    """What would be lost with the old home's topics: of each partition that was stopped, that strangers wrote to, or
    that nobody looked at yet, what lies behind the point. Where all of it is gone by now, it is told nevertheless: the
    twin was not filled there."""
    return tuple(
        Tail(one.topic, one.partition, parts_at(one), one.end, beside=not _told(one), gone=_gone(one))
        for one in stood
        if parted(one) or (unseen(one) and one.end > parts_at(one))
    )


def doubtful(stood: Iterable[Stood]) -> tuple[Tail, ...]:
    """What must be compared with the home before a spoilt twin is deleted, once the mirror has let go of it. Up to
    where the link's receipts go a twin is its home's, unless the ledger says that both part somewhere: then nobody
    knows where, and all that the twin holds is compared."""
    found = [
        Tail(one.topic, one.partition, one.start if one.differs else parts_at(one), one.end, beside=True)
        for one in stood
    ]
    return tuple(one for one in found if one.end > one.first)


def lacking_of(topics: Iterable[Moved], ends: Mapping[Where, int]) -> Iterator[str]:
    """The partitions of twins made anew that are not filled yet up to their points."""
    for one in topics:
        for number, point in enumerate(one.points):
            if ends[one.topic, number] < point:
                yield f"{one.topic}-{number}"


def unfilled(topics: Iterable[Moved], ends: Mapping[Where, int]) -> str:
    """What twins made anew wait for; empty once they are filled up to their points."""
    lacking = list(lacking_of(topics, ends))
    return f"still to be filled: {listed(lacking, NAMED_MAX)}" if lacking else ""


def parted(one: Stood) -> bool:
    """Whether the partition has another history than its home."""
    return one.stopped in PARTED or one.strays_at >= 0


def unseen(one: Stood) -> bool:
    """Whether the partition has records of which nobody knows yet whose they are."""
    return not parted(one) and one.end > max(one.point, one.carried)


def kept_back(stood: Iterable[Stood], topics: Iterable[str]) -> tuple[str, ...]:
    """Partitions of these topics that hold other records below what was carried: nobody has saved these."""
    ours = set(topics)
    return tuple(f"{one.topic}-{one.partition}" for one in stood if one.differs and one.topic in ours)


def differ(others: Iterable[str], old: str, new: str) -> str:
    """Why a fail-back is left alone, and what does it instead."""
    some = listed(list(others), NAMED_MAX)
    return (
        f"{some} of {old} holds other records than {new} below what was carried: `twinshore mirror rebuild` saves "
        "these, too, and fills the topic anew"
    )


def other_spans(found: Iterable[Tail], now: Iterable[Tail]) -> tuple[Tail, ...]:
    """The tails that were not there when `found` was saved, or end elsewhere now."""
    known = {(one.topic, one.partition): one.end for one in found}
    return tuple(one for one in now if known.get((one.topic, one.partition)) != one.end)


def gone_in_words(found: Iterable[Tail]) -> str:
    """What is left to be said of tails that nobody can save; empty where there is none."""
    gone = sum(one.gone for one in found)
    return f"; {counted(gone, 'offset')} of it were deleted there before anybody saw them" if gone else ""


def topics_of(found: Iterable[Tail]) -> tuple[str, ...]:
    return tuple(sorted({one.topic for one in found}))


def clamped(places: Mapping[Where, int], starts: Mapping[Where, int]) -> dict[Where, int]:
    """Where groups go on in what the twins hold: behind a tail that is no more, nothing is theirs to have read."""
    return {where: min(place, starts.get(where, place)) for where, place in places.items()}


def to_json(found: Iterable[Tail]) -> str:
    return json.dumps([asdict(one) for one in found], separators=(",", ":"))


def from_json(text: str) -> tuple[Tail, ...]:
    """WireError where it is none."""
    try:
        return tuple(Tail(**one) for one in json.loads(text or "[]"))
    except (ValueError, TypeError) as error:
        raise WireError("what never crossed cannot be read from the switch's record") from error


def _told(one: Stood) -> bool:
    """Whether it is known where both homes part. An old home that lost its end, and took other records beyond it, parts
    below what was carried."""
    return one.one_past and (one.stopped in EXACT or one.stopped not in PARTED)


def parts_at(one: Stood) -> int:
    """Where the two homes part. Where nobody knows, all that the log holds is looked at."""
    return max(one.start, _known_at(one)) if _told(one) else one.start


def _known_at(one: Stood) -> int:
    known = max(one.point, one.carried)
    if one.stopped in EXACT:
        return min(one.stopped_at, known)
    return max(known, one.strays_at)


def _gone(one: Stood) -> int:
    return max(0, one.start - _known_at(one)) if _told(one) else 0
