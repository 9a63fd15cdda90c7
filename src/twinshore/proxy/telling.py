"""What went through in each window of time, told to the store, which keeps it for some hours, and to a topic.

A store that is away loses nothing: what could not be told is part of the next window. Counts that it refuses for what
they are would be refused again, so they are left out.

What the topic does not take is not sent later: the store keeps it, and a reader sees a gap between two times.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from twinshore.fleet import Cluster
from twinshore.fleet.once import Once, in_words
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.notes import Notebook
from twinshore.proxy.core.flows import Flows, busiest, join
from twinshore.service.clock import wall_ms
from twinshore.store import Flow, FlowKey, FlowRow, InstanceRow, Store

CALL_S: Final = 5.0
HOUR_MS: Final = 3_600_000
FORGET_EVERY_MS: Final = 60_000
END_S: Final = 3.0


class TopicOfTraffic:
    """Windows of traffic as records of a topic, for whoever reads them there: JSON, a record for each flow. Used by one
    thread. The topic is made where it is not there."""

    def __init__(self, cluster: Cluster, topic: str, keep_ms: int, log: Callable[[str], None]) -> None:
        self._kafka = KafkaCluster(cluster, client_id="twinshore-proxy", patience_s=CALL_S, call_s=CALL_S)
        self._notes = Notebook(self._kafka, topic)
        self._settings = {"retention.ms": str(keep_ms)} if keep_ms else {}
        self._made = False
        self._told = Once(log)
        self._topic = topic

    def take(self, rows: Sequence[FlowRow]) -> None:
        """Never raises: nothing else waits for it."""
        if not rows:
            return
        entries = [(row.key.client.encode(), json.dumps(row.as_values()).encode()) for row in rows]
        try:
            with self._kafka.errand():
                if not self._made and not self._notes.exists():
                    self._notes.make(self._settings)
                self._made = True
                self._notes.append(entries, wall_ms())
        except Exception as error:  # whoever ended here would take no window any more
            self._made = False
            self._told.say(f"{in_words(error)}: what goes through is not written to topic {self._topic}")
            return
        self._told.well(f"topic {self._topic} takes again what goes through")

    def close(self) -> None:
        """Ends its connections."""
        self._kafka.close()


Grown = Sequence[tuple[FlowKey, Flow]]
T = TypeVar("T")


class Telling:
    """`serves`: this process. `heard` is called with each window, whether the store is there or not, and with how many
    seconds it lasted. `topic`: where windows are written besides."""

    def __init__(
        self,
        store: Callable[[], Store | None],
        flows: Flows,
        serves: InstanceRow,
        log: Callable[[str], None],
        *,
        every_s: float,
        keep_hours: int,
        heard: Callable[[Grown, float], None],
        topic: TopicOfTraffic | None = None,
    ) -> None:
        self._stores, self._flows, self._serves, self._heard = store, flows, serves, heard
        self._every_s, self._keep_ms, self._topic = every_s, keep_hours * HOUR_MS, topic
        self._untold: dict[FlowKey, Flow] = {}
        self._told, self._refused = Once(log), Once(log)
        self._since_ms = self._looked_ms = wall_ms()
        self._forgot_ms = 0
        self._threads = ThreadPoolExecutor(1, "traffic")

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            await self.tell()

    async def end(self) -> None:
        """Tells the last."""
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self.tell()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._topic is not None:
            self._topic.close()

    async def tell(self) -> None:
        """One window ends."""
        now_ms, grown = wall_ms(), self._flows.window()
        began_ms, self._looked_ms = self._looked_ms, now_ms
        self._heard(grown, max(0.001, (now_ms - began_ms) / 1000))
        if self._keep_ms:
            join(self._untold, grown)
            self._untold = dict(busiest(self._untold.items()))
            await self._tell_store(now_ms)
        if self._topic is not None:
            rows = self._rows(began_ms, now_ms, busiest(grown))
            await self._in_thread(partial(self._topic.take, rows))

    async def _tell_store(self, now_ms: int) -> None:
        rows = self._rows(self._since_ms, now_ms, list(self._untold.items()))
        try:
            refused = await self._in_thread(partial(self._store_takes, rows, now_ms))
        except Exception as error:  # whoever ended here would never tell anything again
            self._told.say(f"{in_words(error)}: what goes through is told later")
            return
        self._untold.clear()
        self._since_ms = max(now_ms, self._since_ms + 1)
        self._told.well("the store takes again what goes through")
        if refused:
            self._refused.say("the store refuses some counts of what goes through for what they are: they are left out")

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _rows(self, since_ms: int, now_ms: int, flows: Grown) -> list[FlowRow]:
        serves = self._serves
        return [FlowRow(serves.id, serves.name, since_ms, max(now_ms, since_ms + 1), key, flow) for key, flow in flows]

    def _store_takes(self, rows: Sequence[FlowRow], now_ms: int) -> int:
        """How many rows it refused. Where there is no store yet nobody would look at it."""
        store = self._stores()
        if store is None:
            return 0
        refused = store.traffic.tell(rows)
        if now_ms - self._forgot_ms >= FORGET_EVERY_MS:
            self._forgot_ms = now_ms
            store.traffic.forget_before(now_ms - self._keep_ms)
        return refused
