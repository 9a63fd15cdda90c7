"""What was fetched and is to be told once it is acknowledged, and who wrote it: what a producer that switches to the
twin must be known by. Pure."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from twinshore.mirror.lane.fates import Blank
from twinshore.mirror.lane.history import UNKNOWN, Stand
from twinshore.wire.join import Producer

Producers = list[Producer]
PRODUCERS_KEPT = 5  # batches per producer id that a broker itself remembers


class Noted(NamedTuple):
    """One fetch of a partition: offsets [begin, end), its source batches and their producers, and what nobody sees."""

    begin: int
    end: int
    size: int
    batches: int
    seen_ms: int
    producers: Producers
    blanks: tuple[Blank, ...] = ()
    epoch: int = -1  # the source's leader epoch of the last record below `end`, where that is known


class Summed(NamedTuple):
    """What is acknowledged of what was noted, up to `end`. `first_ms` is 0 where that is nothing."""

    end: int
    size: int
    batches: int
    unseen: int
    first_ms: int
    producers: Producers
    epoch: int


def acknowledged(noted: deque[Noted], acked: int) -> Summed:
    """Takes out what lies wholly below `acked`."""
    producers: Producers = []
    size = batches = unseen = first_ms = 0
    reached = epoch = -1
    while noted and noted[0].end <= acked:
        entry = noted.popleft()
        producers.extend(entry.producers)
        unseen += sum(min(blank.end, entry.end) - blank.base for blank in entry.blanks if blank.base < entry.end)
        size, batches, first_ms = size + entry.size, batches + entry.batches, first_ms or entry.seen_ms
        reached, epoch = entry.end, entry.epoch
    end = min(acked, noted[0].begin) if noted else acked
    return Summed(end, size, batches, unseen, first_ms, producers, epoch if reached == end else -1)


def cut_back(noted: deque[Noted], end: int, told: Stand) -> int:
    """Takes out what lies at `end` or above. Returns the source's leader epoch of the last record below, where that is
    known; `told` is what was noted before."""
    while noted and noted[-1].end > end:
        entry = noted.pop()
        if entry.begin < end:
            producers = [seen for seen in entry.producers if seen[4] < end]
            noted.append(entry._replace(end=end, producers=producers, epoch=-1))
    last = Stand(noted[-1].epoch, noted[-1].end) if noted else told
    return last.epoch if last.end == end else UNKNOWN


def latest_of(seen: Producers) -> Producers:
    """The last five batches of each idempotent producer: what a retry after a switch is known by."""
    kept: Producers = []
    times: dict[int, int] = {}
    for entry in reversed(seen):
        known = times.get(entry[0], 0)
        if known < PRODUCERS_KEPT:
            times[entry[0]] = known + 1
            kept.append(entry)
    kept.reverse()
    return kept
