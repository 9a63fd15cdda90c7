"""What a mirror last said of how a link of a broadcast is read: as it leaves it in the store, and as `status` and
`link list` read it there. Pure: moments come in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from twinshore.fleet.sentences import counted
from twinshore.mirror.lane.reading import JOINED, QUEUED
from twinshore.mirror.metrics.lag_word import is_fresh
from twinshore.store.values import Remembered

# The kind under which the word stands in the store.
READING_KIND = "reading"
# Bytes a second below which a link is not said to read: an answer without records has a few of them.
READS_BYTES_S = 1_000.0


@dataclass(frozen=True, slots=True)
class ReadingWord:
    """`joined` of the link's `partitions` are read together with other links, `queue_bytes` wait for its target,
    `read_per_s` bytes a second are what the link's own requests bring from the source, for all who have joined."""

    told_ms: int
    partitions: int
    joined: int
    queue_bytes: int
    read_per_s: float

    @property
    def reads(self) -> bool:
        """Whether the link itself asks the source for records now; else the others that read feed it."""
        return self.read_per_s >= READS_BYTES_S

    def __str__(self) -> str:
        rate = f"{self.read_per_s / 1e6:.2f} MB/s of the source" if self.reads else "nothing"
        how = f"it reads {rate} itself"
        share = f"{self.joined} of {counted(self.partitions, 'partition')} read together with others"
        return f"{share}; {how}; {self.queue_bytes / 1e6:.2f} MB wait for its target"


def as_row(link: str, reading: Mapping[str, float], partitions: int, read_per_s: float, now_ms: int) -> Remembered:
    """As it stands in the store. `reading`: what the link's lanes told last, summed."""
    joined, queued = int(reading[JOINED]), int(reading[QUEUED])
    said = {"partitions": max(partitions, joined), "joined": joined, "queue_bytes": queued, "read_per_s": read_per_s}
    return Remembered(link, READING_KIND, "", json.dumps(said, separators=(",", ":")), READING_KIND, now_ms)


def reading_of(rows: Iterable[Remembered], now_ms: int, holds_s: float) -> ReadingWord | None:
    """The last word, while it holds: what was told longer ago says nothing of now."""
    for row in rows:
        if is_fresh((now_ms - row.since_ms) / 1000, holds_s):
            return ReadingWord(row.since_ms, **json.loads(row.value))
    return None


def says_of_broadcast(broadcast: str, word: ReadingWord | None) -> str:
    """Of a link that belongs to a broadcast, in a sentence; empty of others."""
    if not broadcast:
        return ""
    return f"of broadcast {broadcast}: {word or 'nobody says now how it is read'}"


def broadcast_values(broadcast: str, word: ReadingWord | None) -> dict[str, object] | None:
    """For programs: None of a link of no broadcast; what nobody says now is null."""
    if not broadcast:
        return None
    now = ("reads", "partitions", "joined", "queue_bytes", "read_per_s")
    return {"name": broadcast, **{name: None if word is None else getattr(word, name) for name in now}}
