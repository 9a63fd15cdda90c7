"""Where MirrorMaker 2 stopped: its own notes say which record of the source became which of the copy, now and then; the
records themselves prove the rest. Pure.

From a note on, MirrorMaker writes record by record. So the copy's records behind it must be the source's, one by one,
and the source's next one is where to go on. Notes that do not prove so are not believed.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from twinshore.fleet import NamedPartition
from twinshore.logs.visible import Dated
from twinshore.wire.records import Record

NOTES_KEPT = 32
TAIL_RECORDS = 100
_OFFSETS = struct.Struct(">qq")
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
Theirs = tuple[int, Dated]
Ours = tuple[int, Dated]


class Note(NamedTuple):
    """The source's record at `source` was written to the copy at `target`."""

    source: int
    target: int


def read_note(record: Record) -> tuple[NamedPartition, Note] | None:
    """What a record of mm2-offset-syncs says; None where it says nothing."""
    key, value = record.key or b"", record.value or b""
    if len(key) < _SHORT.size or len(value) != _OFFSETS.size:
        return None
    length = _SHORT.unpack_from(key)[0]
    if len(key) != _SHORT.size + length + _INT.size:
        return None
    topic = key[_SHORT.size : _SHORT.size + length].decode("utf-8", "replace")
    return NamedPartition(topic, _INT.unpack_from(key, _SHORT.size + length)[0]), Note(*_OFFSETS.unpack(value))


def gather(records: Iterable[Record]) -> dict[NamedPartition, list[Note]]:
    """The last notes of each partition, oldest first."""
    found: dict[NamedPartition, deque[Note]] = {}
    for record in records:
        read = read_note(record)
        if read:
            found.setdefault(read[0], deque(maxlen=NOTES_KEPT)).append(read[1])
    return {named: list(notes) for named, notes in found.items()}


def notes_topic(names: Iterable[str], alias: str) -> str:
    """Which of a cluster's topics holds the notes of MirrorMaker's link with the cluster of this alias; "" if none."""
    theirs = [name for name in names if name.startswith("mm2-offset-syncs.") and name.endswith(".internal")]
    meant = f"mm2-offset-syncs.{alias}.internal"
    return meant if meant in theirs else theirs[0] if len(theirs) == 1 else ""


def walk(source: Iterator[Theirs], copy: Iterator[Ours], passed: int = 0) -> int | None:
    """The source's offset behind the copy's last record, if each of the copy's is the next one of the source's; else
    None. `passed`: so many were copied before the first that the copy still has. Whether they were is proven by what
    follows, so one of that must bear a time stamp of the source's."""
    for _ in islice(source, passed):
        pass
    at, dated = -1, not passed
    for _, wanted in copy:
        found = next(source, None)
        if found is None or not wanted.copied_from(found[1]):
            return None
        at, dated = found[0], dated or wanted.timestamp_ms is not None
    return at + 1 if at >= 0 and dated else None


def places(source: Iterable[Theirs], tail: Sequence[Dated]) -> list[int]:
    """The source's offsets behind each place where it holds exactly `tail`."""
    recent: deque[Theirs] = deque(maxlen=len(tail))
    found: list[int] = []
    for one in source:
        recent.append(one)
        # The last one first: it is hardly ever there, and all are compared only then.
        near = len(recent) == len(tail) and tail[-1].copied_from(one[1])
        if near and all(ours.copied_from(theirs) for (_, theirs), ours in zip(recent, tail, strict=True)):
            found.append(one[0] + 1)
    return found


def best_notes(notes: Mapping[NamedPartition, list[Note]], named: NamedPartition, end: int) -> list[Note]:
    """Notes of a partition that can be true of a copy that ends at `end`, the latest first."""
    return [note for note in reversed(notes.get(named, [])) if 0 <= note.target < end and note.source >= 0]
