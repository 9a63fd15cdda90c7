"""All that one process measures with: what its mirror calls, whether or not anything is served."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from twinshore.fleet import Cluster, Link
from twinshore.fleet.settings import MirrorSettings
from twinshore.mirror.desk import Account
from twinshore.mirror.metrics.collector import Bounds, MirrorCollector
from twinshore.mirror.metrics.lag_word import word_holds_s
from twinshore.mirror.metrics.looks import Looks
from twinshore.mirror.metrics.meters import Meters
from twinshore.mirror.metrics.server import MetricsServer
from twinshore.mirror.recorder import Recorder
from twinshore.store import Store


class Instruments:
    """Serves as soon as it is made; ConfigError when its port is taken. Without a port it measures all the same."""

    def __init__(
        self, settings: MirrorSettings, links: Sequence[Link], store: Store, recorder: Recorder, meters: Meters
    ) -> None:
        self._settings, self._store, self._recorder, self._meters = settings, store, recorder, meters
        self._looks: list[Looks] = []
        self._server: MetricsServer | None = None
        if settings.metrics_port:
            bounds = Bounds(settings.metrics_topics_max, settings.metrics_partitions_max)
            collector = MirrorCollector(links, self._meters, store, bounds, word_holds_s(settings.receipts_s))
            self._server = MetricsServer(settings.metrics_address, settings.metrics_port, collector, self._words)

    def take(self, account: Account) -> None:
        """What a pump told."""
        self._recorder.take(account)
        self._meters.take(account)

    def watch(self, link: Link, source: Cluster, ours: Callable[[], object]) -> None:
        """From now on the source's ends are looked at, while `ours` says that this process carries the link."""
        self._looks.append(Looks(link, source, self._store, self._meters, self._settings.ends_s, ours))

    def _words(self) -> dict[str, dict[str, Any]]:
        """How each link stands, for /health; a lag that is not known now is null."""
        now_s = time.time()
        return {
            link: {**said, "lag_records": self._meters.lag(link), "look_age_s": self._meters.look_age_s(link, now_s)}
            for link, said in self._recorder.words().items()
        }

    def beat(self) -> None:
        """The driver's loop turns."""
        if self._server:
            self._server.beat()

    def close(self) -> None:
        if self._server:
            self._server.close()
        for look in self._looks:
            look.close()
