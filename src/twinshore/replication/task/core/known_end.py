"""What a pump knows of a twin's end, where no sequence guards what comes next, and what may still land there. Pure.

A broker refuses a batch that does not follow our last one. Behind markers, before a pump's first batch, and where it
may have forgotten us, it takes any: so the end must have been seen a moment ago, or be asked for first. A leadership
that went elsewhere and came back may have cut off what we knew of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from twinshore.kafka.protocol.record_batch import duplicate_check_bytes, is_next_in_sequence
from twinshore.replication.task.core.batches import OffsetGap

UNKNOWN_S = -1.0
FAR_FUTURE_MS = 1 << 62
LONG_AGO_S = -1e9
LOG_END_TTL_S = 0.5  # Shorter than a leadership takes to go and, with another's log, to come back.


@dataclass(slots=True)
class KnownLogEnd:
    """`bare`: no sequence of ours may lie at the end. `seen_s`: when the end was seen, `sent_s`: when the last of ours
    was sent. `asking`: the question is on its way. `looked_at_s`: when the last look began. `armed_until_ms`: until
    then the broker surely knows our sequence."""

    bare: bool = True
    seen_s: float = LONG_AGO_S
    sent_s: float = LONG_AGO_S
    asking: bool = False
    looked_at_s: float = 0.0
    armed_until_ms: int = 0

    def begun(self, seen_s: float = LONG_AGO_S) -> None:
        """A pump goes on from there."""
        self.bare, self.seen_s, self.asking = True, seen_s, False

    def sent(self, now_s: float, *, bare: bool) -> None:
        """A batch goes, or (`bare`) markers."""
        self.bare, self.sent_s = bare, now_s

    def arrived(self) -> None:
        """All that was sent is in: so was the end before it."""
        self.seen_s = self.sent_s

    def stale(self, now_s: float) -> bool:
        """Whether it is too long since the end was seen."""
        return now_s - self.seen_s > LOG_END_TTL_S


@dataclass(slots=True)
class ZombieRequests:
    """Requests that were lost, or a dead pump's. Until `until_s` one may still land; 0: none can, UNKNOWN: no look has
    been yet. `kept_ms`: until when brokers know us, if all of those land that we know of. `run`: the markers among
    them."""

    until_s: float = UNKNOWN_S
    kept_ms: int = FAR_FUTURE_MS
    run: OffsetGap | None = None
    # A pump before ours sent some: nobody here knows what.
    foreign: bool = True
    # None of them was read while the source was led in an epoch before this one.
    epoch: int = -1
    # Markers are among those that we know.
    marks: bool = False
    # The pump before knew that its own may be of other offsets than their sequences stand for now, or are markers.
    moved: bool = False
    # Those that we know, by their sequences: the CRC, the offset where they begin, and until when they may land.
    heads: dict[bytes, tuple[bytes, int, float]] = field(default_factory=dict)

    @classmethod
    def none(cls) -> ZombieRequests:
        """Of a twin that no pump was let write before."""
        return cls(until_s=0.0, foreign=False)

    def left(self, epoch: int, until_s: float, *, calm: bool, moved: bool = False) -> None:
        """The pump before has said where it stood, and whether all that it sent had been answered. What may still land
        until then it read in this epoch, or a later one; `moved`: it may be of other offsets than it would seem."""
        self.epoch, self.moved = epoch, moved
        if calm:
            self._over()
        else:
            self.until_s, self.foreign = until_s, True

    def still_s(self, now_s: float) -> float:
        """For how long one may still land; -1 where no look has been."""
        return -1.0 if self.until_s == UNKNOWN_S else max(0.0, self.until_s - now_s)

    def lost(
        self, until_s: float, kept_ms: int, run: OffsetGap | None, heads: Iterable[tuple[bytes, int]] = (), *, led: int
    ) -> None:
        """One more, of which the source showed that it has it when it was `led` in that epoch. `heads`: its headers,
        each with the offset where its batch begins."""
        self.epoch = min(self.epoch, led) if self.until_s else led
        self.until_s, self.kept_ms, self.run = max(self.until_s, until_s), min(self.kept_ms, kept_ms), run
        self.marks = self.marks or run is not None
        for head, base in heads:
            sequences, crc = duplicate_check_bytes(head)
            self.heads[sequences] = crc, base, until_s

    def seen(self, looked_at_s: float, confirm_s: float) -> None:
        """The twin was looked at then, or later: those that had their time by then are in what was seen."""
        if self.until_s == UNKNOWN_S:
            self.until_s = looked_at_s + confirm_s
        elif looked_at_s >= self.until_s:
            self._over()
        else:  # where lines break again and again, they would become ever more
            self.heads = {one: head for one, head in self.heads.items() if head[2] > looked_at_s}

    def landed(self, position: int) -> None:
        """A look found the twin's end: a lost run of markers that is wholly in was all that could be on its way."""
        if self.run is not None and self.run.end == position:
            self._over()
        self.run = None

    def clear_if_expired(self, sent_s: float) -> None:
        """All is in, and its last was sent at that moment: behind the time of the last stray none can land any more,
        and none has landed in between."""
        if 0.0 < self.until_s <= sent_s:
            self._over()

    def may_be_mistaken_for(self, head: bytes, end: int, led: int, *, moved: bool) -> bool:
        """Whether a broker might take the batch, which ends at the offset `end`, for one of these though it holds other
        records: it compares sequences alone. Or one of these might land behind it that is of offsets before, as what is
        passed by takes no sequence; or of what the source has no more: nobody can tell that it has where it is `led` in
        a later epoch than they were read in. Where nobody knows what they hold, any batch may be such a one then, or if
        its sequences have `moved`. Behind a record any marker would land."""
        if self.marks or (self.foreign and (moved or self.moved or led > self.epoch)):
            return True
        sequences, crc = duplicate_check_bytes(head)
        if sequences in self.heads and self.heads[sequences][0] != crc:
            return True
        return any(
            (led > self.epoch or base < end) and is_next_in_sequence(one, sequences)
            for one, (_, base, _) in self.heads.items()
        )

    def reportable_epoch(self, epoch: int, now_s: float) -> int:
        """What may be told of the epoch below the twin's end: whoever comes next takes it for one before which none of
        these was read."""
        alive = self.until_s == UNKNOWN_S or now_s < self.until_s
        return -1 if alive and epoch > self.epoch else epoch

    def may_have_moved(self, sequence_of: Callable[[int], int]) -> bool:
        """Whether one may be of other offsets than its sequences now stand for, or is of markers."""
        theirs = [(int.from_bytes(one[:4], "big"), base) for one, (_, base, _) in self.heads.items()]
        return self.marks or self.moved or any(sequence_of(base) != sequence for sequence, base in theirs)

    def _over(self) -> None:
        self.until_s, self.kept_ms, self.foreign, self.marks, self.moved = 0.0, FAR_FUTURE_MS, False, False, False
        self.heads.clear()
