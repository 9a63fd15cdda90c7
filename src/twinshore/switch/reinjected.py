"""Rescued records as they are written again: in which batches, and how far that went. Pure.

Each pass over a file has a separate producer, and its batches are the same at each attempt. So a batch whose answer
was lost is known to its broker when it comes again, and whoever was killed goes on with the batch that was under way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

from twinshore.fleet import WireError
from twinshore.switch.rescued import Ending, Origin, Saved
from twinshore.wire.records import Record

HEADER = b"twinshore-rescued"
COMMITTED, OTHERS = "committed", "others"
BATCH_RECORDS = 500
BATCH_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Pass:
    """The records of a file that are written in one go: the committed ones, or else the others. `digest` names the file
    by what it holds, wherever it lies."""

    digest: str
    topic: str
    committed: bool

    @property
    def subject(self) -> str:
        return f"{self.digest} {self.topic} {COMMITTED if self.committed else OTHERS}"

    def admits(self, saved: Saved) -> bool:
        return (saved.ending is Ending.COMMITTED) is self.committed


@dataclass(frozen=True, slots=True)
class Progress:
    """As whom the records are written, how many have been, and whether that was all. A producer's id means something on
    the `cluster` alone that has given it; empty where an earlier version did not say which."""

    producer_id: int
    producer_epoch: int
    written: int = 0
    whole: bool = False
    cluster: str = ""

    def on(self, records: int) -> Progress:
        return replace(self, written=self.written + records)

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Progress:
        """WireError where it is none."""
        try:
            return Progress(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise WireError("how far a rescued file was written again cannot be read") from error


def batches(saved: Iterable[Saved], origin: Origin, which: Pass) -> Iterator[list[Record]]:
    """The pass's records, offsets from 0 in each batch. Key, value, headers and time stamps are kept; one header more
    says where the record lay."""
    some: list[Record] = []
    size = 0
    for one in saved:
        if not which.admits(one):
            continue
        record = one.record
        weight = len(record.key or b"") + len(record.value or b"")
        weight += sum(len(name) + len(value or b"") for name, value in record.headers)
        if some and (len(some) == BATCH_RECORDS or size + weight > BATCH_BYTES):
            yield some
            some, size = [], 0
        whence = f"{origin.cluster} {origin.topic}-{origin.partition} {record.offset}".encode()
        some.append(record._replace(offset=len(some), headers=(*record.headers, (HEADER, whence))))
        size += weight
    if some:
        yield some


def left(batches_of: Iterable[list[Record]], written: int) -> Iterator[tuple[int, list[Record]]]:
    """The batches that are not written yet, each with its first sequence."""
    at = 0
    for records in batches_of:
        if at >= written:
            yield at, records
        at += len(records)
