"""What a pump knows of a twin's end, where no sequence guards what comes next.

A broker refuses a batch that does not follow our last one. Behind markers, before a pump's first batch, and where it
may have forgotten us, it takes any: so the end must have been seen a moment ago, or be asked for first. A leadership
that went elsewhere and came back may have cut off what we knew of.
"""

from __future__ import annotations

from dataclasses import dataclass

NEVER_S = -1e9
SURE_S = 0.5  # Shorter than a leadership takes to go and, with another's log, to come back.


@dataclass(slots=True)
class Certainty:
    """`bare`: no sequence of ours may lie at the end. `seen_s`: when the end was seen, `sent_s`: when the last of ours
    was sent. `asking`: the question is on its way."""

    bare: bool = True
    seen_s: float = NEVER_S
    sent_s: float = NEVER_S
    asking: bool = False

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
