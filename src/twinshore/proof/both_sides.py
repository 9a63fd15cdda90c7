"""The hands of a prover: both logs of a partition, read beside each other or a few records at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from twinshore.fleet import NamedPartition, WireError
from twinshore.kafka.cluster import KafkaCluster
from twinshore.logs.reader import LogReader, Pace
from twinshore.proof.chunks import Chunk, Chunker, nothing
from twinshore.proof.placing import Placement, without
from twinshore.proof.record_bytes import record_at
from twinshore.proof.values import Stretch
from twinshore.wire.records import Record

CLIENT_ID = "twinshore-proof"


@dataclass(slots=True)
class BothSides:
    """`read_bytes` is all that came, within the stretch's bound of bytes per second."""

    stretch: Stretch
    source: KafkaCluster
    target: KafkaCluster
    read_bytes: int = 0
    _pace: Pace = field(init=False)

    def __post_init__(self) -> None:
        self._pace = Pace(self.stretch.bytes_s)

    def beside(
        self, at: int, target_at: int, end: int, target_end: int, compare: Callable[[LogReader, LogReader], bool]
    ) -> bool:
        """What `compare` says of both, read from these offsets on."""
        with (
            self.reading(self.source, self.stretch.named, at, end) as ours,
            self.reading(self.target, self.stretch.twin_named, target_at, target_end) as theirs,
        ):
            return compare(ours, theirs)

    def records(
        self,
        kafka: KafkaCluster,
        named: NamedPartition,
        at: int,
        end: int,
        most: int,
        placement: Placement | None = None,
        dropped: Sequence[tuple[int, int]] = (),
    ) -> list[Record]:
        """The first records from `at` on, below `end`, but for what was dropped; at the source's offsets where a
        placement says so."""
        with self.reading(kafka, named, at, end) as reader:
            chunks = without(named_chunks(reader, kafka), dropped)
            placed = placement.placed(chunks) if placement else chunks
            return list(islice(_seen(placed, reader, at, end), most))

    @contextlib.contextmanager
    def reading(self, kafka: KafkaCluster, named: NamedPartition, at: int, end: int) -> Iterator[LogReader]:
        """A reader whose bytes are counted; it is closed behind the block."""
        reader = LogReader(kafka, named, at, end, self._pace, client_id=CLIENT_ID)
        try:
            yield reader
        finally:
            self.read_bytes += reader.read_bytes
            reader.close()


def _seen(chunks: Iterator[Chunk], reader: LogReader, at: int, end: int) -> Iterator[Record]:
    """What consumers see there. A batch in the midst of which the log begins is handed out whole by its broker."""
    for chunk in chunks:
        data, rows = chunk.opened()
        for row in rows:
            record = record_at(data, row)
            if max(at, reader.skipped_to) <= record.offset < end:
                yield record._replace(offset=record.offset + chunk.shift)


def chunks_of(reader: LogReader) -> Iterator[Chunk]:
    """All that it reads, without a gap; each chunk is good until the next is asked for."""
    chunker = Chunker()
    for fetched in reader.fetches():
        if len(fetched.records):
            yield from chunker.chunks(fetched.records, fetched.aborted)
        else:
            yield nothing(fetched.end)


def named_chunks(reader: LogReader, kafka: KafkaCluster) -> Iterator[Chunk]:
    """The reader's chunks; what is corrupt is said to be on that cluster."""
    chunks = chunks_of(reader)
    while True:
        try:
            chunk = next(chunks, None)
        except WireError as error:
            raise error.within(kafka.name) from error
        if chunk is None:
            return
        yield chunk
