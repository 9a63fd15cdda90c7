"""What a twin may hold that its home does not, partition by partition, once the mirror has let go of it. Pure.

Up to where the link's receipts go a twin is its home's, unless the ledger says that both part somewhere: then nobody
knows where, and all that the twin holds is compared with the home.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from twinshore.switch.record import Moved
from twinshore.switch.returned import Stood, Tail, Where, parts_at


def doubtful(stood: Iterable[Stood]) -> tuple[Tail, ...]:
    """What must be compared with the home before the twin is deleted."""
    found = [
        Tail(one.topic, one.partition, one.start if one.differs else parts_at(one), one.end, beside=True)
        for one in stood
    ]
    return tuple(one for one in found if one.end > one.first)


def lacking_of(topics: Iterable[Moved], ends: Mapping[Where, int]) -> Iterator[str]:
    """The partitions that are not filled yet as far as their home went."""
    for one in topics:
        for number, point in enumerate(one.points):
            if ends[one.topic, number] < point:
                yield f"{one.topic}-{number}"
