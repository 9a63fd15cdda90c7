"""Rescued records as they are written again: in which batches, and what a topic's home has of them. Pure.

A record is known by where it lay: cluster, topic id, partition and offset, in whichever file it is. A batch is told
before it is sent and once it is answered. So a batch whose answer was lost is known to its broker when it comes again,
and what was written at a home that died before it crossed counts no more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from twinshore.fleet import WireError
from twinshore.store.receipt_rules import PRODUCER_AGE_MS
from twinshore.switch.deeds import Kind
from twinshore.switch.record import Record as Switch
from twinshore.switch.rescued import Origin, Saved
from twinshore.wire.records import Record

HEADER = b"twinshore-rescued"
BATCH_RECORDS = 500
BATCH_BYTES = 256 * 1024
UNDER_WAY = 1 << 62


@dataclass(frozen=True, slots=True)
class Batch:
    """Records that were written to `topic`, where it was at home in `term`. `runs`: the first and the last offset of
    each run of them in the log where they lay; `end`: behind the last one where they lie now, `UNDER_WAY` until that
    is answered. A producer's id means something on the `cluster` alone that has given it. `told_ms`: before it was sent
    first."""

    topic: str
    cluster: str
    term: int
    producer_id: int
    producer_epoch: int
    sequence: int
    runs: tuple[tuple[int, int], ...]
    end: int = UNDER_WAY
    told_ms: int = 0

    def subject(self, origin: Origin) -> str:
        return f"{log_of(origin)}{self.topic} {self.runs[0][0]}"

    def is_doubtful(self, home: str, now_ms: int) -> bool:
        """Whether the home cannot be asked for it by sending it again: it was sent to another cluster, or so long ago
        that brokers forget who sent it."""
        return self.end == UNDER_WAY and (self.cluster != home or now_ms - self.told_ms >= PRODUCER_AGE_MS)

    def is_lost(self, partition: int, switches: Iterable[Switch]) -> bool:
        """Whether a switch by force left it behind on its cluster since."""
        return any(
            one.kind is Kind.FORCED
            and one.committed
            and one.old == self.cluster
            and any(
                moved.topic == self.topic and moved.term >= self.term and self.end > point
                for moved in one.topics
                for point in moved.points[partition : partition + 1]
            )
            for one in switches
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Batch:
        """WireError where it is none."""
        try:
            raw = json.loads(text)
            return Batch(**{**raw, "runs": tuple((int(first), int(last)) for first, last in raw["runs"])})
        except (ValueError, TypeError, KeyError) as error:
            raise WireError("what was written again of a rescued file cannot be read") from error


def log_of(origin: Origin) -> str:
    """What the subjects of all its batches begin with."""
    return f"{origin.topic_id} {origin.partition} "


def runs_of(some: Iterable[Saved]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for one in some:
        at = one.record.offset
        first = found.pop()[0] if found and found[-1][1] == at - 1 else at
        found.append((first, at))
    return tuple(found)


def offsets_of(some: Iterable[Batch]) -> set[int]:
    return {at for batch in some for first, last in batch.runs for at in range(first, last + 1)}


def batches(saved: Iterable[Saved]) -> Iterator[list[Saved]]:
    some: list[Saved] = []
    size = 0
    for one in saved:
        record = one.record
        weight = len(record.key or b"") + len(record.value or b"")
        weight += sum(len(name) + len(value or b"") for name, value in record.headers)
        if some and (len(some) == BATCH_RECORDS or size + weight > BATCH_BYTES):
            yield some
            some, size = [], 0
        some.append(one)
        size += weight
    if some:
        yield some


def as_written(some: Sequence[Saved], origin: Origin) -> list[Record]:
    """Offsets from 0. Key, value, headers and time stamps are kept; one header more says where each record lay."""
    lay = f"{origin.cluster} {origin.topic}-{origin.partition}"
    return [
        one.record._replace(offset=at, headers=(*one.record.headers, (HEADER, f"{lay} {one.record.offset}".encode())))
        for at, one in enumerate(some)
    ]
