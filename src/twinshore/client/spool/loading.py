"""What an earlier process left in a spool: read once, from its first byte to its last. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from twinshore.client.spool.books import Left, Mark, Marks, Place, TopicBook, read_marks
from twinshore.client.spool.files import SpoolFiles
from twinshore.client.spool.frames import HEADER_BYTES, Framed, SegmentHeader, read_header
from twinshore.client.spool.scanning import Gap, GapKind, scan
from twinshore.fleet.sentences import counted


@dataclass(slots=True)
class Segment:
    """`left`: how many records of it are not done. `gaps`: bytes that are none, by where they begin."""

    sequence: int
    salt: int
    end: int
    left: int = 0
    topics: set[str] = field(default_factory=set)
    gaps: dict[int, Gap] = field(default_factory=dict)


@dataclass(slots=True)
class Tally:
    """What of a topic is to be sent. `oldest_ms`: when the oldest of it was kept back."""

    records: int = 0
    bytes: int = 0
    oldest_ms: int = 0

    def add(self, size: int, made_ms: int) -> None:
        self.oldest_ms = min(self.oldest_ms, made_ms) if self.records else made_ms
        self.records += 1
        self.bytes += size


@dataclass(frozen=True, slots=True)
class Trouble:
    """Bytes of a file that are no record."""

    file: str
    gap: Gap

    def sentence(self) -> str:
        size = counted(self.gap.until - self.gap.at, "byte")
        where = f"{self.file}: {size} from byte {self.gap.at} on"
        match self.gap.kind:
            case GapKind.TORN:
                return f"{where} are of a write that never ended: no call that returned is lost"
            case GapKind.UNFINISHED:
                return f"{where} cannot be read; they are of the last write there, which may never have ended"
            case _:
                return f"{where} were on the disk and cannot be read now: the records that they held are lost"


@dataclass(slots=True)
class Loaded:
    marks: Marks
    marks_are_readable: bool
    next_number: int = 0
    segments: dict[int, Segment] = field(default_factory=dict)
    books: dict[str, TopicBook] = field(default_factory=dict)
    tallies: dict[str, Tally] = field(default_factory=dict)
    left: dict[str, Left] = field(default_factory=dict)
    troubles: list[Trouble] = field(default_factory=list)

    @property
    def damage(self) -> list[Trouble]:
        return [one for one in self.troubles if one.gap.kind is GapKind.DAMAGED]

    def _take(self, segment: Segment, found: Framed) -> None:
        record = found.record
        book = self.books.get(record.topic)
        if book is None:
            mark = self.marks.topics.get(record.topic, Mark())
            book = self.books[record.topic] = TopicBook(mark)
            self.left[record.topic] = Left(mark.below)
        place = Place(segment.sequence, found.at, found.size)
        segment.topics.add(record.topic)
        self.next_number = max(self.next_number, record.number + 1)
        if book.add_found(record.number, place, covered=(segment.sequence, found.at) < self.marks.end):
            segment.left += 1
            self.tallies.setdefault(record.topic, Tally()).add(found.size, record.made_ms)
            self.left[record.topic].add(record)


def load(files: SpoolFiles) -> Loaded:
    """NotYetError where it was written by a later version."""
    text = files.marks()
    marks = Marks() if text is None else read_marks(text)
    loaded = Loaded(marks or Marks(), marks is not None, (marks or Marks()).next_number)
    last = max(files.salts, default=0)
    for sequence in sorted(files.salts):
        segment = Segment(sequence, files.salts[sequence], files.size(sequence))
        loaded.segments[sequence] = segment
        for one in _segment(files, segment, is_last=sequence == last):
            if isinstance(one, Gap):
                gap = one
                is_past = sequence != last or (sequence, gap.at) < loaded.marks.end
                if is_past and (sequence, gap.at) not in loaded.marks.gaps:
                    # The next segment began when this one was whole; and a mark counts what is on the disk alone.
                    gap = Gap(gap.at, gap.until, GapKind.DAMAGED)
                segment.gaps[gap.at] = gap
                loaded.troubles.append(Trouble(files.path(sequence).name, gap))
            else:
                loaded._take(segment, one)
    return loaded


def _segment(files: SpoolFiles, segment: Segment, *, is_last: bool) -> Iterator[Framed | Gap]:
    """Its records and gaps. A header that cannot be read is one of these: its name says the salt too."""
    read = files.reading(segment.sequence)
    header = read_header(read(0, HEADER_BYTES))
    if header is None:
        if segment.end <= HEADER_BYTES and is_last:
            yield Gap(0, segment.end, GapKind.TORN)
            return
        yield Gap(0, min(HEADER_BYTES, segment.end), GapKind.DAMAGED)
    yield from scan(read, SegmentHeader(segment.sequence, 0, segment.salt), segment.end)
