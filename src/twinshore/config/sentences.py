"""Parts of sentences for operators: names, counts, times, and one-line escapes for logs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Sized
from datetime import UTC, datetime

# Takes the sentences that a command prints while it works.
Tell = Callable[[str], None]

# A first word that is neither a setting's name nor a command in quotes.
_PLAIN = re.compile(r"[a-z]+(?:[ ,:;]|$)")

NAMED_MAX = 5  # of names in one sentence


def join_names(names: Sequence[str], most: int = NAMED_MAX, between: str = ", ") -> str:
    """For example "a, b and 7 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def count_phrase(count: int, thing: str) -> str:
    """For example "1 task" and "1,200 tasks"."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def is_or_are(names: Sized) -> str:
    return "is" if len(names) == 1 else "are"


def has_or_have(names: Sized) -> str:
    return "has" if len(names) == 1 else "have"


def count_copies(count: int) -> str:
    """For example "1 copy" and "3 copies"."""
    return f"{count} cop{'y' if count == 1 else 'ies'}"


def format_time(at_ms: float) -> str:
    """For example "2026-11-24 09:30:00 UTC"."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_age(age_s: float) -> str:
    """An age in the most readable unit, for example "3 min"."""
    for unit, length_s in (("d", 172_800), ("h", 7_200), ("min", 120)):
        if age_s >= length_s:
            return f"{age_s / {'d': 86_400, 'h': 3_600, 'min': 60}[unit]:.0f} {unit}"
    return f"{age_s:.0f} s"


def append_hint(sentence: str, hint: str) -> str:
    """The error and then the remedy as a separate sentence, for example "The file is gone. Write a new one"."""
    if not hint:
        return sentence
    return f"{sentence}. {hint[0].upper()}{hint[1:]}" if _PLAIN.match(hint) else f"{sentence}. {hint}"


def escape_line(sentence: str) -> str:
    """Escapes unprintable characters: line breaks in foreign names would forge log lines."""
    if sentence.isprintable():
        return sentence
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in sentence)
