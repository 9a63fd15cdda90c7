"""All that one process measures with: what its mirror calls, whether or not anything is served."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from twinshore.fleet import Cluster, Link, StoreError
from twinshore.fleet.settings import MirrorSettings
from twinshore.mirror.desk.commands import Account
from twinshore.mirror.metrics.collector import MirrorCollector, SeriesBounds
from twinshore.mirror.metrics.lag_word import word_holds_s
from twinshore.mirror.metrics.looks import Looks
from twinshore.mirror.metrics.meters import Meters
from twinshore.service.server import AddressTaken, MetricsServer
from twinshore.store import LinkStatus, Store

AGAIN_S = 2.0


class Recording(Protocol):
    """Who writes down what pumps tell, and knows how each link stands."""

    def take(self, account: Account) -> None: ...

    def quotas(self, link: str) -> dict[str, float]: ...

    def reading(self, link: str) -> dict[str, float]: ...

    def words(self) -> Mapping[str, Mapping[str, str]]: ...


class Instruments:
    """Serves as soon as its port is free: another mirror on this host, for whose links this one stands by, may have it.
    Without a port it measures all the same."""

    def __init__(
        self,
        settings: MirrorSettings,
        links: Sequence[Link],
        store: Store,
        recorder: Recording,
        meters: Meters,
        log: Callable[[str], None],
    ) -> None:
        self._settings, self._store, self._recorder, self._meters = settings, store, recorder, meters
        self._looks: dict[str, Looks] = {}
        self._server: MetricsServer | None = None
        self._log = log
        self._tried_at_s: float | None = None
        bounds = SeriesBounds(settings.metrics_topics_max, settings.metrics_partitions_max)
        holds_s = word_holds_s(settings.receipts_s)
        before = _words(store)
        self._collector = MirrorCollector(
            links, self._meters, store, bounds, holds_s, recorder.quotas, reading=recorder.reading, before=before
        )
        self._serve()

    def take(self, account: Account) -> None:
        """What a pump told."""
        self._recorder.take(account)
        self._meters.take(account)

    def watch(self, holds: Callable[[], Link], source: Cluster, ours: Callable[[], object]) -> None:
        """From now on the source's ends are looked at, while `ours` says that this process carries the link. `holds`:
        the link, with the filters that hold now."""
        link = holds()
        self._looks[link.name] = Looks(holds, source, self._store, self._meters, self._settings.ends_s, ours)
        self._collector.watch(link)

    def leave(self, link: Link) -> None:
        """Nobody here carries the link any more."""
        self._collector.leave(link)
        if look := self._looks.pop(link.name, None):
            look.close()
        self._meters.forget(link.name)

    def _words(self) -> dict[str, dict[str, Any]]:
        """How each link stands, for /health; a lag that is not known now is null."""
        now_s = time.monotonic()
        return {
            link: {**said, "lag_records": self._meters.lag(link), "look_age_s": self._meters.look_age_s(link, now_s)}
            for link, said in self._recorder.words().items()
        }

    def beat(self) -> None:
        """The driver's loop turns."""
        self._serve()
        if self._server:
            self._server.beat()

    def _serve(self) -> None:
        now_s, settings = time.monotonic(), self._settings
        first = self._tried_at_s is None
        if self._server or not settings.metrics_port or now_s < (self._tried_at_s or 0.0) + AGAIN_S:
            return
        self._tried_at_s = now_s
        try:
            self._server = MetricsServer(settings.metrics_address, settings.metrics_port, self._collector, self._words)
        except AddressTaken as error:
            if first:
                self._log(f"no metrics yet: {error.message}; another mirror may serve there; tried every {AGAIN_S:g} s")
            return
        if not first:
            self._log(f"metrics are served at {settings.metrics_address}:{settings.metrics_port} now")

    def close(self) -> None:
        if self._server:
            self._server.close()
        for look in list(self._looks.values()):
            look.close()


def _words(store: Store) -> Sequence[LinkStatus]:
    """What mirrors said last of their links."""
    try:
        return store.links.statuses()
    except StoreError:
        return ()
