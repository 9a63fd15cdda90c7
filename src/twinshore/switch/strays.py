"""What others wrote behind the point at which a partition changes homes, before it had its fence. Pure.

It may be any amount, and whoever writes may be faster than the one who reads. So it is read in stretches: each ends
where the log ended when the stretch began, and the switch's record remembers how far it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from twinshore.fleet import NamedPartition
from twinshore.switch.record import Stray
from twinshore.wire.batch import BatchHeader


class Behind(StrEnum):
    """What lies from the point on: the fence, perhaps behind records of others; these alone, up to the end of the
    stretch; what the link wrote; or what has to be read still."""

    FENCED = "fenced"
    STRAYS = "strays"
    THE_LINKS = "the link's"
    UNREAD = "unread"


class Seen(NamedTuple):
    """`what` lies from the `point` on, as far as `stray` says that it was read."""

    what: Behind
    stray: Stray
    point: int


def stretch(known: Stray | None, named: NamedPartition, point: int, start: int, end: int) -> Stray:
    """What is to be read next, in a log from `start` to `end`: the rest of the stretch that is known, or what has come
    behind it. What was deleted of the log meanwhile nobody can read; of one that was cut all is read again."""
    if known is None or not point <= known.read <= end:
        known = Stray(named.topic, named.partition, point, point)
    until = known.until if known.read < known.until else end
    return replace(known, read=max(known.read, start), until=min(until, end))


def walk(
    stray: Stray,
    point: int,
    theirs: Collection[int],
    is_fence: Callable[[BatchHeader], bool],
    batches: Callable[[int], Iterable[BatchHeader]],
    may_go_on: Callable[[], bool],
    *,
    follows: bool = False,
) -> Seen:
    """What lies in the stretch, and how far it is read by now. `theirs`: the link's producer ids. `batches`: some from
    this offset on; none where they cannot be read yet. `may_go_on` is asked behind each of these reads. `follows`: the
    point moves behind what the link wrote, wherever that lies, and is never lost to it."""
    at = stray.read
    while at < stray.until:
        found = [header for header in batches(at) if header.last_offset >= at]
        for header in found:
            if is_fence(header):
                return Seen(Behind.FENCED, replace(stray, read=max(at, header.base_offset)), point)
            if header.producer_id in theirs or header.base_offset < point:
                if not follows:
                    return Seen(Behind.THE_LINKS, replace(stray, read=at), point)
                point = header.last_offset + 1
            at = header.last_offset + 1
        if not found or (at < stray.until and not may_go_on()):
            return Seen(Behind.UNREAD, replace(stray, read=at), point)
    return Seen(Behind.STRAYS, replace(stray, read=at), point)
