"""Where a group, or an offset, is on the other side. An offset asks the store alone, no cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from twinshore.fleet import ConfigError, Link
from twinshore.fleet.settings import Settings
from twinshore.groups.look import look
from twinshore.groups.translation import Spot
from twinshore.groups.translator import Translator, known_ends, open_translator
from twinshore.store import Store
from twinshore.wire.group_places import Where


@dataclass(frozen=True, slots=True)
class Translate:
    """A group, or with a `topic` the offset of one partition. `back`: from the target's side to the source's."""

    what: str
    topic: str = ""
    partition: int = 0
    back: bool = False
    links: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Translated:
    """`offset` of one side is `to` on the other, None: nowhere known. `reached`: it has crossed. `end`: where the log
    that is asked about ends, as far as the link knows."""

    link: str
    topic: str
    partition: int
    offset: int
    to_topic: str
    to: int | None
    reached: bool
    end: int | None
    back: bool

    def as_values(self) -> dict[str, Any]:
        """For programs."""
        return {name: value for name, value in asdict(self).items() if name != "back"}

    def sentence(self) -> str:
        to = "nowhere known" if self.to is None else f"{self.to_topic}-{self.partition} offset {self.to}"
        yet = "" if self.reached else ", as far as has crossed"
        return f"{self.link}: {self.topic}-{self.partition} offset {self.offset} is {to}{yet}{self._beyond()}"

    def _beyond(self) -> str:
        """Of an offset that no record of the link has, how far these go; a place at the very end is nothing special."""
        if self.end is None or self.offset <= self.end:
            return ""
        log = f"{self.topic}-{self.partition}"
        if self.back:
            return f"; the link has carried {log} up to {self.end} only"
        return f"; when last seen, the log of {log} ended at {self.end}"


def translate(asked: Translate, settings: Settings, store: Store) -> list[Translated]:
    """On each link; ConfigError where none keeps a place of it."""
    found = [one for link in settings.chosen(asked.links) for one in _of_link(asked, link, settings, store)]
    if not found:
        raise ConfigError(f"no link keeps a place of group {asked.what}", hint="for an offset name its --topic")
    return found


def _of_link(asked: Translate, link: Link, settings: Settings, store: Store) -> Iterator[Translated]:
    if asked.topic and not asked.what.isdecimal():
        raise ConfigError(f"{asked.what!r} is not an offset", hint="leave --topic away to translate a group")
    translator, ends = open_translator(settings, link.name, store), known_ends(store, link, back=asked.back)
    if asked.topic:
        where, offset = (asked.topic, asked.partition), int(asked.what)
        spot = _spot(translator, where, offset, back=asked.back)
        to_topic = translator.source_topic(asked.topic) if asked.back else link.twin_of(asked.topic)
        yield _translated(link, where, offset, to_topic, spot, ends, back=asked.back)
        return
    for view in look(link, settings, store, re.escape(asked.what)):
        for part in view.parts:
            topic, to_topic = (part.twin, part.topic) if asked.back else (part.topic, part.twin)
            offset_there = part.target if asked.back else part.source
            if offset_there is not None:
                where = (topic, part.partition)
                spot = _spot(translator, where, offset_there, back=asked.back)
                yield _translated(link, where, offset_there, to_topic, spot, ends, back=asked.back)


def _spot(translator: Translator, where: Where, offset: int, *, back: bool) -> Spot | None:
    return (translator.back if back else translator.forward)(*where, offset)


def _translated(
    link: Link, where: Where, offset: int, to_topic: str, spot: Spot | None, ends: Mapping[Where, int], *, back: bool
) -> Translated:
    to, reached = (spot.offset, spot.reached) if spot else (None, False)
    return Translated(link.name, *where, offset, to_topic, to, reached, ends.get(where), back)
