"""What all links of one process share: the store, the desk, the tides, and who writes down what pumps tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twinshore.fleet import Link
from twinshore.links.registry import Registry
from twinshore.mirror.driver.desk import Desk
from twinshore.mirror.driver.engine import Engine
from twinshore.mirror.driver.link_driver import LinkDriver
from twinshore.mirror.driver.recorder import Recorder
from twinshore.mirror.driver.tides import Tides
from twinshore.mirror.metrics.instruments import Instruments
from twinshore.store import Store


@dataclass(frozen=True, slots=True)
class Shared:
    """`owner` is the process, as leases name it; `lanes` of each link."""

    owner: str
    lanes: int
    store: Store
    registry: Registry
    recorder: Recorder
    instruments: Instruments
    engine: Engine
    desk: Desk
    tides: Tides
    log: Callable[[str], None]

    def driver_of(self, link: Link) -> LinkDriver:
        """A driver for the link, whose source is looked at from now on."""
        settings = self.registry.settings_around(link)
        driver = LinkDriver(
            link,
            settings,
            store=self.store,
            desk=self.desk,
            tides=self.tides,
            recorder=self.recorder,
            owner=self.owner,
            lanes=self.lanes,
            log=self.log,
        )
        try:
            self.instruments.watch(lambda: driver.link, settings.cluster(link.source), driver.lease.generation)
        except BaseException:
            driver.close(clean=True)
            self.leave(link)
            raise
        return driver

    def leave(self, link: Link) -> None:
        """The link's driver has ended, and another may begin."""
        self.instruments.leave(link)
        self.recorder.leave(link.name)

    def close(self) -> None:
        """Once no link runs any more."""
        for close in (self.instruments, self.tides, self.desk, self.recorder, self.store, self.engine):
            close.close()
