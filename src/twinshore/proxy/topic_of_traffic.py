"""Windows of traffic as records of a topic, for whoever reads them there: JSON, a record for each flow.

What the topic does not take is not sent later: the store keeps it, and a reader sees a gap between two times.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

from twinshore.fleet import Cluster
from twinshore.fleet.once import Once, in_words
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.notes import Notebook
from twinshore.service.clock import wall_ms
from twinshore.store import FlowRow

CALL_S: Final = 5.0


class TopicOfTraffic:
    """Used by one thread. The topic is made where it is not there."""

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
