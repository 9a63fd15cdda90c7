"""What keeps one partition from crossing and passes by itself: told once it has lasted, and now and then as long as it
lasts. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

TROUBLE_S = 30.0
NONE = -1.0


@dataclass(slots=True)
class Trouble:
    """`since_s` is when it was first met with nothing good since, `told_s` when it was last told."""

    since_s: float = NONE
    told_s: float = NONE

    def lasts(self, now_s: float, since_s: float = NONE) -> float:
        """It was met again; `since_s`: it began then, if it is new. For how long it has lasted where it is to be told
        now, else 0. The ledger keeps one row, however often it is told."""
        if self.since_s == NONE:
            self.since_s = now_s if since_s == NONE else since_s
        if now_s - max(self.since_s, self.told_s) < TROUBLE_S:
            return 0.0
        self.told_s = now_s
        return now_s - self.since_s

    def over(self) -> bool:
        """Returns whether it had been told."""
        told = self.told_s != NONE
        self.since_s = self.told_s = NONE
        return told


@dataclass(slots=True)
class Troubles:
    """Of one partition: nobody can tell where its twin ends, its twin's leader takes nothing, its source gives
    nothing."""

    vain: Trouble = field(default_factory=Trouble)
    target: Trouble = field(default_factory=Trouble)
    source: Trouble = field(default_factory=Trouble)
