"""Where an offset of a mapped topic lies on the other side, or its map: runs of offsets with one difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twinshore.fleet import ConfigError, SourceOffset, TargetOffset
from twinshore.fleet.extents import Extent
from twinshore.fleet.settings import Settings
from twinshore.mirror.mapping.counterpart import on_source, on_target
from twinshore.store import Store

LAST = 20


@dataclass(frozen=True, slots=True)
class LookUp:
    """An offset of one side, or with neither the last so many extents."""

    topic: str
    partition: int = 0
    source_offset: int | None = None
    target_offset: int | None = None
    most: int = LAST
    links: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Spot:
    """`source` and `target` belong together; what is not known is None. `exact`: the record itself is there; else it is
    the next one that both sides have. `back`: the target's offset was asked for."""

    link: str
    topic: str
    partition: int
    source: int | None
    target: int | None
    exact: bool
    back: bool

    def as_values(self) -> dict[str, Any]:
        """For programs: what was asked for comes first."""
        place = {"link": self.link, "topic": self.topic, "partition": self.partition}
        ends = {"source": self.source, "target": self.target}
        return {**place, **(dict(reversed(ends.items())) if self.back else ends), "exact": self.exact}

    def sentence(self) -> str:
        note = "" if self.exact else ", the next record that both sides have"
        return f"{self.link}: {self.topic}-{self.partition}: source {self.source} is target {self.target}{note}"


@dataclass(frozen=True, slots=True)
class PartitionExtent:
    """An extent of a partition: its offsets differ by one number on both sides."""

    link: str
    topic: str
    partition: int
    extent: Extent

    def as_values(self) -> dict[str, Any]:
        """For programs."""
        return {"link": self.link, "topic": self.topic, "partition": self.partition, **self.extent._asdict()}

    def sentence(self) -> str:
        where, (source, target, length, _) = f"{self.link}: {self.topic}-{self.partition}", self.extent
        if not length:
            return f"{where}: nothing yet; goes on with {source} of the source behind {target} of the target"
        span = f"source {source} to {source + length - 1} is target {target} to {target + length - 1}"
        return f"{where}: {span} ({target - source:+d})"


def look_up(asked: LookUp, settings: Settings, store: Store) -> list[Spot | PartitionExtent]:
    """On each link that carries the topic as mapped; ConfigError where none does."""
    if asked.source_offset is not None and asked.target_offset is not None:
        raise ConfigError("--source-offset and --target-offset: one or the other")
    found: list[Spot | PartitionExtent] = []
    for link in settings.chosen(asked.links):
        if store.extents.of(link.name, asked.topic, asked.partition, limit=1):
            found += _of_link(asked, link.name, store)
    if not found:
        raise ConfigError(
            f"no map of {asked.topic}-{asked.partition}: no link carries it as mapped",
            hint="exact topics need none: an offset is the same on both sides",
        )
    return found


def _of_link(asked: LookUp, link: str, store: Store) -> list[Spot | PartitionExtent]:
    key = (link, asked.topic, asked.partition)
    if asked.source_offset is not None:
        at = asked.source_offset
        there = on_target(SourceOffset(at), *store.extents.around(*key, at))
        return [Spot(*key, at, there.offset if there else None, bool(there and there.exact), back=False)]
    if asked.target_offset is not None:
        at = asked.target_offset
        there = on_source(TargetOffset(at), *store.extents.around(*key, at, on_target=True))
        return [Spot(*key, there.offset if there else None, at, bool(there and there.exact), back=True)]
    return [PartitionExtent(*key, one) for one in store.extents.of(*key, limit=asked.most)]
