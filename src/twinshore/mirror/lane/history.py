"""Which history of the source a twin follows, told by leader epochs. Pure.

A source that lost its end and grew again holds other records at the same offsets, written in a later leader epoch. So
whoever knows the epoch of one record can ask the source how far the history goes in which that record lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

UNKNOWN = -1


class Stand(NamedTuple):
    """All below `end` came from one history, whose last record there was written in leader epoch `epoch`. The epoch is
    exact, or UNKNOWN."""

    epoch: int
    end: int


NOWHERE = Stand(UNKNOWN, 0)


def told_on(known: Stand, told: Stand) -> Stand:
    """The last word after `told` was heard, too: an epoch goes with its own offset alone."""
    older = told.end < known.end or (told.end == known.end and told.epoch == UNKNOWN)
    return known if older else told


class EpochEnd(NamedTuple):
    """What the source says of an epoch: the largest one up to it that wrote here, and where that ended; -1 where the
    source does not know."""

    epoch: int
    end: int


def parted_at(stand: Stand, said: EpochEnd) -> int:
    """From where on the source has another history; -1 where it has none, or cannot tell.

    An earlier epoch that ends behind the stand tells nothing: where cleaners took all records of an epoch, a replica
    that was built since has never heard of it.
    """
    known = stand.epoch >= 0 and said.end >= 0
    return said.end if known and said.end < stand.end else -1


def goes_by(stand: Stand, said: EpochEnd) -> int:
    """The epoch to fetch on with behind `stand`: the one that the source itself knows there; UNKNOWN where it knows
    none, as it would refuse any."""
    return said.epoch if stand.epoch >= 0 and said.end >= stand.end else UNKNOWN


def compared(told: Stand, here: Stand, said: Mapping[int, EpochEnd]) -> tuple[int, int]:
    """The epoch to fetch on with behind `here.end`, where the twin ends, and from where on the source has another
    history (-1: it has not). `told` is what was carried, `here.epoch` that of the source's record right below the
    twin's end, `said` the source's word on the epochs of both."""
    carried = Stand(told.epoch, min(told.end, here.end))
    answers = [(stand, said.get(stand.epoch, EpochEnd(UNKNOWN, UNKNOWN))) for stand in (carried, here)]
    parted = min((at for stand, answer in answers if (at := parted_at(stand, answer)) >= 0), default=-1)
    if parted < 0 and told.end == here.end and UNKNOWN not in (told.epoch, here.epoch) and told.epoch != here.epoch:
        parted = here.end - 1
    if here.epoch == UNKNOWN and told.end == here.end:
        return goes_by(*answers[0]), parted
    return goes_by(*answers[1]), parted
