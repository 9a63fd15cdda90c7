"""Twins that begin later than their sources: records at the beginning were deleted on the target alone. Pure.

A twin's log start follows its source's. One above it is somebody else's doing: retention set on the twin, or records
deleted there. What is missing so can be copied no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from twinshore.fleet import NamedPartition


class Lack(NamedTuple):
    """Offsets [begin, end) that the source still has and the twin has not."""

    begin: int
    end: int

    @property
    def sentence(self) -> str:
        return (
            f"the twin begins at {self.end}, its source at {self.begin}: records {self.begin} to {self.end - 1} are"
            " missing on the twin; they were deleted there, or retention is set on it"
        )


def suspects(
    twins: Mapping[NamedPartition, int], told: Mapping[NamedPartition, int], known: Mapping[NamedPartition, Lack]
) -> list[NamedPartition]:
    """Whose source is to be asked where it begins now: pumps may have told of less, never of more."""
    return [named for named, start in twins.items() if start > told.get(named, 0) or named in known]


def lacking(
    twins: Mapping[NamedPartition, int], sources: Mapping[NamedPartition, int], cut: Mapping[NamedPartition, int]
) -> dict[NamedPartition, Lack]:
    """What twins lack that begin at `twins`. `sources` must have been read after that. `cut`: where a source began
    once, as far as known; a new leader may begin lower for a while, and the mirror itself cut the twin there."""
    return {
        named: Lack(sources[named], start)
        for named, start in twins.items()
        if named in sources and start > max(sources[named], cut.get(named, 0))
    }
