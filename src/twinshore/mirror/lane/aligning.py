"""How far the twins have come that are being filled up to where their sources' logs begin. Pure."""

from __future__ import annotations

from twinshore.fleet import NamedPartition


class Alignments:
    """Where each of them stands, and where it is to begin; empty while none is."""

    def __init__(self) -> None:
        self._at: dict[NamedPartition, tuple[int, int]] = {}

    def note(self, named: NamedPartition, end: int, source_start: int) -> None:
        """The twin ends at `end` now, the source's log begins at `source_start`."""
        if end < source_start:
            self._at[named] = (end, source_start)
        else:
            self._at.pop(named, None)

    def forget(self, topic: str) -> None:
        """Drops what is known of a topic."""
        self._at = {named: at for named, at in self._at.items() if named.topic != topic}

    def sentence(self) -> str:
        """All of them in words, the one with the most to do by name; empty where there is none."""
        at = dict(self._at)
        if not at:
            return ""
        named = max(at, key=lambda one: (at[one][1] - at[one][0], one))
        end, start = at[named]
        others = f", {len(at) - 1} more too" if len(at) > 1 else ""
        return f"{named} is aligned, {end} of {start} offsets ({100 * end // start} %){others}"
