"""The hands of a key look: keys that live on in a compacted twin though the source has deleted them.

A compacted log keeps the latest record of each key for ever, unless that is a tombstone. So a key of which the source
holds no record at all was deleted there. If the latest on the twin is a value of it, the tombstone was cleaned away
before it crossed, and can never cross any more.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from twinshore.fleet import NamedPartition, TwinshoreError
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.logs.reader import LogReader, Pace
from twinshore.proof.both_sides import CLIENT_ID, chunks_of
from twinshore.proof.chunks import Chunk
from twinshore.proof.keys import HASHES_MAX, KEYS_MAX, KnownKeys, LiveKeys, Slice, Suspects, Work, hashed
from twinshore.proof.record_bytes import as_text
from twinshore.proof.values import OwedKey, Proven, Stretch

KEPT = 1_000
# What a pump has fetched before the source's cleaner came lands within this, as a rule.
SETTLE_S = 2.0


def look_at_keys(stretch: Stretch, source: KafkaCluster, target: KafkaCluster) -> Proven:
    """The owed keys of one partition. Never raises what an operator can mend: that is `trouble`."""
    look = KeyLook(stretch, source, target)
    try:
        return look.run()
    except TwinshoreError as error:
        return Proven(stretch.number, 0, 0, bytes=look.read_bytes, trouble=error.message, hint=error.hint)


def written_between(reader: LogReader, keys: Iterable[bytes]) -> set[bytes]:
    """Those of the keys of which the reader meets a record; it is read no further than where all are met."""
    absent, found = dict.fromkeys(keys, 0), set[bytes]()
    suspects = Suspects(absent)
    if absent:
        for chunk in read_chunks(reader):
            found.update(key for key, _, _ in suspects.among(chunk))
            if len(found) == len(absent):
                break
    return found


def read_chunks(reader: LogReader) -> Iterator[Chunk]:
    """The reader's chunks, without records below where it begins; it is closed behind them."""
    start = reader.position
    try:
        for chunk in chunks_of(reader):
            chunk.skip_below(start)
            yield chunk
    finally:
        reader.close()


@dataclass(slots=True)
class KeyLook:
    """One partition of a compacted topic, both sides read whole. The two clusters are the caller's to close."""

    stretch: Stretch
    source: KafkaCluster
    target: KafkaCluster
    settle_s: float = SETTLE_S
    hashes_max: int = HASHES_MAX
    keys_max: int = KEYS_MAX
    read_bytes: int = 0
    count: int = 0
    span: tuple[int, int] = (-1, -1)
    end: int = 0
    _first: list[tuple[int, bytes]] = field(default_factory=list, init=False)
    _pace: Pace = field(default_factory=lambda: Pace(0), init=False)

    def run(self) -> Proven:
        """All slices of all keys, one reading of both logs for each."""
        self._pace = Pace(self.stretch.bytes_s)
        todo = [Slice()]
        while todo:
            work = Work(todo.pop())
            self._slice(work)
            todo += work.left
        # A heap of the lowest offsets is one of the highest negative ones.
        keys = tuple(OwedKey(-at, as_text(key) or "") for at, key in sorted(self._first, reverse=True))
        return Proven(
            self.stretch.number,
            0,
            self.end,
            bytes=self.read_bytes,
            owed=self.count,
            owed_from=self.span[0],
            owed_to=self.span[1],
            owed_keys=keys,
        )

    def _slice(self, work: Work) -> None:
        named, twin = self.stretch.named, self.stretch.twin_named
        self.end = _end(self.source, named)
        known = KnownKeys(work, self.hashes_max)
        for chunk in self._chunks(self.source, named, _start(self.source, named), self.end):
            known.add(hashed(chunk)[0])
        alive = LiveKeys(work, self.keys_max)
        upto = min(self.end, _end(self.target, twin))
        for chunk in self._chunks(self.target, twin, _start(self.target, twin), upto):
            alive.take(chunk, known)
        for key, at in self._still(alive.at).items():
            self._tell(key, at)

    def _still(self, keys: dict[bytes, int]) -> dict[bytes, int]:
        """The keys that are owed at a second look as well.

        While a log is read, its cleaner moves the latest record of a key, and a tombstone may still be on its way.
        Only a deletion that is really owed is seen twice."""
        if not keys:
            return {}
        time.sleep(self.settle_s)
        named, twin = self.stretch.named, self.stretch.twin_named
        end = _end(self.source, named)
        suspects = Suspects(keys)
        absent = dict(keys)
        for chunk in self._chunks(self.source, named, _start(self.source, named), end):
            for key, _, _ in suspects.among(chunk):
                absent.pop(key, None)
        alive: dict[bytes, int] = {}
        suspects = Suspects(absent)
        first, last = min(absent.values(), default=0), _end(self.target, twin)
        for chunk in self._chunks(self.target, twin, max(first, _start(self.target, twin)), last if absent else 0):
            for key, at, tombstone in suspects.among(chunk):
                if tombstone:
                    alive.pop(key, None)
                else:
                    alive[key] = at
        # Below the source's beginning the twin is about to be cut; behind `end` the source wrote the key anew.
        begins = _start(self.source, named)
        return {key: at for key, at in alive.items() if begins <= at < end}

    def _tell(self, key: bytes, at: int) -> None:
        self.count += 1
        low, high = self.span
        self.span = (at if low < 0 else min(low, at), max(high, at + 1))
        (heapq.heappush if len(self._first) < KEPT else heapq.heappushpop)(self._first, (-at, key))

    def _chunks(self, kafka: KafkaCluster, named: NamedPartition, start: int, end: int) -> Iterator[Chunk]:
        reader = LogReader(kafka, named, start, end, self._pace, client_id=CLIENT_ID)
        try:
            yield from read_chunks(reader)
        finally:
            self.read_bytes += reader.read_bytes


def _start(kafka: KafkaCluster, named: NamedPartition) -> int:
    return kafka.list_offsets([named], OffsetKind.EARLIEST)[named]


def _end(kafka: KafkaCluster, named: NamedPartition) -> int:
    return kafka.list_offsets([named], OffsetKind.LAST_STABLE)[named]
