"""Names and counts in a sentence."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str], most: int, between: str = ", ") -> str:
    """As in "a, b and 7 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def counted(count: int, thing: str) -> str:
    """As in "1 lane" and "1,200 lanes"."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
