"""Offsets of one side in terms of the other, for one's own use: asks the store alone, no cluster."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from twinshore.fleet import ConfigError, Link
from twinshore.fleet.settings import Settings
from twinshore.fleet.settings.edge import did_you_mean
from twinshore.groups.rounds import extents_of
from twinshore.groups.translation import AS_IS, Spot, Translation
from twinshore.store import Store
from twinshore.wire.group_places import Where


class Translator:
    """`parts`: how each partition of the source translates. Topics are called as on the side whose offset is given."""

    def __init__(self, link: Link, parts: dict[Where, Translation]) -> None:
        self.link = link
        self._parts = parts
        self._twins = {(link.twin_of(topic), partition): (topic, partition) for topic, partition in parts}

    def forward(self, topic: str, partition: int, offset: int) -> Spot | None:
        """An offset of the source, on the target; None before the first record that the link carried."""
        return self._parts[self._known((topic, partition), self._parts, self.link.source)].forward(offset)

    def back(self, topic: str, partition: int, offset: int) -> Spot | None:
        """An offset of the target, on the source."""
        return self._parts[self._twins[self._known((topic, partition), self._twins, self.link.target)]].back(offset)

    def source_topic(self, twin: str) -> str:
        """What a twin's topic is called on the source."""
        for (name, _), (topic, _) in self._twins.items():
            if name == twin:
                return topic
        raise ConfigError(f"link {self.link.name} keeps no twin called {twin}")

    def _known(self, where: Where, known: Iterable[Where], side: str) -> Where:
        if where not in known:
            topics = sorted({topic for topic, _ in known})
            nearest = did_you_mean(where[0], topics).removeprefix("; ") if where[0] not in topics else ""
            raise ConfigError(
                f"link {self.link.name} knows no {where[0]}-{where[1]} on {side}",
                hint=nearest or "has the mirror carried it yet?",
            )
        return where


def open_translator(settings: Settings, link_name: str, store: Store) -> Translator:
    """The link's, by what its mirror left in the store. Keep the store open as long as you use it."""
    link = settings.link(link_name)
    mapped = store.extents.reached(link.name)
    parts: dict[Where, Translation] = {}
    for row in store.twins.of(link.name):
        where = (row.topic, row.partition)
        parts[where] = AS_IS
        if where in mapped:
            parts[where] = extents_of(store, link.name, where, partial(_crossed, store, link.name, where))
    return Translator(link, parts)


def _crossed(store: Store, link: str, where: Where) -> int:
    known = store.receipts.positions(link)
    return next((one.to_offset for one in known if (one.topic, one.partition) == where), 0)


def known_ends(store: Store, link: Link, *, back: bool) -> dict[Where, int]:
    """Where each log of the source ended when the mirror last said so; `back`: how far it has carried each twin."""
    known = store.receipts.positions(link.name)
    if not back:
        return {(one.topic, one.partition): one.source_end for one in known}
    mapped = store.extents.reached(link.name)
    ends: dict[Where, int] = {}
    for one in known:
        last = mapped.get((one.topic, one.partition))
        ends[link.twin_of(one.topic), one.partition] = last.target + last.length if last else one.to_offset
    return ends
