"""All that one process measures with: what its mirror calls, whether or not anything is served."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twinshore.fleet import Cluster, Link
from twinshore.fleet.settings import MirrorSettings
from twinshore.mirror.desk import Account
from twinshore.mirror.metrics.collector import Bounds, MirrorCollector
from twinshore.mirror.metrics.looks import Looks
from twinshore.mirror.metrics.meters import Meters
from twinshore.mirror.metrics.server import MetricsServer
from twinshore.mirror.recorder import Recorder
from twinshore.store import Store


class Instruments:
    """Serves as soon as it is made; ConfigError when its port is taken. Without a port it only passes accounts on."""

    def __init__(self, settings: MirrorSettings, links: Sequence[Link], store: Store, recorder: Recorder) -> None:
        self._settings, self._store, self._recorder = settings, store, recorder
        self._meters = Meters()
        self._looks: list[Looks] = []
        self._server: MetricsServer | None = None
        if settings.metrics_port:
            bounds = Bounds(settings.metrics_topics_max, settings.metrics_partitions_max)
            collector = MirrorCollector(links, self._meters, store, bounds)
            self._server = MetricsServer(settings.metrics_address, settings.metrics_port, collector, recorder.words)

    def take(self, account: Account) -> None:
        """What a pump told."""
        self._recorder.take(account)
        if self._server:
            self._meters.take(account)

    def watch(self, link: Link, source: Cluster, ours: Callable[[], object]) -> None:
        """From now on the source's ends are looked at, while `ours` says that this process carries the link."""
        if self._server:
            self._looks.append(Looks(link, source, self._store, self._meters, self._settings.ends_s, ours))

    def beat(self) -> None:
        """The driver's loop turns."""
        if self._server:
            self._server.beat()

    def close(self) -> None:
        if self._server:
            self._server.close()
        for look in self._looks:
            look.close()
