"""When each offset of a source's partition was first seen there, so that a recovery point is an age of arrival.

A record's own timestamp says when it was made: a backfill brings last year's in a minute, and a producer's clock may be
wrong. Pure: moments come in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

MARKS_MAX = 64


class Arrivals:
    """Marks of one partition: (moment, end), both rising; all offsets below that end were there at that moment."""

    __slots__ = ("_marks", "end")

    def __init__(self) -> None:
        self.end = -1
        self._marks: deque[tuple[float, int]] = deque()

    def saw(self, end: int, now_s: float) -> None:
        """The source's end was there. A source that lost its end is believed."""
        if end < self.end:
            while self._marks and self._marks[-1][1] > end:
                last = self._marks.pop()
                if not self._marks or self._marks[-1][1] < end:
                    self._marks.append((last[0], end))
                    break
        elif end > self.end:
            self._marks.append((now_s, end))
            if len(self._marks) > MARKS_MAX:
                self._thin()
        self.end = end

    def recall(self, marks: Sequence[tuple[float, int]]) -> None:
        """What was seen before all that is known here, as far as the source still has it."""
        older = [mark for mark in marks if mark[1] < self.end]
        if len(older) < len(marks):
            older.append((marks[len(older)][0], self.end))
        last = older[-1][1] if older else -1
        self._marks = deque([*older, *(mark for mark in self._marks if mark[1] > last)])

    def missing(self, reached: int) -> list[tuple[float, int]]:
        """The marks that lie beyond this offset, oldest first."""
        return [mark for mark in self._marks if mark[1] > reached]

    def age_s(self, reached: int, now_s: float) -> float:
        """For how long the oldest offset from `reached` on has been seen; 0 when there is none. Never too small by
        thinning."""
        while self._marks and self._marks[0][1] <= reached:
            self._marks.popleft()
        return max(0.0, now_s - self._marks[0][0]) if self._marks else 0.0

    def _thin(self) -> None:
        """Every second mark is joined to the one before it: its offsets count as seen a little too early."""
        kept: deque[tuple[float, int]] = deque()
        marks = list(self._marks)
        for first, second in zip(marks[::2], marks[1::2], strict=False):
            kept.append((first[0], second[1]))
        if len(marks) % 2:
            kept.append(marks[-1])
        self._marks = kept
