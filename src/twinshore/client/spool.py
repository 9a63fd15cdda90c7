"""The spool: a producer's calls that wait on disk, bounded, and are sent after a restart.

A record is on disk when `commit` returns; threads share syncs. Marks of done records are written at intervals: after a
crash the next process sends what is not done, and a few records that are. A segment is deleted once all its records are
done. The spool knows no broker, home or switch.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakSet

from twinshore.client.core.spool_format import (
    HEADER_BYTES,
    PREFIX_BYTES,
    BlockReader,
    EarlierSends,
    FramedRecord,
    ReadBytes,
    SegmentGap,
    SegmentGapKind,
    SegmentHeader,
    SpoolMarks,
    SpoolPosition,
    SpoolRecord,
    TopicIndex,
    TopicMark,
    body_bytes,
    frame_bytes,
    header_bytes,
    read_header,
    read_marks,
    scan_segment,
)
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.frozen import SPOOL_HOMES_FILE, SPOOL_LOCK_FILE, SPOOL_MARKS_FILE, SPOOL_SEGMENT_ENDING
from twinshore.config.private_files import make_private_folder, private_opener, sync_folder
from twinshore.config.sentences import count_phrase, format_time
from twinshore.kafka.clock import steady_s

Sync = Callable[[int], None]
# Either one syncs all that is needed to read the file again, its length too.
DEFAULT_SYNC: Sync = getattr(os, "fdatasync", os.fsync)
_SEGMENT = re.compile(r"(\d{16})-([0-9a-f]{8})" + re.escape(SPOOL_SEGMENT_ENDING))
LOCK_TRIES, LOCK_RETRY_DELAY_S = 10, 0.05


def _is_ours(name: str) -> bool:
    is_named = name == SPOOL_LOCK_FILE or name.startswith((SPOOL_MARKS_FILE, SPOOL_HOMES_FILE))
    return is_named or _SEGMENT.fullmatch(name) is not None


class SpoolFiles:
    """The folder of a spool: lock, segments, marks. `salts`: each segment's salt, by sequence; both are in the file
    name.
    """

    def __init__(self, folder: Path, *, sync: Sync = DEFAULT_SYNC) -> None:
        self.folder = folder
        self._sync = sync
        self.salts = self._find()
        self._lock = self._active = -1
        self._process = 0  # the process with the lock
        self.sequence, self.end = 0, 0  # current segment, and how far it is synced
        self._doubtful = False

    def _find(self) -> dict[int, int]:
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        found = [one for one in map(_SEGMENT.fullmatch, names) if one]
        return {int(one[1]): int(one[2], 16) for one in found}

    def path(self, sequence: int) -> Path:
        return self.folder / f"{sequence:016d}-{self.salts[sequence]:08x}{SPOOL_SEGMENT_ENDING}"

    # -- one process at a time

    def lock(self) -> None:
        """RefusedError where another producer has the folder, or it holds other files."""
        self._make_folder()
        if strange := sorted(path.name for path in self.folder.iterdir() if not _is_ours(path.name)):
            raise RefusedError("client.spool-with-other-files", folder=str(self.folder), file=strange[0])
        tries = LOCK_TRIES
        while (holder := self._try_lock()) is not None and (tries := tries - 1):
            time.sleep(LOCK_RETRY_DELAY_S)  # `twinshore spool show` takes the lock for a moment
        if holder is not None:
            raise RefusedError("client.spool-in-use", folder=str(self.folder), process=holder)
        self._process = os.getpid()
        _LOCKED.add(self)
        os.truncate(self._lock, 0)
        os.pwrite(self._lock, b"%d\n" % os.getpid(), 0)
        self.salts = self._find()

    def _make_folder(self) -> None:
        """Create the folder, and sync its parents."""
        missing = [one for one in (self.folder, *self.folder.parents) if not one.exists()]
        make_private_folder(self.folder)
        for one in reversed(missing):
            sync_folder(one.parent)

    def holder(self) -> str:
        """The process of the producer that has the folder now, or nothing."""
        if not (self.folder / SPOOL_LOCK_FILE).exists():
            return ""
        holder = self._try_lock()
        self.unlock()
        return holder or ""

    def is_forked(self) -> bool:
        """Whether another process than this one locked the folder."""
        return self._process not in (0, os.getpid())

    def forget(self) -> None:
        """Close the files as they are, as in a forked child: they belong to the parent."""
        self._close_active()
        self.unlock()

    def _try_lock(self) -> str | None:
        import fcntl  # missing on Windows, where only the spool does not work

        self._lock = os.open(self.folder / SPOOL_LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            said = os.pread(self._lock, 32, 0).decode(errors="replace").strip()
            self.unlock()
            return said or "(unknown)"
        return None

    def unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # -- reading

    def size(self, sequence: int) -> int:
        return self.path(sequence).stat().st_size

    def reading(self, sequence: int) -> ReadBytes:
        path = self.path(sequence)

        def read(at: int, size: int) -> bytes:
            with path.open("rb", buffering=0) as file:
                return os.pread(file.fileno(), size, at)

        return read

    def marks(self) -> bytes | None:
        try:
            return (self.folder / SPOOL_MARKS_FILE).read_bytes()
        except FileNotFoundError:
            return None

    # -- writing

    def begin(self, header: SegmentHeader) -> None:
        """Seal the current segment, and begin this one."""
        self.seal()
        self.salts[header.sequence] = header.salt
        path = self.path(header.sequence)
        try:
            self._active = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            self._write(header_bytes(header), 0)
            self._sync(self._active)
            sync_folder(self.folder)
        except BaseException:
            self._close_active()
            del self.salts[header.sequence]
            path.unlink(missing_ok=True)  # the segment was empty
            raise
        self.sequence, self.end = header.sequence, HEADER_BYTES

    def append(self, text: bytes) -> None:
        """Write and sync. OSError where that fails: the text is removed, and the next write must begin a segment."""
        try:
            self._write(text, self.end)
            self._sync(self._active)
        except BaseException:
            self._doubtful = True
            with suppress(OSError):
                self.mend()
            raise
        self.end += len(text)

    def writable(self) -> bool:
        return self._active >= 0

    def mend(self) -> None:
        """Remove what a failed write left. OSError where that fails too: nothing may be written after it."""
        if self._doubtful:
            os.ftruncate(self._active, self.end)
            self._sync(self._active)
            self._doubtful = False
            self._close_active()

    def seal(self) -> None:
        self.mend()
        self._close_active()

    def cut(self, sequence: int, at: int) -> None:
        """Truncate a torn write."""
        with self.path(sequence).open("r+b", buffering=0) as file:
            file.truncate(at)
            self._sync(file.fileno())

    def delete(self, sequence: int, *, at_once: bool = False) -> None:
        """`at_once`: sync the folder before returning."""
        self.path(sequence).unlink(missing_ok=True)
        del self.salts[sequence]
        if at_once:
            sync_folder(self.folder)

    def save_marks(self, text: bytes) -> None:
        """The former ones stay until these are whole."""
        new = self.folder / f"{SPOOL_MARKS_FILE}.new"
        with open(new, "wb", opener=private_opener) as file:
            file.write(text)
            file.flush()
            self._sync(file.fileno())
        new.replace(self.folder / SPOOL_MARKS_FILE)

    def close(self) -> None:
        try:
            self.seal()
        finally:
            self.forget()

    def _write(self, text: bytes, at: int) -> None:
        left = memoryview(text)
        while left:
            written = os.pwrite(self._active, left, at)
            left, at = left[written:], at + written

    def _close_active(self) -> None:
        if self._active >= 0:
            os.close(self._active)
            self._active = -1


_LOCKED = WeakSet[SpoolFiles]()


def _forget_all() -> None:
    """Close files after a fork, or a child would hold the lock."""
    for files in list(_LOCKED):
        files.forget()


if hasattr(os, "register_at_fork"):  # missing on Windows
    os.register_at_fork(after_in_child=_forget_all)


@dataclass(slots=True)
class SpoolSegment:
    """`left`: number of records not done. `gaps`: unreadable bytes, by first byte."""

    sequence: int
    salt: int
    end: int
    left: int = 0
    topics: set[str] = field(default_factory=set)
    gaps: dict[int, SegmentGap] = field(default_factory=dict)


@dataclass(slots=True)
class SpoolTopic:
    """What is to be sent of a topic. `oldest_ms`: when the oldest record was kept."""

    topic: str
    records: int = 0
    bytes: int = 0
    oldest_ms: int = 0

    def add(self, size: int, made_ms: int) -> None:
        self.oldest_ms = min(self.oldest_ms, made_ms) if self.records else made_ms
        self.records += 1
        self.bytes += size

    def sentence(self) -> str:
        size = f"{count_phrase(self.records, 'record')}, {count_phrase(self.bytes, 'byte')}"
        return f"{self.topic}: {size}, kept since {format_time(self.oldest_ms)}"


@dataclass(frozen=True, slots=True)
class SpoolDamage:
    file: str
    gap: SegmentGap

    def sentence(self) -> str:
        size = count_phrase(self.gap.until - self.gap.at, "byte")
        where = f"{self.file}: {size} from byte {self.gap.at} on"
        match self.gap.kind:
            case SegmentGapKind.TORN:
                return f"{where} belong to a write that never ended: no call that returned is lost"
            case SegmentGapKind.UNFINISHED:
                return f"{where} cannot be read; they belong to the last write there, which may never have ended"
            case _:
                return f"{where} were on the disk and cannot be read now: the records that they held are lost"


@dataclass(slots=True)
class LoadedSpool:
    marks: SpoolMarks
    marks_are_readable: bool
    next_number: int = 0
    segments: dict[int, SpoolSegment] = field(default_factory=dict)
    indexes: dict[str, TopicIndex] = field(default_factory=dict)
    tallies: dict[str, SpoolTopic] = field(default_factory=dict)
    left: dict[str, EarlierSends] = field(default_factory=dict)
    troubles: list[SpoolDamage] = field(default_factory=list)

    @property
    def damage(self) -> list[SpoolDamage]:
        return [damage for damage in self.troubles if damage.gap.kind is SegmentGapKind.DAMAGED]

    def _take(self, segment: SpoolSegment, found: FramedRecord) -> None:
        record = found.record
        index = self.indexes.get(record.topic)
        if index is None:
            mark = self.marks.topics.get(record.topic, TopicMark())
            index = self.indexes[record.topic] = TopicIndex(mark)
            self.left[record.topic] = EarlierSends(mark.below)
        place = SpoolPosition(segment.sequence, found.at, found.size)
        segment.topics.add(record.topic)
        self.next_number = max(self.next_number, record.number + 1)
        if index.add_found(record.number, place, covered=(segment.sequence, found.at) < self.marks.end):
            segment.left += 1
            self.tallies.setdefault(record.topic, SpoolTopic(record.topic)).add(found.size, record.made_ms)
            self.left[record.topic].add(record)


def damage_error(folder: Path, damage: Sequence[str]) -> RefusedError:
    """Refuses a spool with damage. `damage`: sentences that begin with a file of the folder."""
    return RefusedError("client.spool-damaged", folder=str(folder), damage=str(folder / damage[0]), count=len(damage))


def load_spool(files: SpoolFiles) -> LoadedSpool:
    """Read the whole spool, without changes. UnsupportedError for a later version."""
    text = files.marks()
    marks = SpoolMarks() if text is None else read_marks(text)
    loaded = LoadedSpool(marks or SpoolMarks(), marks is not None, (marks or SpoolMarks()).next_number)
    last = max(files.salts, default=0)
    for sequence in sorted(files.salts):
        segment = SpoolSegment(sequence, files.salts[sequence], files.size(sequence))
        loaded.segments[sequence] = segment
        for one in _segment(files, segment, is_last=sequence == last):
            if isinstance(one, SegmentGap):
                gap = one
                is_past = sequence != last or (sequence, gap.at) < loaded.marks.end
                if is_past and (sequence, gap.at) not in loaded.marks.gaps:
                    # The next segment began when this one was complete, and marks cover only what was on disk.
                    gap = SegmentGap(gap.at, gap.until, SegmentGapKind.DAMAGED)
                segment.gaps[gap.at] = gap
                loaded.troubles.append(SpoolDamage(files.path(sequence).name, gap))
            else:
                loaded._take(segment, one)
    return loaded


def _segment(files: SpoolFiles, segment: SpoolSegment, *, is_last: bool) -> Iterator[FramedRecord | SegmentGap]:
    """Yields records and gaps. An unreadable header is a gap: the file's name has the salt too."""
    read = files.reading(segment.sequence)
    header = read_header(read(0, HEADER_BYTES))
    if header is None:
        if segment.end <= HEADER_BYTES and is_last:
            yield SegmentGap(0, segment.end, SegmentGapKind.TORN)
            return
        yield SegmentGap(0, min(HEADER_BYTES, segment.end), SegmentGapKind.DAMAGED)
    yield from scan_segment(read, SegmentHeader(segment.sequence, 0, segment.salt), segment.end)


READ_BYTES = 256 << 10
PositionedRecord = tuple[SpoolRecord, SpoolPosition]


SPOOL_BYTES_MAX = 1 << 30
SPOOL_BYTES_MIN = 64 << 10
SEGMENT_BYTES = 16 << 20
MARKS_INTERVAL_S = 0.1


@dataclass(slots=True, eq=False)
class GroupCommit:
    """Calls that share a write and sync."""

    records: list[tuple[SpoolRecord, bytes]] = field(default_factory=list)
    bytes: int = 0
    ended: bool = False
    error: BaseException | None = None


class Spool:
    """A bounded log of kept calls. Any thread may append; one thread reads.

    `bytes_max`: limit on disk. `past_damage`: skip damaged bytes instead of refusing the folder. `notes`: what
    an operator should know about the folder. `left`: by topic, calls that an earlier process may have sent.
    """

    def __init__(
        self,
        folder: Path,
        *,
        bytes_max: int = SPOOL_BYTES_MAX,
        segment_bytes: int = SEGMENT_BYTES,
        past_damage: bool = False,
        sync: Sync = DEFAULT_SYNC,
    ) -> None:
        if bytes_max < SPOOL_BYTES_MIN:
            raise ConfigError("client.argument-too-low", name="spool_bytes_max", value=bytes_max, min=SPOOL_BYTES_MIN)
        self.folder, self.bytes_max = folder, bytes_max
        self._segment_bytes = min(segment_bytes, bytes_max // 8)
        self._files = SpoolFiles(folder, sync=sync)
        self._guard = threading.Lock()
        self._turned = threading.Condition(self._guard)
        self._batch: GroupCommit | None = None
        self._writing = self._closed = False
        self._pending_bytes = 0
        self._is_marked = True
        self._marked_s = steady_s()
        self._ready: dict[str, deque[PositionedRecord]] = {}  # read ahead, a portion at a time
        self._back: dict[str, PositionedRecord] = {}  # the first record that came back, once read
        self._cursors: dict[str, tuple[int, int]] = {}
        self._heads: dict[str, tuple[PositionedRecord, bool]] = {}  # as returned, and whether each had come back
        try:
            self._files.lock()
            self._open(past_damage)
        except OSError as error:
            self._files.close()
            raise ConfigError("client.spool-unreadable", folder=str(folder), cause=error.strerror) from error
        except BaseException:
            self._files.close()
            raise

    def _open(self, past_damage: bool) -> None:
        loaded = load_spool(self._files)
        if loaded.damage and not past_damage:
            raise damage_error(self.folder, [damage.sentence() for damage in loaded.damage])
        self.notes = [f"{self.folder / trouble.sentence()}" for trouble in loaded.troubles]
        if not loaded.marks_are_readable:
            self.notes.append(f"{self.folder}: the marks cannot be read: all records there are sent again")
        self._segments, self._indexes = loaded.segments, loaded.indexes
        self.next_number, self.left = loaded.next_number, loaded.left
        last = self._segments.get(max(self._segments, default=0))
        for gap in list(last.gaps.values()) if last else ():
            if last and gap.kind is SegmentGapKind.TORN and gap.at < HEADER_BYTES:
                # An unfinished new segment: with a later one after it, it would count as damaged.
                self._files.delete(last.sequence, at_once=True)
                del self._segments[last.sequence]
            elif last and gap.kind is SegmentGapKind.TORN:
                self._files.cut(last.sequence, gap.at)
                last.end = gap.at
        self._bytes = sum(segment.end for segment in self._segments.values())
        self._end = max((last.sequence, last.end) if last else (0, 0), loaded.marks.end)
        if self._unfinished() - loaded.marks.gaps:
            self.tend(at_once=True)  # mark the gaps before anything follows them, or they would count as damage

    # -- any thread

    def keep(self, records: Sequence[SpoolRecord], *, beyond: bool = False) -> GroupCommit | None:
        """Add records, in order, to the next batch; `commit` writes it. None where the spool is full, never with
        `beyond`. BufferError in a forked child.
        """
        self._must_be_ours()
        bodies = [(record, body_bytes(record)) for record in records]
        size = sum(PREFIX_BYTES + len(body) for _, body in bodies)
        with self._guard:
            if not beyond and self._bytes + self._pending_bytes + size + HEADER_BYTES > self.bytes_max:
                return None
            batch = self._batch = self._batch or GroupCommit()
            batch.records += bodies
            batch.bytes += size
            self._pending_bytes += size
            for record in records:
                self._indexes.setdefault(record.topic, TopicIndex()).pending += 1
                self.next_number = max(self.next_number, record.number + 1)
            return batch

    def commit(self, batch: GroupCommit) -> None:
        """Return once the batch is on disk; BufferError where nothing of it is."""
        self._must_be_ours()
        with self._turned:
            while not batch.ended and not self._closed and (self._writing or self._batch is not batch):
                self._turned.wait()
            if self._closed and not batch.ended:
                raise BufferError(f"not written to the spool {self.folder}: it is closed")
            if not batch.ended:
                self._writing, self._batch = True, None
        if not batch.ended:
            self._lead(batch)
        if batch.error is not None:
            why = getattr(batch.error, "strerror", None) or str(batch.error) or type(batch.error).__name__
            raise BufferError(f"not written to the spool {self.folder}: {why}") from batch.error

    def _must_be_ours(self) -> None:
        if self._files.is_forked():
            raise BufferError(f"not written to the spool {self.folder}: it belongs to the process that was forked")

    def _lead(self, batch: GroupCommit) -> None:
        places: list[SpoolPosition] = []
        try:
            places = self._write(batch)
        except BaseException as error:
            batch.error = error
            if not isinstance(error, Exception):
                raise
        finally:
            with self._turned:
                self._settle(batch, places)
                self._writing = False
                self._turned.notify_all()

    def _write(self, batch: GroupCommit) -> list[SpoolPosition]:
        files = self._files
        files.mend()
        if not files.writable() or files.end + batch.bytes > self._segment_bytes:
            sequence = self._end[0] + 1
            first = min(record.number for record, _ in batch.records)
            files.begin(SegmentHeader(sequence, first, secrets.randbits(32)))
            with self._guard:
                self._segments[sequence] = SpoolSegment(sequence, files.salts[sequence], HEADER_BYTES)
                self._bytes += HEADER_BYTES
                self._end = (sequence, HEADER_BYTES)
        at, salt, begin = files.end, files.salts[files.sequence], files.end
        frames, places = [], []
        for _, body in batch.records:
            frames.append(frame_bytes(body, begin, salt))
            places.append(SpoolPosition(files.sequence, at, len(frames[-1])))
            at += len(frames[-1])
        files.append(b"".join(frames))
        return places

    def _settle(self, batch: GroupCommit, places: Sequence[SpoolPosition]) -> None:
        batch.ended = True
        self._pending_bytes -= batch.bytes
        for record, _ in batch.records:
            self._indexes[record.topic].pending -= 1
        if not places:
            return
        segment = self._segments[places[0].segment]
        for (record, _), place in zip(batch.records, places, strict=True):
            self._indexes[record.topic].added(record.number, place)
            segment.topics.add(record.topic)
        segment.left += len(places)
        segment.end = places[-1].at + places[-1].size
        self._bytes += batch.bytes
        self._end = (segment.sequence, segment.end)

    def topics(self) -> Mapping[str, int]:
        """Returns the number of records not done, by topic."""
        with self._guard:
            return {topic: left for topic, index in self._indexes.items() if (left := index.left + index.pending)}

    def unsent(self, topic: str = "") -> int:
        """Returns the number of records to send, of one topic or all."""
        with self._guard:
            books = self._indexes.values() if not topic else [self._indexes[topic]] if topic in self._indexes else []
            return sum(index.unsent for index in books)

    def bytes(self) -> int:
        with self._guard:
            return self._bytes

    # -- the thread that reads back

    def prepare(self, topic: str) -> None:
        """Read the topic's next portion of records ahead, unless one waits."""
        ready = self._ready.setdefault(topic, deque())
        with self._guard:
            index = self._indexes.get(topic)
            if index is None or not index.ahead or ready:
                return
            assert index.begin is not None, "what is ahead begins somewhere"
            cursor = self._cursors.get(topic, (index.begin.segment, index.begin.at))
            segments = [segment for number, segment in sorted(self._segments.items()) if number >= cursor[0]]
            ends = [(segment, segment.end) for segment in segments]
        size = 0
        for segment, end in ends:
            at = cursor[1] if segment.sequence == cursor[0] else HEADER_BYTES
            if topic not in segment.topics:
                at = end
            blocks = BlockReader(self._files.reading(segment.sequence), end)
            while at < end and size < READ_BYTES:
                if at in segment.gaps:
                    at = segment.gaps[at].until
                    continue
                found = self._read_record(blocks, segment, at)
                if found.record.topic == topic and index.meet(found.record.number):
                    ready.append((found.record, SpoolPosition(segment.sequence, at, found.size)))
                    size += found.size
                at += found.size
            self._cursors[topic] = (segment.sequence, at)
            if size >= READ_BYTES:
                return

    def head(self, topic: str) -> SpoolRecord | None:
        """Returns the next record, in number order; None where all is sent, or `prepare` must run first."""
        found = self._head(topic)
        if found is None:
            self._heads.pop(topic, None)
            return None
        self._heads[topic] = found
        return found[0][0]

    def _head(self, topic: str) -> tuple[PositionedRecord, bool] | None:
        ready = self._ready.get(topic)
        with self._guard:
            index = self._indexes.get(topic)
            back = index.back[0] if index and index.back else None
            must_prepare = bool(index and index.ahead and not ready)
        if must_prepare:
            return None
        if back is None or (ready and ready[0][0].number < back[0]):
            return (ready[0], False) if ready else None
        number, position = back
        kept = self._back.get(topic)
        if kept is None or kept[0].number != number:
            segment = self._segments[position.segment]
            blocks = BlockReader(self._files.reading(position.segment), position.at + position.size)
            kept = self._back[topic] = self._read_record(blocks, segment, position.at).record, position
        return kept, True

    def _read_record(self, blocks: BlockReader, segment: SpoolSegment, at: int) -> FramedRecord:
        found = blocks.frame_at(at, segment.salt)
        if found is None:
            file = str(self._files.path(segment.sequence))
            raise RefusedError("client.spool-record-unreadable", file=file, position=at)
        return found

    def handed_out(self, topic: str, number: int) -> None:
        """Remove the sent head. Calls kept since may have changed what comes next."""
        found, came_back = self._heads.pop(topic)
        assert found[0].number == number, "only a head is handed out"
        if came_back:
            self._back.pop(topic, None)
        else:
            self._ready[topic].popleft()
        with self._guard:
            self._indexes[topic].handed_out(number, found[1], came_back=came_back)

    def given_back(self, topic: str, number: int) -> None:
        """Send the record again, before those with higher numbers."""
        with self._guard:
            self._indexes[topic].given_back(number)

    def done(self, topic: str, number: int) -> None:
        """Note a broker's acknowledgement, or an error that the caller got."""
        with self._guard:
            place = self._indexes[topic].done(number)
            if place is not None:
                self._segments[place.segment].left -= 1
                self._is_marked = False

    def refused(self, topic: str, number: int) -> None:
        """Keep a record that a broker refused, without a delivery callback, for the next start."""
        with self._guard:
            self._indexes[topic].refuse(number)

    def tend(self, *, at_once: bool = False) -> None:
        """Write marks if due, and delete done segments. OSError where the disk fails."""
        now_s = steady_s()
        with self._guard:
            if not at_once and (self._is_marked or now_s < self._marked_s + MARKS_INTERVAL_S):
                return
            marks = SpoolMarks(
                self.next_number,
                self._end,
                {topic: index.mark() for topic, index in self._indexes.items() if index.below},
                self._unfinished(),
            )
            self._is_marked, self._marked_s = True, now_s
        try:
            self._files.save_marks(marks.text())
        except OSError:
            self._is_marked = False
            raise
        self._delete()

    def _unfinished(self) -> frozenset[tuple[int, int]]:
        gaps = ((segment.sequence, gap) for segment in self._segments.values() for gap in segment.gaps.values())
        return frozenset((sequence, gap.at) for sequence, gap in gaps if gap.kind is SegmentGapKind.UNFINISHED)

    def _delete(self) -> None:
        with self._guard:
            resting = not self._writing and self._batch is None
            if resting and all(not segment.left for segment in self._segments.values()):
                self._files.seal()
            active = self._files.sequence if self._files.writable() or not resting else 0
            done = [segment for segment in self._segments.values() if not segment.left]
            for segment in (segment for segment in done if segment.sequence != active):
                self._files.delete(segment.sequence)
                del self._segments[segment.sequence]
                self._bytes -= segment.end
            named = {topic for segment in self._segments.values() for topic in segment.topics}
            for topic in [one for one, index in self._indexes.items() if not index.pending and one not in named]:
                del self._indexes[topic]
                self._ready.pop(topic, None)
                self._back.pop(topic, None)
                self._cursors.pop(topic, None)
                self._heads.pop(topic, None)

    def close(self, *, mark: bool = True) -> None:
        """`mark=False` ends like a crash. A forked child only closes its file handles."""
        if self._files.is_forked():  # without the lock, which another thread may have held at the fork
            self._files.forget()
            return
        with self._turned:
            self._closed = True
            self._turned.notify_all()
            while self._writing:
                self._turned.wait()
        try:
            if mark:
                self.tend(at_once=True)
        finally:
            self._files.close()
