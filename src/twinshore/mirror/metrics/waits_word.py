"""Since when a link's twins have lacked what they lack: left in the store, so that the next mirror's recovery point is
no younger than this one's. Pure: moments come in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from twinshore.fleet import NamedPartition
from twinshore.store.values import Remembered

# The kind under which the word stands in the store.
WAITS_KIND = "waits"
# What is missing for less is no older than the last word of a mirror, give or take.
WAITS_S_MIN = 10.0
# Those that have waited longest; a link's recovery point is the first one's.
PARTITIONS_MAX = 200
MARKS_MAX = 4


class Mark(NamedTuple):
    """All offsets below this end were on the source at this moment, in the world's time."""

    at_ms: int
    end: int


def told(waits: Mapping[NamedPartition, Sequence[Mark]]) -> dict[NamedPartition, tuple[Mark, ...]]:
    """What is worth keeping: of the oldest partitions a few marks each, joined so that no age becomes too small."""
    oldest = sorted((one for one in waits if waits[one]), key=lambda named: (waits[named][0].at_ms, named))
    return {named: _joined(waits[named]) for named in oldest[:PARTITIONS_MAX]}


def as_row(link: str, waits: Mapping[NamedPartition, Sequence[Mark]], now_ms: int) -> Remembered:
    """As it stands in the store."""
    said: dict[str, dict[int, list[list[int]]]] = {}
    for named, marks in waits.items():
        said.setdefault(named.topic, {})[named.partition] = [list(mark) for mark in marks]
    return Remembered(link, WAITS_KIND, "", json.dumps(said, separators=(",", ":")), WAITS_KIND, now_ms)


def from_rows(rows: Iterable[Remembered]) -> dict[NamedPartition, tuple[Mark, ...]]:
    """What the last mirror told; nothing where none ever did."""
    return {
        NamedPartition(topic, int(partition)): tuple(Mark(*mark) for mark in marks)
        for row in rows
        for topic, partitions in json.loads(row.value).items()
        for partition, marks in partitions.items()
    }


def _joined(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """Neighbours together: the older moment, the later end."""
    size = -(-len(marks) // MARKS_MAX)
    groups = [marks[at : at + size] for at in range(0, len(marks), size)]
    return tuple(Mark(group[0].at_ms, group[-1].end) for group in groups)
