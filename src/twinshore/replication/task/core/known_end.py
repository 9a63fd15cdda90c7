"""What a task knows of a twin's end where no sequence guards the next request, and what may still land there.

A broker refuses a batch that does not follow our last one, with three exceptions: after markers, before a task's first
batch, and if the broker has forgotten us. Then the end must have been seen a moment ago, or be queried first. A
leadership that moved and came back may have cut off known records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from twinshore.kafka.protocol.record_batch import duplicate_check_bytes, is_next_in_sequence
from twinshore.replication.task.core.batches import OffsetGap

UNKNOWN_S = -1.0
FAR_FUTURE_MS = 1 << 62
LONG_AGO_S = -1e9
LOG_END_TTL_S = 0.5  # Less than a leadership takes to move and come back with another log.


@dataclass(slots=True)
class KnownLogEnd:
    """A twin's end, as known. `bare`: perhaps no sequence of ours there. `seen_s`: when the end was seen; `sent_s`: of
    the last send. `asking`: a query is in flight. `looked_at_s`: start of the last inspection. `armed_until_ms`: until
    then the broker knows our sequence.
    """

    bare: bool = True
    seen_s: float = LONG_AGO_S
    sent_s: float = LONG_AGO_S
    asking: bool = False
    looked_at_s: float = 0.0
    armed_until_ms: int = 0

    def begun(self, seen_s: float = LONG_AGO_S) -> None:
        self.bare, self.seen_s, self.asking = True, seen_s, False

    def sent(self, now_s: float, *, bare: bool) -> None:
        """Notes a sent batch or, `bare`, markers."""
        self.bare, self.sent_s = bare, now_s

    def arrived(self) -> None:
        """All requests landed: the end before the last was right."""
        self.seen_s = self.sent_s

    def stale(self, now_s: float) -> bool:
        return now_s - self.seen_s > LOG_END_TTL_S


@dataclass(slots=True)
class UnresolvedRequests:
    """Requests that were lost, or a dead task's. One may land until `until_s`; 0: none, UNKNOWN_S: not inspected yet.
    `kept_ms`: until when brokers know us if all known ones land. `run`: the markers among them.
    """

    until_s: float = UNKNOWN_S
    kept_ms: int = FAR_FUTURE_MS
    run: OffsetGap | None = None
    # A previous task sent some, with unknown contents.
    foreign: bool = True
    # None of them was read in an earlier leader epoch of the source.
    epoch: int = -1
    # The known ones contain markers.
    marks: bool = False
    # The previous task's may be of other offsets than their sequences mean now, or markers.
    moved: bool = False
    # The known ones by sequences: CRC, base offset, and until when they may land.
    heads: dict[bytes, tuple[bytes, int, float]] = field(default_factory=dict)

    @classmethod
    def none(cls) -> UnresolvedRequests:
        return cls(until_s=0.0, foreign=False)

    def left(self, epoch: int, until_s: float, *, calm: bool, moved: bool = False) -> None:
        """Takes the previous task's report. `calm`: all its requests were answered. Others may land until `until_s`,
        read in `epoch` or later. `moved`: their sequences may be of other offsets.
        """
        self.epoch, self.moved = epoch, moved
        if calm:
            self._over()
        else:
            self.until_s, self.foreign = until_s, True

    def still_s(self, now_s: float) -> float:
        """Seconds in which one may land; -1 before an inspection."""
        return -1.0 if self.until_s == UNKNOWN_S else max(0.0, self.until_s - now_s)

    def lost(
        self, until_s: float, kept_ms: int, run: OffsetGap | None, heads: Iterable[tuple[bytes, int]] = (), *, led: int
    ) -> None:
        """Adds a request. `led`: the source's leader epoch when the source last showed its records. `heads`: batch
        headers with base offsets.
        """
        self.epoch = min(self.epoch, led) if self.until_s else led
        self.until_s, self.kept_ms, self.run = max(self.until_s, until_s), min(self.kept_ms, kept_ms), run
        self.marks = self.marks or run is not None
        for head, base in heads:
            sequences, crc = duplicate_check_bytes(head)
            self.heads[sequences] = crc, base, until_s

    def seen(self, looked_at_s: float, confirm_s: float) -> None:
        """Applies an inspection begun at `looked_at_s`: requests whose time was over are in its result."""
        if self.until_s == UNKNOWN_S:
            self.until_s = looked_at_s + confirm_s
        elif looked_at_s >= self.until_s:
            self._over()
        else:  # with repeatedly broken connections they would only accumulate
            self.heads = {sequences: head for sequences, head in self.heads.items() if head[2] > looked_at_s}

    def landed(self, position: int) -> None:
        """Applies the inspected end. If a lost run of markers landed whole, nothing else is in flight."""
        if self.run is not None and self.run.end == position:
            self._over()
        self.run = None

    def clear_if_expired(self, sent_s: float) -> None:
        """Clears all, if the last request was sent after the last zombie's time and has landed: then none landed in
        between.
        """
        if 0.0 < self.until_s <= sent_s:
            self._over()

    def may_be_mistaken_for(self, head: bytes, end: int, led: int, *, moved: bool) -> bool:
        """Whether to hold back this batch, which ends at `end`.

        A broker compares only sequences: it may take the batch for a known request with other records. A request of
        earlier offsets may land after the batch, as skipped offsets take no sequence. A request may hold records that
        the source has lost, if the source is `led` in a later epoch than at the read. A previous task's requests are
        unknown: with a later epoch, or if sequences have `moved`, any batch is at risk. After a record, any marker
        would land.
        """
        if self.marks or (self.foreign and (moved or self.moved or led > self.epoch)):
            return True
        sequences, crc = duplicate_check_bytes(head)
        if sequences in self.heads and self.heads[sequences][0] != crc:
            return True
        return any(
            (led > self.epoch or base < end) and is_next_in_sequence(lost_sequences, sequences)
            for lost_sequences, (_, base, _) in self.heads.items()
        )

    def reportable_epoch(self, epoch: int, now_s: float) -> int:
        """The epoch to report below the twin's end. A successor assumes that no zombie was read in an earlier one."""
        alive = self.until_s == UNKNOWN_S or now_s < self.until_s
        return -1 if alive and epoch > self.epoch else epoch

    def may_have_moved(self, sequence_of: Callable[[int], int]) -> bool:
        """Whether a request's sequences may mean other offsets now, or markers."""
        lost = [(int.from_bytes(sequences[:4], "big"), base) for sequences, (_, base, _) in self.heads.items()]
        return self.marks or self.moved or any(sequence_of(base) != sequence for sequence, base in lost)

    def _over(self) -> None:
        self.until_s, self.kept_ms, self.foreign, self.marks, self.moved = 0.0, FAR_FUTURE_MS, False, False, False
        self.heads.clear()
