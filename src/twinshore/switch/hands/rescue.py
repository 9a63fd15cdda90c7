"""Saves what an old home took and never sent, before anything of it is deleted: one file for each partition."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from twinshore.fleet import ConfigError, KafkaError, NamedPartition
from twinshore.kafka.cluster import KafkaCluster, OffsetKind
from twinshore.switch.lacking import Beside, Written, lacking
from twinshore.switch.rescued import (
    Count,
    Fate,
    Fates,
    Place,
    Saved,
    head_line,
    last_line,
    read_head,
    read_lines,
    record_line,
)
from twinshore.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader, check_crc, split_batches
from twinshore.wire.records import Record, iter_records

PAGE_BYTES = 1 << 20
SUFFIX = ".jsonl"


@dataclass(frozen=True, slots=True)
class Home:
    """The cluster where the topic is at home, so that what it holds as well is not saved; and what is known of both."""

    cluster: KafkaCluster
    beside: Beside


def records_of(cluster: KafkaCluster, place: Place, home: Home | None = None) -> Iterator[Saved]:
    """The records of the tail, in order, each with what became of it; with `home` those alone that it lacks. The tail
    is read twice: the end of a transaction lies behind its records. KafkaError where it cannot be read to its end."""
    if home is None:
        return (one.saved for one in _written(cluster, place))
    theirs = _held(home.cluster, replace(place, first=max(place.first, home.beside.start)))
    return lacking(_written(cluster, place), theirs, home.beside)


def _written(cluster: KafkaCluster, place: Place) -> Iterator[Written]:
    fates = Fates()
    for view, header in _batches(cluster, place):
        if header.attributes & CONTROL:
            for one in iter_records(view, header):
                fates.note(header.producer_id, one.offset, one.key)
    for view, header in _batches(cluster, place):
        if header.attributes & CONTROL:
            continue
        bound = header.attributes & TRANSACTIONAL
        for one in iter_records(view, header):
            if place.first <= one.offset < place.end:
                fate = fates.of(header.producer_id, one.offset) if bound else Fate.COMMITTED
                yield Written(Saved(one, fate), header.producer_id)


def _held(cluster: KafkaCluster, place: Place) -> Iterator[Record]:
    """What the home holds there now, as far as it goes."""
    named = NamedPartition(place.topic, place.partition)
    end = cluster.list_offsets([named], OffsetKind.HIGH_WATERMARK)[named]
    for view, header in _batches(cluster, replace(place, end=min(end, place.end))):
        if not header.attributes & CONTROL:
            yield from iter_records(view, header)


def counted_tail(cluster: KafkaCluster, place: Place, home: Home | None = None) -> Count:
    """How many records would be saved; nothing is."""
    count = Count()
    for one in records_of(cluster, place, home):
        count = count.with_one(one.fate)
    return count


def save(cluster: KafkaCluster, place: Place, folder: Path, home: Home | None = None) -> tuple[Path, Count]:
    """The tail's file, on the disk once this returns. Done twice it is the same file. ConfigError where it cannot be
    written."""
    path, count = folder / place.file_name(), Count()
    part = path.with_name(f"{path.name}.part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with part.open("w", encoding="utf-8") as file:
            file.write(head_line(place) + "\n")
            for one in records_of(cluster, place, home):
                file.write(record_line(one) + "\n")
                count = count.with_one(one.fate)
            file.write(last_line(count) + "\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _keep_names(folder)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise ConfigError(f"{path} cannot be written: {error.strerror}", hint="say --folder") from error
    return path, count


def read_place(path: Path) -> Place:
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


def _batches(cluster: KafkaCluster, place: Place) -> Iterator[tuple[memoryview, BatchHeader]]:
    named, position = NamedPartition(place.topic, place.partition), place.first
    while position < place.end:
        fetched = cluster.read_from(named, position, bytes_max=PAGE_BYTES, committed=False)
        found = split_batches(fetched.records)
        if not found:
            # What is deleted next must not be left out for an answer that was empty once.
            raise KafkaError(f"{cluster.name}: {named} cannot be read from offset {position} on", retriable=True)
        for view, header in found:
            check_crc(view, header)
            if header.base_offset >= place.end:
                return
            yield view, header
        position = max(position, found[-1][1].last_offset + 1)


def _keep_names(folder: Path) -> None:
    """So that the file's name outlives a crash of the machine, too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
