"""What a twin may hold that its home does not, partition by partition, once the mirror has let go of it. Pure.

Up to where the link's receipts go a twin is its home's, unless the ledger says that both part somewhere: then nobody
knows where, and all that the twin holds is compared with the home.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from twinshore.switch.record import Moved
from twinshore.switch.returned import EXACT, PARTED, Stood, Tail, Where


def known_to(one: Stood) -> int:
    """Up to which offset the partition is known to be its home's."""
    if one.stopped in PARTED and one.stopped not in EXACT:
        return one.start
    known = max(one.point, one.carried)
    return max(one.start, min(one.stopped_at, known) if one.stopped_at >= 0 else known)


def doubtful(stood: Iterable[Stood]) -> tuple[Tail, ...]:
    """What must be compared with the home before the twin is deleted."""
    found = [Tail(one.topic, one.partition, known_to(one), one.end, beside=True) for one in stood]
    return tuple(one for one in found if one.end > one.first)


def lacking_of(topics: Iterable[Moved], ends: Mapping[Where, int]) -> Iterator[str]:
    """The partitions that are not filled yet as far as their home went."""
    for one in topics:
        for number, point in enumerate(one.points):
            if ends[one.topic, number] < point:
                yield f"{one.topic}-{number}"
