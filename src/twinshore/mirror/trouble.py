"""What keeps one partition from crossing and passes by itself: told once it has lasted. Pure."""

from __future__ import annotations

from dataclasses import dataclass

TROUBLE_S = 30.0
NONE, TOLD = -1.0, 1e18


@dataclass(slots=True)
class Trouble:
    """`since_s` is when it was first met with nothing good since."""

    since_s: float = NONE

    def lasts(self, now_s: float) -> bool:
        """It was met again; whether it has lasted for so long that it must be told, which is so once."""
        if self.since_s == NONE:
            self.since_s = now_s
        due = now_s - self.since_s >= TROUBLE_S
        if due:
            self.since_s = TOLD
        return due

    def over(self) -> None:
        self.since_s = NONE
