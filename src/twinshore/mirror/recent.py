"""What was fetched and is to be told once it is acknowledged, and who wrote it: what a producer that switches to the
twin must be known by. Pure."""

from __future__ import annotations

from typing import NamedTuple

from twinshore.mirror.passage.fates import Blank
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
