"""What holds for each link, and whether from the settings or from the store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from twinshore.fleet import QueueRules
from twinshore.fleet.settings import Settings
from twinshore.links.in_force import InForce, as_json, in_force
from twinshore.links.known import known
from twinshore.links.seeds import AboutLink
from twinshore.links.standing import standing
from twinshore.mirror.metrics.words import (
    READING_KIND,
    ReadingWord,
    broadcast_values,
    reading_of,
    says_of_broadcast,
    word_holds_s,
)
from twinshore.service.clock import wall_ms
from twinshore.store import Store


@dataclass(frozen=True, slots=True)
class HeldValue:
    """`text` is the value as JSON; `origin` says where it comes from."""

    name: str
    text: str
    origin: str


@dataclass(frozen=True, slots=True)
class HeldLink:
    """A link as it holds now. `troubles`: what operators said that does not count."""

    link: str
    naming: str
    chain: bool
    values: tuple[HeldValue, ...]
    troubles: tuple[str, ...]
    # What the settings say otherwise: the store's word stands.
    differs: tuple[str, ...] = ()
    # The broadcast that it belongs to, and how it is read there by the mirror's last word, while that holds.
    broadcast: str = ""
    reading: ReadingWord | None = None
    queue: QueueRules = field(default_factory=QueueRules)

    @property
    def says_of_broadcast(self) -> str:
        """Which broadcast it belongs to, and how it is read there; empty where it belongs to none."""
        return says_of_broadcast(self.broadcast, self.reading)

    def as_values(self) -> dict[str, Any]:
        """For programs."""
        about: dict[str, Any] = {"link": self.link, "naming": self.naming, "chain": self.chain}
        about["broadcast"] = broadcast_values(self.broadcast, self.reading)
        about["queue"] = self.queue.policy.value
        values = {one.name: {"value": json.loads(one.text), "from": one.origin} for one in self.values}
        return {**about, **values, "troubles": list(self.troubles), "differs": list(self.differs)}


def held_links(names: Sequence[str], settings: Settings, store: Store | None) -> list[HeldLink]:
    """These links, or all; by the settings alone where there is no store yet."""
    if store is None:
        return [_held(in_force(one, ()), ()) for one in settings.chosen(names)]
    found = known(settings, store)
    settings = settings.with_links(found.links)
    holds = standing(settings.links, store)
    chosen, told = settings.chosen(names), {}
    for one in chosen:
        rows = store.memories.of(one.name, READING_KIND) if holds[one.name].link.broadcast else ()
        told[one.name] = reading_of(rows, wall_ms(), word_holds_s(settings.mirror.receipts_s))
    return [_held(holds[one.name], found.differences, told[one.name]) for one in chosen]


def _held(now: InForce, differences: Sequence[AboutLink], reading: ReadingWord | None = None) -> HeldLink:
    link = now.link
    values = tuple(HeldValue(name, as_json(now.value(name)), origin) for name, origin in now.origins)
    differs = tuple(one.sentence for one in differences if one.link == link.name)
    return HeldLink(
        link.name, link.naming.value, link.chain, values, now.troubles, differs, link.broadcast, reading, link.queue
    )
