"""The links that one process is to carry, followed while it runs: a second after one was changed it is known here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import overload

from twinshore.fleet import Link, StoreError
from twinshore.fleet.once import Once
from twinshore.fleet.settings import Settings
from twinshore.links.known import Known, followed
from twinshore.store import LINKS, Store

EVERY_S = 1.0


class Registry:
    """`begins`: the links as the process found them; `names`: only these are carried, or all where none is named. `log`
    hears of each that cannot be with these settings, or with the others. One thread turns; any may ask."""

    def __init__(
        self, settings: Settings, store: Store, begins: Known, names: Sequence[str], log: Callable[[str], None]
    ) -> None:
        self._settings, self._store, self._names = settings, store, tuple(names)
        self._log, self._once = log, Once(log)
        self._revision = begins.revision
        self.now = begins

    def follow(self, stop: threading.Event) -> None:
        """Looks for a change every second."""
        while not stop.wait(EVERY_S):
            self.turn()

    def turn(self) -> None:
        """One look: a number is read, and the rows only where it is another one."""
        try:
            if self._store.revisions.of(LINKS) == self._revision:
                return
            found = followed(self._settings, self._store)
        except StoreError as error:
            self._once.say(f"links stay as they were: {error.message}")
            return
        self._once.well()
        for one in found.differences:
            if one not in self.now.differences:
                self._log(str(one))
        self._revision, self.now = found.revision, found

    def wanted(self) -> Mapping[str, Link]:
        """What this process is to carry, by name."""
        return {link.name: link for link in self.now.links if not self._names or link.name in self._names}

    def why_gone(self, link: str) -> str:
        """Who removed the link, or why it is set aside."""
        by = [f"was removed by {row.changed_by}" for row in self.now.removed if row.link == link]
        about = [one.sentence for one in self.now.differences if one.link == link]
        return f"the link {next(iter((*by, *about)), 'is not there any more')}"

    def settings_around(self, link: Link) -> Settings:
        """The settings for whoever carries this link: their links are the others as they are now, and this one."""
        return self._settings.with_links(LinksAround(self, link))


class LinksAround(Sequence[Link]):
    """All links as they are at each look; the own one as it began, until whoever carries it has ended."""

    def __init__(self, registry: Registry, own: Link) -> None:
        self._registry, self._own = registry, own

    def _now(self) -> tuple[Link, ...]:
        links = self._registry.now.links
        found = tuple(self._own if link.name == self._own.name else link for link in links)
        return found if self._own in found else (*found, self._own)

    def __iter__(self) -> Iterator[Link]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())

    @overload
    def __getitem__(self, at: int) -> Link: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Link]: ...

    def __getitem__(self, at: int | slice) -> Link | Sequence[Link]:
        return self._now()[at]
