"""A link's heartbeat: a small record on its source, a second apart, which crosses like any other."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

from twinshore.fleet import HEARTBEATS, KafkaError, Link
from twinshore.fleet.once import Once, in_words
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.notes import Notebook
from twinshore.service.workers import keep_on

HEARTBEAT_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "604800000", "segment.bytes": "16777216"}
REFUSED_PAUSE_S = 30.0


class Heart:
    """Beats in a thread of its own while `may_beat`; a slow source must not hold up the driver."""

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
        self._closed = threading.Event()
        self._thread = keep_on(self._work, f"heart {link.name}") if every_s else None

    def close(self) -> None:
        self._closed.set()
        if self._thread:
            self._thread.join(timeout=10)

    def _work(self) -> None:
        source = KafkaCluster(self._cluster.cluster, client_id="twinshore-heart", patience_s=2.0, call_s=2.0)
        notebook = Notebook(source, HEARTBEATS, call_s=2.0)
        pause_s, there = self._every_s, False
        while not self._closed.wait(pause_s):
            if not self._may_beat():
                continue
            try:
                source.must_be(self._cluster.cluster_id())
                if not there and not notebook.exists():
                    notebook.make(HEARTBEAT_SETTINGS)
                there = True
                now_ms = int(time.time() * 1000)
                notebook.append([(self._link.name.encode(), self._beat(now_ms))], now_ms)
                pause_s = self._every_s
                self._once.well(f"{self._link.name}: heartbeats are written on {self._link.source} again")
            except KafkaError as error:
                there = False
                pause_s = self._every_s if error.retriable else REFUSED_PAUSE_S
                self._say(error)
            except Exception as error:
                # A secret that cannot be read now, perhaps: who owns it may mend it.
                there, pause_s = False, REFUSED_PAUSE_S
                self._tell(in_words(error))
        source.close()

    def _beat(self, now_ms: int) -> bytes:
        beat = {"link": self._link.name, "source": self._link.source, "target": self._link.target, "at_ms": now_ms}
        return json.dumps(beat, separators=(",", ":")).encode()

    def _say(self, error: KafkaError) -> None:
        if not error.retriable:
            self._tell(f"{error.message} (try: {error.hint})")

    def _tell(self, why: str) -> None:
        name, source = self._link.name, self._link.source
        self._once.say(f"{name}: no heartbeat on {source}, so `twinshore topology` does not see it: {why}")
