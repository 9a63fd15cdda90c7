"""Announces the home of proxy clients' groups to clusters that lack the record. A cluster that was down while groups
moved has an older one, which only its clients would read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from twinshore.config.errors import KafkaError
from twinshore.config.frozen import GROUPS_HOME
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.cluster import KafkaCluster
from twinshore.routing.core.home_records import HomeLog, HomeRecord
from twinshore.routing.homes_topic import HomesTopic
from twinshore.state.core.values import LinkStateRow
from twinshore.state.store import Store

log = logging.getLogger(__name__)

GROUPS_HOME_KIND = "groups' home"
CHECK_INTERVAL_S = 5.0


def load_home(store: Store) -> HomeRecord | None:
    """Returns the last home record; None if groups have never moved."""
    log = HomeLog()
    for row in store.link_states.of(GROUPS_HOME, GROUPS_HOME_KIND):
        log.take(row.subject.encode(), row.value.encode())
    return log.homes.get(GROUPS_HOME)


def save_home(store: Store, record: HomeRecord) -> None:
    """Saves the record unless a later one is saved, or one that only a newer version can read."""
    before = load_home(store)
    if before is None or (not before.newer and before.word < record.word):
        key, value = record.line()
        row = LinkStateRow(GROUPS_HOME, GROUPS_HOME_KIND, key.decode(), (value or b"").decode(), "", record.since_ms)
        store.link_states.remember([row])


class GroupsHomeAnnouncer:
    """Writes the saved record to these clusters, once for each new record or call of `again`. Use from one thread."""

    def __init__(self, store: Store, clusters: Iterable[KafkaCluster]) -> None:
        self._store = store
        self._homes_topics = {cluster.name: HomesTopic(cluster) for cluster in clusters}
        self._said: dict[str, HomeRecord] = {}
        self._looked_s = float("-inf")

    def again(self) -> None:
        """Call after an outage: the cluster may have an older record."""
        self._said.clear()

    def turn(self, now_s: float) -> None:
        """Checks every few seconds. A silent cluster is retried at the next check."""
        if now_s - self._looked_s < CHECK_INTERVAL_S:
            return
        self._looked_s = now_s
        record = load_home(self._store)
        for name, homes_topic in self._homes_topics.items():
            if record is not None and not record.newer and self._said.get(name) != record:
                try:
                    self._say(name, homes_topic, record)
                except KafkaError as error:
                    if not error.retriable:
                        raise
                    continue
                self._said[name] = record

    def _say(self, name: str, homes_topic: HomesTopic, record: HomeRecord) -> None:
        there = homes_topic.read().get(GROUPS_HOME)
        if there is None or (not there.newer and there.word < record.word):
            homes_topic.make()
            homes_topic.say([record], wall_ms())
            heard = f"{name} hears that groups are at home on {record.home}, in term {record.term}"
            log.info(heard, extra={"cluster": name})
