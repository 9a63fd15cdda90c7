"""The hands that add to a stretch of a mapped twin where its records lie, right before it is compared."""

from __future__ import annotations

from dataclasses import replace

from twinshore.proof.values import Stretch, Way
from twinshore.store import Store


def mapped(store: Store | None, link: str, stretch: Stretch) -> Stretch:
    """The stretch with all extents that lie in it. It begins later where the twin's retention has taken what lay below
    its first extent."""
    if store is None or stretch.way is not Way.EXTENTS:
        return stretch
    place = link, stretch.named.topic, stretch.named.partition
    found = store.extents.between(*place, stretch.start, stretch.end)
    start = max(stretch.start, found[0].source) if found else stretch.end
    extents = tuple((one.source, one.target, one.length) for one in found if one.source + one.length > stretch.start)
    return replace(stretch, start=start, extents=extents)
