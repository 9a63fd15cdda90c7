"""What an old home took and never sent: read from its log, and from the files to which it was exported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from twinshore.fleet import ConfigError, KafkaError, NamedPartition
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.mirror.follow.memories import cleaned_of
from twinshore.store import Store
from twinshore.switch.hands.returned_logs import producers
from twinshore.switch.lacking import Beside, Written, lacking
from twinshore.switch.rescued import (
    Count,
    Ending,
    Endings,
    Origin,
    Saved,
    read_head,
    read_lines,
)
from twinshore.switch.returned import Tail
from twinshore.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader, check_crc, split_batches
from twinshore.wire.records import Record, iter_records

PAGE_BYTES = 1 << 20
SUFFIX = ".jsonl"


@dataclass(frozen=True, slots=True)
class KnownHome:
    """The cluster where the topic is at home, so that what it holds as well is not saved; and what is known of both."""

    cluster: KafkaCluster
    beside: Beside


def known_home(link: str, tail: Tail, home: KafkaCluster, store: Store, known_to: int) -> KnownHome:
    """The home beside which the tail is read. `link` writes the twin."""
    named = NamedPartition(tail.topic, tail.partition)
    start = home.list_offsets([named], OffsetKind.EARLIEST)[named]
    compacted = tail.topic in cleaned_of(store.memories.of(link))
    return KnownHome(home, Beside(start, producers(store, link), known_to, compacted))


def records_of(cluster: KafkaCluster, origin: Origin, home: KnownHome | None = None) -> Iterator[Saved]:
    """The records of the tail, in order, each with what became of it; with `home` those alone that it lacks. The tail
    is read twice: the end of a transaction lies behind its records. KafkaError where it cannot be read to its end."""
    if home is None:
        return (one.saved for one in _written(cluster, origin))
    theirs = _held(home.cluster, replace(origin, first=max(origin.first, home.beside.start)))
    return lacking(_written(cluster, origin), theirs, home.beside)


def _written(cluster: KafkaCluster, origin: Origin) -> Iterator[Written]:
    endings = Endings()
    for view, header in _batches(cluster, origin):
        if header.attributes & CONTROL:
            for one in iter_records(view, header):
                endings.note(header.producer_id, one.offset, one.key)
    for view, header in _batches(cluster, origin):
        if header.attributes & CONTROL:
            continue
        bound = header.attributes & TRANSACTIONAL
        for one in iter_records(view, header):
            if origin.first <= one.offset < origin.end:
                ending = endings.of(header.producer_id, one.offset) if bound else Ending.COMMITTED
                yield Written(Saved(one, ending), header.producer_id)


def _held(cluster: KafkaCluster, origin: Origin) -> Iterator[Record]:
    """What the home holds there now, as far as it goes."""
    named = NamedPartition(origin.topic, origin.partition)
    end = cluster.list_offsets([named], OffsetKind.HIGH_WATERMARK)[named]
    for view, header in _batches(cluster, replace(origin, end=min(end, origin.end))):
        if not header.attributes & CONTROL:
            yield from iter_records(view, header)


def counted_tail(cluster: KafkaCluster, origin: Origin, home: KnownHome | None = None) -> Count:
    """How many records would be saved; nothing is."""
    count = Count()
    for one in records_of(cluster, origin, home):
        count = count.with_one(one.ending)
    return count


def read_origin(path: Path) -> Origin:
    """What a file of a rescued tail says of itself. ConfigError where there is none."""
    try:
        with path.open(encoding="utf-8") as file:
            return read_head(file.readline(), path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="`twinshore switch rescue list` shows") from error


def read_saved(path: Path) -> Iterator[Saved]:
    """The records of a file. ConfigError where it cannot be read; WireError where it is not whole."""
    try:
        with path.open(encoding="utf-8") as file:
            file.readline()
            yield from read_lines(file, path.name)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _batches(cluster: KafkaCluster, origin: Origin) -> Iterator[tuple[memoryview, BatchHeader]]:
    named, position = NamedPartition(origin.topic, origin.partition), origin.first
    while position < origin.end:
        fetched = cluster.read_from(named, position, bytes_max=PAGE_BYTES, committed=False)
        found = split_batches(fetched.records)
        if not found:
            # What is deleted next must not be left out for an answer that was empty once.
            raise KafkaError(f"{cluster.name}: {named} cannot be read from offset {position} on", retriable=True)
        for view, header in found:
            check_crc(view, header)
            if header.base_offset >= origin.end:
                return
            yield view, header
        position = max(position, found[-1][1].last_offset + 1)
