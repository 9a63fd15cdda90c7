"""A link's heartbeat: a small record on its source, a second apart, which crosses like any other."""

from __future__ import annotations

import json
from collections.abc import Callable

from twinshore.fleet import HEARTBEATS, KafkaError, Link
from twinshore.fleet.once import Once, in_words
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.notes import Notebook
from twinshore.service.clock import wall_ms
from twinshore.service.connections import QUICK
from twinshore.service.scheduler import tasks

HEARTBEAT_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "604800000", "segment.bytes": "16777216"}
REFUSED_PAUSE_S = 30.0


class Heart:
    """Beats in a separate task while `may_beat`; a slow source must not hold up the driver."""

    def __init__(
        self,
        link: Link,
        source: KafkaCluster,
        every_s: float,
        may_beat: Callable[[], object],
        log: Callable[[str], None],
    ) -> None:
        self._link, self._cluster, self._every_s = link, source, every_s
        self._may_beat = may_beat
        self._once = Once(log)
        self._source = KafkaCluster(
            source.cluster, client_id=QUICK.client_id, patience_s=2.0, call_s=2.0, pool=QUICK.pool
        )
        self._notebook, self._there = Notebook(self._source, HEARTBEATS, call_s=2.0), False
        name, asks = f"heart {link.name}", (link.source,)
        self._task = tasks.every(name, self._turn, asks=asks, first_s=every_s) if every_s else None

    def close(self) -> None:
        if self._task:
            self._task.close()
        self._source.close()

    def _turn(self) -> float:
        if not self._may_beat():
            return self._every_s
        try:
            self._source.must_be(self._cluster.cluster_id())
            if not self._there and not self._notebook.exists():
                self._notebook.make(HEARTBEAT_SETTINGS)
            self._there = True
            now_ms = wall_ms()
            self._notebook.append([(self._link.name.encode(), self._beat(now_ms))], now_ms)
            self._once.well(f"{self._link.name}: heartbeats are written on {self._link.source} again")
            return self._every_s
        except KafkaError as error:
            self._there = False
            self._say(error)
            return self._every_s if error.retriable else REFUSED_PAUSE_S
        except Exception as error:
            # A secret that cannot be read now, perhaps: who owns it may mend it.
            self._there = False
            self._tell(in_words(error))
            return REFUSED_PAUSE_S

    def _beat(self, now_ms: int) -> bytes:
        beat = {"link": self._link.name, "source": self._link.source, "target": self._link.target, "at_ms": now_ms}
        return json.dumps(beat, separators=(",", ":")).encode()

    def _say(self, error: KafkaError) -> None:
        if not error.retriable:
            self._tell(f"{error.message} (try: {error.hint})")

    def _tell(self, why: str) -> None:
        name, source = self._link.name, self._link.source
        self._once.say(f"{name}: no heartbeat on {source}, so `twinshore topology` does not see it: {why}")
