"""A change that follows, before it is made: the same value is previewed, done, logged and audited."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """`before` and `after` are empty where there is, or will be, nothing. `topic`: which it is about, if any."""

    kind: str
    subject: str
    before: str
    after: str
    topic: str = ""

    def __str__(self) -> str:
        if not self.before:
            return f"{self.kind} {self.subject}" + (f": {self.after}" if self.after else "")
        if not self.after:
            return f"{self.kind} {self.subject}: taken back (was {self.before})"
        return f"{self.kind} {self.subject}: {self.before} becomes {self.after}"


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that does not follow, and why: nothing is done about it."""

    kind: str
    subject: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}: {self.sentence}"
