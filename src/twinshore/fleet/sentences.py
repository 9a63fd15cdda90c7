"""Parts of sentences that operators read: names, counts and times, and a sentence as one line of a log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime


def listed(names: Sequence[str], most: int, between: str = ", ") -> str:
    """As in "a, b and 7 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def counted(count: int, thing: str) -> str:
    """As in "1 lane" and "1,200 lanes"."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def copies(count: int) -> str:
    """As in "1 copy" and "3 copies"."""
    return f"{count} cop{'y' if count == 1 else 'ies'}"


def moment(at_ms: float) -> str:
    """A time as operators read it, as in "2026-11-24 09:30:00 UTC"."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def ago(age_s: float) -> str:
    """How long ago, in the unit that says it best."""
    for unit, length_s in (("d", 172_800), ("h", 7_200), ("min", 120)):
        if age_s >= length_s:
            return f"{age_s / {'d': 86_400, 'h': 3_600, 'min': 60}[unit]:.0f} {unit}"
    return f"{age_s:.0f} s"


def one_line(sentence: str) -> str:
    """The sentence with whatever does not print as its escape, as in "a\\nb": names that others chose may hold line
    breaks, and would write lines of their own."""
    if sentence.isprintable():
        return sentence
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in sentence)
