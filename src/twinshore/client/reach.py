"""The clusters that a client may meet: as the application names them, or as a configuration centre pushes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from twinshore.client.centres.homes import HomesCentre
from twinshore.client.centres.last_good import RememberedHomes
from twinshore.client.centres.pushed import Pushed
from twinshore.client.centres.pushes import Pushes
from twinshore.client.sites import Site, sites_of
from twinshore.fleet import Cluster
from twinshore.homes.home_lines import Clash, HomeLine

Clusters = Mapping[str, Mapping[str, Any] | Cluster] | Pushes
Check = Callable[[Mapping[str, Site]], None]


class Reach:
    """`sites` by name; `begin` is the one where topics are at home of which no cluster says it. `check` raises where no
    client can be made of the sites: whoever makes this hears it before anything has begun, and a push that comes later
    is not taken. `news` is called from another thread when something was pushed. Pushes are asked for until `stop`.
    `memory`: the file that remembers where topics are at home, beside the last good push where no other is set."""

    def __init__(
        self,
        clusters: Clusters,
        config: Mapping[str, Any],
        topics: Iterable[str],
        *,
        warn: Callable[[str], None],
        check: Check,
        news: Callable[[], None],
    ) -> None:
        self._news, self._warn = news, warn
        self._pushed = deque[Pushed](maxlen=1)  # the last one counts
        self.is_due = False  # until the clusters that count now were asked
        self._asked: HomesCentre | None = None
        self.memory = clusters.memory if isinstance(clusters, Pushes) else None
        self._remembered: RememberedHomes | None = None
        self._pushes = clusters if isinstance(clusters, Pushes) else None
        if isinstance(clusters, Pushes):
            first = clusters.begin(config, topics, warn, self._push, lambda pushed: check(pushed.sites))
            self.sites, self.begin = first.sites, first.begin
        else:
            self.sites = sites_of(clusters, config)
            check(self.sites)
            self.begin = next(iter(self.sites))

    def hear(self) -> None:
        """What was pushed last counts from now on. Where that is something else `ask` `is_due`, until it was called:
        whoever failed before that has it to take up still."""
        if self._pushed:
            found = self._pushed.popleft()
            if (found.sites, found.begin) != (self.sites, self.begin):
                self.sites, self.begin, self.is_due = found.sites, found.begin, True

    def ask(self, name: str, topics: Iterable[str], lease_s: float) -> HomesCentre:
        """From now on the clusters are asked where these topics are at home. What was heard before stays known: a
        cluster that answers first, and was not told yet of a switch, takes no topic back."""
        if self._remembered is None:
            self._remembered = RememberedHomes(self.memory, self._warn)
        told = lasting(self._asked.told()) if self._asked is not None else self._remembered.lines()
        made = HomesCentre(
            *(name, topics, self.sites, self.begin), lease_s=lease_s, told=told, news=self._heard, warn=self._warn
        )
        made.start()
        self._asked, self.is_due = made, False
        return made

    def _heard(self) -> None:
        """In a thread of the centre's."""
        if self._asked is not None and self._remembered is not None:
            self._remembered.keep(lasting(self._asked.told()))
        self._news()

    def stop(self) -> None:
        """Nothing is heard of pushes any more."""
        if self._pushes is not None:
            self._pushes.stop()

    def _push(self, pushed: Pushed) -> None:
        self._pushed.append(pushed)
        self._news()


def lasting(told: Mapping[str, HomeLine | Clash]) -> dict[str, HomeLine | Clash]:
    """What was heard without holds: each counts from when a client hears it, so the next one hears it anew."""
    return {topic: one for topic, one in told.items() if not (isinstance(one, HomeLine) and one.hold_ms)}
