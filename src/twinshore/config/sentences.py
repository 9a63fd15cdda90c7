"""Parts of sentences that operators read: names, counts and times, and a sentence as one line of a log."""

from __future__ import annotations

import re
from collections.abc import Sequence, Sized
from datetime import UTC, datetime

# A first word that is no name of a setting, nor a command in quotes.
_PLAIN = re.compile(r"[a-z]+(?:[ ,:;]|$)")


def join_names(names: Sequence[str], most: int, between: str = ", ") -> str:
    """As in "a, b and 7 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def count_phrase(count: int, thing: str) -> str:
    """As in "1 lane" and "1,200 lanes"."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def is_or_are(names: Sized) -> str:
    """ "is" behind one name, "are" behind several."""
    return "is" if len(names) == 1 else "are"


def has_or_have(names: Sized) -> str:
    """ "has" behind one name, "have" behind several."""
    return "has" if len(names) == 1 else "have"


def count_copies(count: int) -> str:
    """As in "1 copy" and "3 copies"."""
    return f"{count} cop{'y' if count == 1 else 'ies'}"


def format_time(at_ms: float) -> str:
    """A time as operators read it, as in "2026-11-24 09:30:00 UTC"."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_age(age_s: float) -> str:
    """How long ago, in the unit that says it best."""
    for unit, length_s in (("d", 172_800), ("h", 7_200), ("min", 120)):
        if age_s >= length_s:
            return f"{age_s / {'d': 86_400, 'h': 3_600, 'min': 60}[unit]:.0f} {unit}"
    return f"{age_s:.0f} s"


def append_hint(sentence: str, hint: str) -> str:
    """What is wrong and, as a separate sentence, what can be done: as in "It is gone. Make it anew"."""
    if not hint:
        return sentence
    return f"{sentence}. {hint[0].upper()}{hint[1:]}" if _PLAIN.match(hint) else f"{sentence}. {hint}"


def escape_line(sentence: str) -> str:
    """The sentence with whatever does not print as its escape, as in "a\\nb": names that others chose may hold line
    breaks, and would write lines of their own."""
    if sentence.isprintable():
        return sentence
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in sentence)
