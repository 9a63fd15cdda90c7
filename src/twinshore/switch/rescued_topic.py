"""Topic `twinshore.rescued` on the home cluster: how to write, read, and export rescued records."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from twinshore.config.errors import ConfigError
from twinshore.config.frozen import RESCUED_TOPIC
from twinshore.config.model import TopicPartition
from twinshore.config.private_files import make_private_folder, private_opener, sync_folder
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.protocol.record_batch import Record
from twinshore.kafka.state_topic import StateTopic
from twinshore.switch.core.unreplicated import (
    RecordCount,
    RescueCopies,
    RescueCopy,
    RescueOrigin,
    UnreplicatedRecord,
    count_line,
    header_line,
    is_count_line,
    read_lines,
    record_line,
    rescue_key,
)
from twinshore.switch.fencing import append_batch

# A line is a third larger than its record.
LINE_BYTES_MAX = 64 << 20
TOPIC_SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(LINE_BYTES_MAX),
}
BATCH_BYTES = 256 * 1024


class RescuedTopic:
    """Methods raise KafkaError if a write fails, or if the topic cannot be read to the end."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster, self._notes = cluster, StateTopic(cluster, RESCUED_TOPIC)

    def save(self, origin: RescueOrigin, records: Iterable[UnreplicatedRecord]) -> tuple[RescueCopy, RecordCount]:
        """Saves a new copy of the records; on return all in-sync replicas have the copy. Nothing is overwritten."""
        self._make()
        copy, count = RescueCopy(self._notes.end(), rescue_key(origin, secrets.token_hex(4))), RecordCount()
        writer = self._cluster.init_producer_id()
        some: list[Record] = []
        size = written = 0
        for line, record in _lines(origin, records):
            count = count.with_one(record.ending) if record else count
            some.append(Record(len(some), wall_ms(), copy.key, line))
            size += len(line)
            if size >= BATCH_BYTES:
                written = self._append(writer, written, some)
                some, size = [], 0
        some.append(Record(len(some), wall_ms(), copy.key, count_line(count).encode()))
        self._append(writer, written, some)
        return copy, count

    def read(self, copy: RescueCopy) -> Iterator[str]:
        begun = False
        for notes, _ in self._notes.pages(copy.at):
            for note in notes:
                if note.key != copy.key or note.value is None:
                    continue
                yield note.value.decode()
                if begun and is_count_line(note.value):
                    return
                begun = True

    def count(self, copy: RescueCopy) -> RecordCount:
        """Counts the records of the copy. Raises WireError if the copy is incomplete."""
        lines, count = self.read(copy), RecordCount()
        next(lines, "")
        for record in read_lines(lines, RESCUED_TOPIC):
            count = count.with_one(record.ending)
        return count

    def copies(self) -> dict[RescueOrigin, tuple[RescueCopy, RecordCount]]:
        """Returns the complete copies by origin; the newest of several."""
        found = RescueCopies()
        if self._notes.exists():
            for notes, _ in self._notes.pages(0):
                for note in notes:
                    found.take(note.offset, note.key, note.value)
        return found.whole

    def _make(self) -> None:
        """Creates the topic, or restores the settings: else the records would expire."""
        if not self._notes.exists():
            self._notes.make(TOPIC_SETTINGS, lasting=True)
            return
        stands = self._cluster.admin.topic_settings([RESCUED_TOPIC]).get(RESCUED_TOPIC, {})
        wrong = {
            name: value for name, value in TOPIC_SETTINGS.items() if name not in stands or stands[name].value != value
        }
        if wrong:
            self._cluster.admin.alter_topic_settings(RESCUED_TOPIC, wrong, topic_id=self._notes.seen()[0])

    def _append(self, writer: tuple[int, int], written: int, records: list[Record]) -> int:
        append_batch(self._cluster, TopicPartition(RESCUED_TOPIC, 0), writer, written, records)
        return written + len(records)


def export(lines: Iterable[str], path: Path) -> None:
    """Writes the lines of a copy to a file, durable on return. Idempotent. Raises ConfigError if the file cannot be
    written.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        make_private_folder(path.parent)
        with open(part, "w", encoding="utf-8", opener=private_opener) as file:
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise ConfigError("switch.file-not-written", file=str(path), cause=error.strerror) from error


def _lines(
    origin: RescueOrigin, records: Iterable[UnreplicatedRecord]
) -> Iterator[tuple[bytes, UnreplicatedRecord | None]]:
    yield header_line(origin).encode(), None
    for record in records:
        yield record_line(record).encode(), record
