"""Markers of one link: their producer id, which a request writes, and the result.

A marker takes one invisible offset. Neither a sequence nor a leader epoch guards markers. So they are written only if
no request of the link can be in flight and the log end was just seen. The log end, read right after on the same
connection, shows the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from twinshore.config.grouping import grouped
from twinshore.kafka.protocol.transactions import TransactionMarker

_MARKER_BIT = 1 << 62
T = TypeVar("T")


def marker_producer_id(producer_id: int) -> int:
    """Returns the producer id of a link's markers.

    Under the data's id, a marker would restore a forgotten producer with a sequence from 0. Brokers count ids up from
    0, so the upper half is never assigned.
    """
    return producer_id | _MARKER_BIT


def is_marker_producer_id(producer_id: int) -> bool:
    return producer_id >= _MARKER_BIT


class MarkerRun(NamedTuple):
    """`times` markers for one partition. `fence`: the coordinator epoch; a broker accepts none below its highest.
    `led`: the leader epoch of the known log end, or -1.
    """

    topic: str
    partition: int
    times: int
    fence: int
    led: int = -1


class MarkerOutcome(NamedTuple):
    """The result for one partition: error code and log end (-1: not read)."""

    topic: str
    partition: int
    error: int
    end: int


def group_markers(
    runs: Iterable[MarkerRun], producer_id: int, producer_epoch: int
) -> list[tuple[TransactionMarker, int]]:
    """Groups the runs into few markers: each names all partitions that need it equally often."""
    markers: list[tuple[TransactionMarker, int]] = []
    for fence, fenced in grouped((run.fence, run) for run in runs).items():
        fenced.sort(key=lambda run: run.times)
        done = 0
        for index, run in enumerate(fenced):
            if run.times > done:
                topics = _by_topic(fenced[index:], lambda run: run.partition)
                marker = TransactionMarker(marker_producer_id(producer_id), producer_epoch, False, fence, topics)
                markers.append((marker, run.times - done))
                done = run.times
    return markers


def end_offset_queries(runs: Iterable[MarkerRun]) -> list[tuple[str, list[tuple[int, int]]]]:
    """The partitions to query, by topic, each with its known leader epoch."""
    return _by_topic(runs, lambda run: (run.partition, run.led))


def _by_topic(runs: Iterable[MarkerRun], part: Callable[[MarkerRun], T]) -> list[tuple[str, list[T]]]:
    return list(grouped((run.topic, part(run)) for run in runs).items())
