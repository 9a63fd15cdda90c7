"""What a pump knows of a twin's end, where no sequence guards what comes next, and what may still land there. Pure.

A broker refuses a batch that does not follow our last one. Behind markers, before a pump's first batch, and where it
may have forgotten us, it takes any: so the end must have been seen a moment ago, or be asked for first. A leadership
that went elsewhere and came back may have cut off what we knew of.
"""

from __future__ import annotations

from dataclasses import dataclass

from twinshore.mirror.lane.fates import Blank

UNKNOWN = -1.0
FAR_MS = 1 << 62
NEVER_S = -1e9
SURE_S = 0.5  # Shorter than a leadership takes to go and, with another's log, to come back.


@dataclass(slots=True)
class Certainty:
    """`bare`: no sequence of ours may lie at the end. `seen_s`: when the end was seen, `sent_s`: when the last of ours
    was sent. `asking`: the question is on its way. `looked_at_s`: when the last look began. `armed_until_ms`: until
    then the broker surely knows our sequence."""

    bare: bool = True
    seen_s: float = NEVER_S
    sent_s: float = NEVER_S
    asking: bool = False
    looked_at_s: float = 0.0
    armed_until_ms: int = 0

    def begun(self, seen_s: float = NEVER_S) -> None:
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
        return now_s - self.seen_s > SURE_S


@dataclass(slots=True)
class Strays:
    """Requests that were lost, or a dead pump's. Until `until_s` one may still land; 0: none can, UNKNOWN: no look has
    been yet. `kept_ms`: until when brokers know us, if all of those land that we know of. `run`: the markers among
    them."""

    until_s: float = UNKNOWN
    kept_ms: int = FAR_MS
    run: Blank | None = None

    def lost(self, until_s: float, kept_ms: int, run: Blank | None) -> None:
        """One more."""
        self.until_s, self.kept_ms, self.run = until_s, kept_ms, run

    def seen(self, looked_at_s: float, confirm_s: float) -> None:
        """The twin was looked at then, or later: those that had their time by then are in what was seen."""
        if self.until_s == UNKNOWN:
            self.until_s = looked_at_s + confirm_s
        elif looked_at_s >= self.until_s:
            self.until_s, self.kept_ms = 0.0, FAR_MS

    def landed(self, position: int) -> None:
        """A look found the twin's end: a lost run of markers that is wholly in was all that could be on its way."""
        if self.run is not None and self.run.end == position:
            self.until_s = 0.0
        self.run = None
