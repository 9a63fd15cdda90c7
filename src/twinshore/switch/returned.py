"""What an old home that has returned holds and never sent, partition by partition. Pure.

The link back tells it: where it found such records it stopped its partition, and elsewhere it goes on. A partition that
it has not looked at yet is waited for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace

from twinshore.fleet import WireError
from twinshore.fleet.incidents import IncidentKind

# Of these the ledger names the first offset that is not the home's; of the others it names one that is not.
EXACT = frozenset({IncidentKind.FOREIGN_WRITE})
PARTED = frozenset({IncidentKind.FOREIGN_WRITE, IncidentKind.TRUNCATION, IncidentKind.POSITION_DISAGREEMENT})

Where = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Stood:
    """A partition of the old home: `start` and `end` of its log, the `point` below which it was at home there, how far
    the link back has `carried` it (-1: not at all), and which incident `stopped` it, at which offset. `one_past`:
    whether both homes hold the same right below the point."""

    topic: str
    partition: int
    start: int
    end: int
    point: int
    carried: int = -1
    stopped: IncidentKind | None = None
    stopped_at: int = -1
    one_past: bool = True


@dataclass(frozen=True, slots=True)
class Tail:
    """Offsets `first` up to `end` never crossed, or nobody knows which of them did. `beside`: what the topic's home
    holds as well is not saved. `file`: where they are saved."""

    topic: str
    partition: int
    first: int
    end: int
    records: int = 0
    committed: int = 0
    file: str = ""
    beside: bool = False

    def __str__(self) -> str:
        span = f"offset {self.first}" if self.end == self.first + 1 else f"offsets {self.first} to {self.end - 1}"
        return f"{self.topic}-{self.partition} {span}"


def tails(stood: Iterable[Stood]) -> tuple[Tail, ...]:
    """What would be lost with the old home's topics: of each partition that was stopped, or that nobody looked at yet,
    what lies behind the point."""
    found = [
        Tail(one.topic, one.partition, parts_at(one), one.end, beside=_parted(one) and not _told(one))
        for one in stood
        if _parted(one) or unseen(one)
    ]
    return tuple(one for one in found if one.end > one.first)


def unseen(one: Stood) -> bool:
    """Whether the partition has records behind its point, and the link back has not said yet whose they are."""
    return one.end > one.point and one.carried <= one.point and not _parted(one)


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


def grown(found: Iterable[Tail], ends: Mapping[Where, int]) -> tuple[Tail, ...]:
    """The tails that end elsewhere now than where they were saved."""
    return tuple(replace(one, end=end) for one in found if (end := ends[one.topic, one.partition]) != one.end)


def _parted(one: Stood) -> bool:
    return one.stopped in PARTED


def _told(one: Stood) -> bool:
    """Whether the ledger knows where both homes part. An old home that lost its end, and took other records beyond the
    point, parts below the point."""
    return one.stopped in EXACT and one.one_past


def parts_at(one: Stood) -> int:
    """Where the two homes part. Where the ledger does not know, all that the log holds is looked at."""
    if _parted(one) and not _told(one):
        return one.start
    known = max(one.point, one.carried)
    return max(one.start, min(one.stopped_at, known) if one.stopped_at >= 0 else known)
