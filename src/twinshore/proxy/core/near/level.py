"""How far a twin's partition is behind its home, in time: by ends of both that were asked again and again. Pure.

What home had at some moment, the twin has once it ends no earlier than home ended then. So the twin is behind by the
age of the newest such moment, and no clock but the asker's is needed. While nobody answers that age grows by itself.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

# Of moments at home about so many are kept, evenly: a twin that is level is found at one of the newest.
MOMENTS: Final = 64


@dataclass(slots=True)
class Trail:
    """Where a partition ended at home at moments, oldest first."""

    moments: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, asked_s: float, end: int, kept_s: float) -> None:
        """It was asked then, and ends there. A log that has become shorter is another one than was known."""
        moments = self.moments
        if moments and end < moments[-1][1]:
            moments.clear()
        if len(moments) > 1:
            (before_s, before), (last_s, last) = moments[-2], moments[-1]
            # Of moments at one end the last is the one that counts, and of those close together any.
            if before == last == end or last_s - before_s < kept_s / MOMENTS:
                moments.pop()
        moments.append((asked_s, end))
        while moments[0][0] < asked_s - kept_s:
            moments.popleft()

    @property
    def end(self) -> int:
        """Where it ended when it was asked last; -1 where nobody has asked."""
        return self.moments[-1][1] if self.moments else -1

    def held_since_s(self, end: int) -> float:
        """The newest moment of which a twin that ends there has all that home had; -inf where none is known."""
        return next((asked_s for asked_s, had in reversed(self.moments) if had <= end), -math.inf)


@dataclass(slots=True)
class Level:
    """How one twin's partition stands. `since_s`: all that home had then it has. `near`: clients read there."""

    leader: int = -1
    start: int = 0
    end: int = -1
    since_s: float = -math.inf
    near: bool = False

    def take(self, leader: int, start: int, end: int, home: Trail) -> None:
        """What the twin's cluster said, before home was asked. One that is longer than its home is no twin: something
        else was written there, or home has lost what it had."""
        self.leader, self.start, self.end = leader, start, end
        self.since_s = home.held_since_s(end) if end <= home.end else -math.inf

    def away(self) -> None:
        """Nobody carries it on."""
        self.since_s = -math.inf

    def judge(self, now_s: float, behind_s_max: float) -> bool:
        """Whether clients read there now: they come below half of the bound, and leave above it."""
        bound_s = behind_s_max if self.near else behind_s_max / 2
        self.near = now_s - self.since_s <= bound_s
        return self.near
