"""Which records of a twin its home does not hold. Pure.

Both logs are walked side by side. A record of the twin is its home's if the home holds the same one at the same offset.
What the link wrote may also lie some offsets behind its place, where somebody else's records came before it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from twinshore.switch.rescued import Saved
from twinshore.wire.records import Record

BESIDE_MAX = 100_000  # so many records of the home are remembered for what lies behind its place
DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Written:
    """A record of the twin, and the producer id that wrote it."""

    saved: Saved
    producer_id: int


@dataclass(frozen=True, slots=True)
class Beside:
    """What is known of both. `start`: where the home's log begins. `ours`: as whom the link writes. `known_to`: how far
    the twin is known to be a copy. `compacted`: the home may lack what it has cleaned."""

    start: int
    ours: Container[int]
    known_to: int
    compacted: bool = False


@dataclass(slots=True)
class _Passed:
    """The records of the home that were passed last, by what they hold."""

    digests: deque[bytes] = field(default_factory=deque)
    counts: Counter[bytes] = field(default_factory=Counter)

    def note(self, record: Record) -> None:
        digest = _digest(record)
        self.digests.append(digest)
        self.counts[digest] += 1
        if len(self.digests) > BESIDE_MAX:
            gone = self.digests.popleft()
            self.counts[gone] -= 1
            if not self.counts[gone]:
                del self.counts[gone]

    def holds(self, record: Record) -> bool:
        return _digest(record) in self.counts


def lacking(twin: Iterable[Written], home: Iterable[Record], seen: Beside) -> Iterator[Saved]:
    """The twin's records that the home lacks, in order. Both come in the order of their offsets, without markers."""
    passed, rest = _Passed(), iter(home)
    one = next(rest, None)
    for written in twin:
        record, ours = written.saved.record, written.producer_id in seen.ours
        while one is not None and one.offset < record.offset:
            passed.note(one)
            one = next(rest, None)
        there = one is not None and one.offset == record.offset
        if one is not None and there and _same(one, record):
            continue
        if record.offset < seen.start and (ours or record.offset < seen.known_to):
            continue  # its home has deleted it by now
        if ours and (passed.holds(record) or (seen.compacted and not there)):
            continue
        yield written.saved


def _same(one: Record, other: Record) -> bool:
    return one[1:] == other[1:]


def _digest(record: Record) -> bytes:
    return blake2b(repr(record[1:]).encode(), digest_size=DIGEST_BYTES).digest()
