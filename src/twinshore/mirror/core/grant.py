"""A pump's permission to write, as the desk grants it, on the pump's own clock. Pure."""

from __future__ import annotations


class Grant:
    """Counts from before it was asked for: the desk counts from after it answered, and a little longer."""

    def __init__(self) -> None:
        self.until_s = 0.0

    def longer(self, asked_s: float, grant_s: float) -> None:
        """The desk answered what was asked at `asked_s`; several questions may be on their way."""
        self.until_s = max(self.until_s, asked_s + grant_s)

    def anew(self) -> None:
        """The word to go answers no question: what it took to arrive is unknown, so one asks at once."""
        self.until_s = 0.0

    def holds(self, now_s: float) -> bool:
        """Whether the partitions may still be written."""
        return now_s < self.until_s

    def ran_out(self, now_s: float) -> bool:
        """Whether there was one that holds no more."""
        return 0.0 < self.until_s <= now_s
