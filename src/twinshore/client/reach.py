"""The clusters that a client may meet: as the application names them, or as a configuration centre pushes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from twinshore.client.centres.homes import HomesCentre
from twinshore.client.centres.pushed import Pushed
from twinshore.client.centres.pushes import Pushes
from twinshore.client.sites import Site, sites_of
from twinshore.fleet import Cluster

Clusters = Mapping[str, Mapping[str, Any] | Cluster] | Pushes


class Reach:
    """`sites` by name; `begin` is the one where topics are at home of which no cluster says it. `check` raises where no
    client can be made of a site; `news` is called from another thread when something was pushed."""

    def __init__(
        self,
        clusters: Clusters,
        config: Mapping[str, Any],
        topics: Iterable[str],
        *,
        warn: Callable[[str], None],
        check: Callable[[Site], None],
        news: Callable[[], None],
    ) -> None:
        self._news, self._warn, self._check = news, warn, check
        self._pushed = deque[Pushed](maxlen=1)  # the last one counts
        self._is_due = False  # until the clusters that count now were asked
        self._asked: HomesCentre | None = None
        self._pushes = clusters if isinstance(clusters, Pushes) else None
        if isinstance(clusters, Pushes):
            first = clusters.begin(config, topics, warn, self._push, self._must_make)
            self.sites, self.begin = first.sites, first.begin
        else:
            self.sites = sites_of(clusters, config)
            self.begin = next(iter(self.sites))

    def has_changed(self) -> bool:
        """Whether something else was pushed since, which counts from now on, and `ask` was not called for it: whoever
        failed before that has it to take up still."""
        if self._pushed:
            found = self._pushed.popleft()
            if (found.sites, found.begin) != (self.sites, self.begin):
                self.sites, self.begin, self._is_due = found.sites, found.begin, True
        return self._is_due

    def ask(self, name: str, topics: Iterable[str], lease_s: float) -> HomesCentre:
        """From now on the clusters are asked where these topics are at home. What was heard before stays known: a
        cluster that answers first, and was not told yet of a switch, takes no topic back."""
        told = self._asked.told() if self._asked is not None else {}
        made = HomesCentre(
            *(name, topics, self.sites, self.begin), lease_s=lease_s, told=told, news=self._news, warn=self._warn
        )
        made.start()
        self._asked, self._is_due = made, False
        return made

    def stop(self) -> None:
        """Nothing is heard of pushes any more."""
        if self._pushes is not None:
            self._pushes.stop()

    def _push(self, pushed: Pushed) -> None:
        self._pushed.append(pushed)
        self._news()

    def _must_make(self, pushed: Pushed) -> None:
        for site in pushed.sites.values():
            self._check(site)
