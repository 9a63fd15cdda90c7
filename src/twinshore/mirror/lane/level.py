"""How old what is read can be, whatever its time stamp says: no older than when the source ended before it. Pure.

A record that is read was written between two moments: when the source was last seen to end where it lies, and now.
Within these its own time stamp counts, since only its producer knows. So a producer whose clock is wrong is not
believed, and what a source took while it could not be reached is as old as it says.
"""

from __future__ import annotations

from typing import NamedTuple

NEVER = float("-inf")


class Level(NamedTuple):
    """The source ended at `at` when somebody asked it at `seen_s`, or later: what lies there and beyond was written
    since."""

    at: int = -1
    seen_s: float = NEVER

    def since_s(self, base: int) -> float:
        """Since when what lies at this offset and beyond can have been written."""
        return self.seen_s if 0 <= self.at <= base else NEVER

    def born_s(self, base: int, stamp_s: float, read_s: float) -> float:
        """When what lies from `base` on was written, as far as is known, by its latest time stamp."""
        return min(read_s, max(stamp_s, self.since_s(base)))


UNKNOWN = Level()
