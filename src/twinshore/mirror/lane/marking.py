"""Runs of markers: which partition gets how many in the next request, and what its answer proves.

A marker takes one offset that no consumer sees. No sequence guards it and no leader epoch, so it goes only where
nothing of ours can still be on its way and the log has just been seen to end; the log's end, read right behind it on
the same connection, says what came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from twinshore.wire.markers import Marker

_MARKER_BIT = 1 << 62
T = TypeVar("T")


def marker_id(producer_id: int) -> int:
    """The producer id that writes a link's markers.

    One of its own, since a marker of the data's id would bring a forgotten writer back with a sequence that begins at
    0. Brokers count ids up from 0, so the upper half is never given to anybody.
    """
    return producer_id | _MARKER_BIT


def is_marker_id(producer_id: int) -> bool:
    """Whether it writes the markers of some link."""
    return producer_id >= _MARKER_BIT


class Run(NamedTuple):
    """So many markers for one partition; `fence` is the coordinator epoch: a broker takes none below its highest. `led`
    is the leader epoch in which the log's end is known (-1: not known)."""

    topic: str
    partition: int
    times: int
    fence: int
    led: int = -1


class Marked(NamedTuple):
    """What one partition of a marker request was answered: a code, and the log end behind it (-1: not read)."""

    topic: str
    partition: int
    error: int
    end: int


def layers(runs: Iterable[Run], producer_id: int, producer_epoch: int) -> list[tuple[Marker, int]]:
    """The runs as one request, in few distinct markers: each names all partitions that need it equally often."""
    found: list[tuple[Marker, int]] = []
    by_fence: dict[int, list[Run]] = {}
    for run in runs:
        by_fence.setdefault(run.fence, []).append(run)
    for fence, ours in by_fence.items():
        ours.sort(key=lambda run: run.times)
        done = 0
        for index, run in enumerate(ours):
            if run.times > done:
                marker = Marker(marker_id(producer_id), producer_epoch, False, fence, by_topic(ours[index:]))
                found.append((marker, run.times - done))
                done = run.times
    return found


def asked(runs: Iterable[Run]) -> list[tuple[str, list[tuple[int, int]]]]:
    """The partitions whose log ends tell of the runs, topic by topic, each with the epoch that it was led in."""
    return _by_topic(runs, lambda run: (run.partition, run.led))


def by_topic(runs: Iterable[Run]) -> list[tuple[str, list[int]]]:
    """Their partitions, topic by topic."""
    return _by_topic(runs, lambda run: run.partition)


def _by_topic(runs: Iterable[Run], part: Callable[[Run], T]) -> list[tuple[str, list[T]]]:
    topics: dict[str, list[T]] = {}
    for run in runs:
        topics.setdefault(run.topic, []).append(part(run))
    return list(topics.items())
