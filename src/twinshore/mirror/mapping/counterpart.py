"""An offset of one side, on the other: out of the two extents around it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from twinshore.fleet import SourceOffset, TargetOffset
from twinshore.fleet.extents import Extent, source_end, target_end


class Counterpart(NamedTuple):
    """Where an offset of one side is on the other. `exact`: the record itself is there; else it is the next one that
    both sides have."""

    offset: int
    exact: bool


def on_target(offset: SourceOffset, before: Extent | None, behind: Extent | None) -> Counterpart | None:
    """Where this offset of the source lies on the twin; None where no extent is known."""
    if before is not None and offset < source_end(before):
        return Counterpart(before.target + offset - before.source, exact=True)
    if behind is not None:
        return Counterpart(behind.target, exact=False)
    return None if before is None else Counterpart(target_end(before), exact=False)


def on_source(offset: TargetOffset, before: Extent | None, behind: Extent | None) -> Counterpart | None:
    """Where this offset of the twin came from; records that others wrote have none."""
    if before is not None and offset < target_end(before):
        return Counterpart(before.source + offset - before.target, exact=True)
    if behind is not None:
        return Counterpart(behind.source, exact=False)
    return None if before is None else Counterpart(source_end(before), exact=False)
