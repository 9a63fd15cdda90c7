"""Reads a spool back in portions, of each topic in the order of its records' numbers. For one thread.

What is ahead lies in that order and is read a portion at a time; what was given back, or came late, is read one by one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping

from twinshore.client.spool.books import Place, TopicBook
from twinshore.client.spool.files import SpoolFiles
from twinshore.client.spool.frames import HEADER_BYTES, Framed, SpoolRecord
from twinshore.client.spool.loading import Segment
from twinshore.client.spool.scanning import Pages
from twinshore.fleet import RefusedError

READ_BYTES = 256 << 10
Placed = tuple[SpoolRecord, Place]


class Portions:
    """`guard` is held where `segments` and `books` are changed."""

    def __init__(
        self,
        files: SpoolFiles,
        guard: threading.Lock,
        segments: Mapping[int, Segment],
        books: Mapping[str, TopicBook],
    ) -> None:
        self._files, self._guard = files, guard
        self._segments, self._books = segments, books
        self._ready: dict[str, deque[Placed]] = {}
        self._back: dict[str, Placed] = {}  # the first of what was given back, once it was read
        self._cursors: dict[str, tuple[int, int]] = {}
        self._heads: dict[str, tuple[Placed, bool]] = {}  # as they were told, and whether each had been given back

    def prepare(self, topic: str) -> None:
        ready = self._ready.setdefault(topic, deque())
        with self._guard:
            book = self._books.get(topic)
            if book is None or not book.ahead or ready:
                return
            assert book.begin is not None, "what is ahead begins somewhere"
            cursor = self._cursors.get(topic, (book.begin.segment, book.begin.at))
            ends = [(one, one.end) for number, one in sorted(self._segments.items()) if number >= cursor[0]]
        size = 0
        for segment, end in ends:
            at = cursor[1] if segment.sequence == cursor[0] else HEADER_BYTES
            if topic not in segment.topics:
                at = end
            pages = Pages(self._files.reading(segment.sequence), end)
            while at < end and size < READ_BYTES:
                if at in segment.gaps:
                    at = segment.gaps[at].until
                    continue
                found = self._readable(pages.frame_at(at, segment.salt), segment, at)
                if found.record.topic == topic and book.meet(found.record.number):
                    ready.append((found.record, Place(segment.sequence, at, found.size)))
                    size += found.size
                at += found.size
            self._cursors[topic] = (segment.sequence, at)
            if size >= READ_BYTES:
                return

    def head(self, topic: str) -> SpoolRecord | None:
        """The next one to be sent; None where all is sent, or where the next portion must be prepared first."""
        found = self._head(topic)
        if found is None:
            self._heads.pop(topic, None)
            return None
        self._heads[topic] = found
        return found[0][0]

    def handed_out(self, topic: str, number: int) -> None:
        """The head was sent. Other threads may have kept calls since it was told, which changes what comes next."""
        found, came_back = self._heads.pop(topic)
        assert found[0].number == number, "only a head is handed out"
        if came_back:
            self._back.pop(topic, None)
        else:
            self._ready[topic].popleft()
        with self._guard:
            self._books[topic].handed_out(number, found[1], came_back=came_back)

    def forget(self, topic: str) -> None:
        """Nothing of it is on the disk any more."""
        self._ready.pop(topic, None)
        self._back.pop(topic, None)
        self._cursors.pop(topic, None)
        self._heads.pop(topic, None)

    def _head(self, topic: str) -> tuple[Placed, bool] | None:
        ready = self._ready.get(topic)
        with self._guard:
            book = self._books.get(topic)
            back = book.back[0] if book and book.back else None
            must_prepare = bool(book and book.ahead and not ready)
        if must_prepare:
            return None
        if back is None or (ready and ready[0][0].number < back[0]):
            return (ready[0], False) if ready else None
        number, place = back
        kept = self._back.get(topic)
        if kept is None or kept[0].number != number:
            segment = self._segments[place.segment]
            pages = Pages(self._files.reading(place.segment), place.at + place.size)
            kept = self._readable(pages.frame_at(place.at, segment.salt), segment, place.at).record, place
            self._back[topic] = kept
        return kept, True

    def _readable(self, found: Framed | None, segment: Segment, at: int) -> Framed:
        if found is None:
            raise RefusedError(f"{self._files.path(segment.sequence)}: the record at byte {at} cannot be read any more")
        return found
