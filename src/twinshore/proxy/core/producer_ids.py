"""What the ids of producers say that come through a proxy, in bits that brokers do not use. Pure.

From bit 48 on: the *mark* of the cluster that gave the id, so that no other producer of any cluster has the same. From
bit 40 on, eight bits: the *stamp* of the term in which a topic is written. Clients know their ids without it.
"""

from __future__ import annotations

from typing import Final

from crc32c import crc32c

_MARK_SHIFT: Final = 48
_MARKS: Final = (1 << 14) - 1
_STAMP_SHIFT: Final = 40
STAMPS: Final = 1 << 8


def mark_of(cluster_id: str) -> int:
    """What the ids begin with that this cluster gave to producers: above those that brokers give by themselves."""
    return crc32c(cluster_id.encode()) % _MARKS + 1


def mark_in(producer_id: int) -> int:
    """Below 1 where no proxy marked it."""
    return producer_id >> _MARK_SHIFT


def marked(producer_id: int, mark: int) -> int:
    return producer_id | mark << _MARK_SHIFT


def unmarked(producer_id: int) -> int:
    """As the cluster gave it."""
    return producer_id & ((1 << _MARK_SHIFT) - 1)


def stamp_of(term: int) -> int:
    """With what the producers of a topic are told apart in this term. A broker that had the topic before remembers how
    far they had come then, and would refuse them now."""
    return max(0, term - 1) % STAMPS


def stamped(producer_id: int, stamp: int) -> int:
    """The id under which a producer of the proxy's clients writes; another one's stays as it is."""
    if mark_in(producer_id) <= 0 or producer_id >> _STAMP_SHIFT & STAMPS - 1:
        return producer_id
    return producer_id | stamp << _STAMP_SHIFT


def unstamped(producer_id: int) -> int:
    """As its client knows it."""
    return producer_id & ~(STAMPS - 1 << _STAMP_SHIFT)


def stamp_in(producer_id: int) -> int | None:
    """Of an id that a client of a proxy writes under; None for another one's."""
    return producer_id >> _STAMP_SHIFT & STAMPS - 1 if mark_in(producer_id) > 0 else None
